package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
)

func whatNoInstanceCanBeCalledIsNone(t *testing.T, e *Env) {
	ctx := t.Context()
	id := e.EnqueueTo(t, "a", newJobs(1)...)[0]
	foreign := []string{"", "\xff\xfe", "a b", "}", strings.Repeat("x", 129)}
	for _, name := range foreign {
		e.put(t, "SADD", e.Prefix+":instances", name)
	}
	if got, err := e.Store.Instances(ctx); !slices.Equal(got, []string{"a"}) || err != nil {
		t.Errorf("there are %q, %v", got, err)
	}
	if all, err := e.Store.Stats(ctx); len(all) != 1 || all[0].Todo != 1 || err != nil {
		t.Errorf("the counts are %+v, %v", all, err)
	}
	if j := e.Job(t, id); j.Instance != "a" {
		t.Errorf("the job is in %q", j.Instance)
	}
	for _, name := range foreign {
		e.put(t, "SREM", e.Prefix+":instances", name)
	}
}

// trips counts round trips.
type trips struct{ n atomic.Int64 }

func (r *trips) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { r.n.Add(1); return next(ctx, cmd) }
}
func (r *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { r.n.Add(1); return next(ctx, cmds) }
}

func manyInstancesAreCountedInAFewRoundTrips(t *testing.T, e *Env) {
	ctx := t.Context()
	const n, spoilt = 250, "x120"
	for i := range n {
		name := fmt.Sprint("x", 100+i)
		e.EnqueueTo(t, name, newJobs(1+i%3)...)
		_, _, err := e.Runtime.Register(ctx, name, []store.Definition{{Key: name, Spec: "@every 1h", Job: store.NewJob{Payload: []byte("1")}}}, false)
		must(t, err)
	}
	last := e.EnqueueTo(t, "x101", newJobs(1)...)[0] // has two already
	if j := e.Job(t, last); j.Instance != "x101" {
		t.Errorf("the job is in %q", j.Instance)
	}
	must(t, e.Store.Delete(ctx, last))
	undo := e.spoil(t, e.Key(spoilt, "done"), "string")
	undoEntries := e.spoil(t, e.Key(spoilt, "cron_ticks"), "string")
	var seen trips
	e.Runtime.Client().AddHook(&seen)
	for _, tc := range []struct {
		what string
		call func() (int, error)
		key  string
	}{
		{"counts", func() (int, error) {
			all, err := e.Store.Stats(ctx)
			for _, s := range all {
				var i int
				_, _ = fmt.Sscanf(s.Instance, "x%d", &i)
				if want := int64(1 + (i-100)%3); s.Todo != want || s.Total != want {
					t.Errorf("%s has %d jobs, %d todo, want %d", s.Instance, s.Total, s.Todo, want)
				}
			}
			return len(all), err
		}, e.Key(spoilt, "done")},
		{"entries", func() (int, error) {
			all, err := e.Store.Entries(ctx)
			return len(all), err
		}, e.Key(spoilt, "cron_ticks")},
	} {
		for range 2 { // the first time the server may not know the script
			before := seen.n.Load()
			got, err := tc.call()
			var foreign *store.KeyError
			if got != n-1 || !errors.As(err, &foreign) || foreign.Key != tc.key || foreign.Instance() != spoilt {
				t.Errorf("%s of %d instances, %v; want %d, and %s named", tc.what, got, err, n-1, tc.key)
			}
			if trips := seen.n.Load() - before; trips > 10 && !e.Fake { // the embedded server is at hand
				t.Errorf("%s of %d instances took %d round trips", tc.what, n, trips)
			}
		}
	}
	undo()
	undoEntries()
}
