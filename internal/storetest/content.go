package storetest

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// Content returns all that is under the prefix: key, a field or member of it, value or score.
func (e *Env) Content(t testing.TB) map[string]string {
	t.Helper()
	ctx, all := t.Context(), map[string]string{}
	for _, key := range e.keys(t) {
		kind, err := e.Raw.Type(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]string{}
		switch kind {
		case "hash":
			fields, err = e.Raw.HGetAll(ctx, key).Result()
		case "zset":
			members, zerr := e.Raw.ZRangeWithScores(ctx, key, 0, -1).Result()
			err = zerr
			for _, m := range members {
				fields[m.Member.(string)] = fmt.Sprintf("%.0f", m.Score)
			}
		case "set":
			members, serr := e.Raw.SMembers(ctx, key).Result()
			err = serr
			for _, m := range members {
				fields[m] = ""
			}
		case "list":
			members, lerr := e.Raw.LRange(ctx, key, 0, -1).Result()
			err = lerr
			for i, m := range members {
				fields[fmt.Sprint(i)] = m
			}
		case "string":
			fields[""], err = e.Raw.Get(ctx, key).Result()
		}
		if err != nil {
			t.Fatalf("reading %s: %v", key, err)
		}
		for f, v := range fields {
			all[key+" "+f] = v
		}
	}
	return all
}

// Kept is Content less what a request leaves behind that changes no job: its lane, the list of those that wait.
func (e *Env) Kept(t testing.TB) map[string]string {
	t.Helper()
	all := e.Content(t)
	maps.DeleteFunc(all, func(k, _ string) bool {
		return strings.Contains(k, "}:lane:") || strings.Contains(k, "}:waiting ")
	})
	return all
}

// wantSame fails the test if something has changed.
func wantSame(t testing.TB, what string, before, after map[string]string) {
	t.Helper()
	for k, v := range before {
		if w, ok := after[k]; !ok {
			t.Errorf("%s: %q is gone", what, k)
		} else if v != w {
			t.Errorf("%s: %q was %q, is %q", what, k, v, w)
		}
	}
	for k, v := range after {
		if _, ok := before[k]; !ok {
			t.Errorf("%s: %q is new: %q", what, k, v)
		}
	}
}
