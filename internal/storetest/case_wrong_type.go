package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A key of ours that is of another type is named in the error of whatever needs it, and nothing is changed.
func wrongTypeCases() []Case {
	return named(aKeyOfTheWrongTypeIsNamedAndChangesNothing, aLanesKeyOfTheWrongTypeIsNamedAndChangesNothing, globalKeysOfTheWrongTypeAreNamed)
}

var kinds = []string{"string", "hash", "zset", "set", "list"}

// spoil replaces a key by one of another type and returns how to undo that.
func (e *Env) spoil(t *testing.T, key, kind string) (undo func()) {
	t.Helper()
	aside := key + "-aside"
	if !strings.Contains(key, "{") {
		aside = "{" + key + "}-aside" // in the same slot
	}
	there := e.Raw.Exists(t.Context(), key).Val() == 1
	if there {
		e.put(t, "RENAME", key, aside)
	}
	switch kind {
	case "string":
		e.put(t, "SET", key, "foreign")
	case "hash":
		e.put(t, "HSET", key, "foreign", "1")
	case "zset":
		e.put(t, "ZADD", key, 1, "foreign")
	case "set":
		e.put(t, "SADD", key, "foreign")
	case "list":
		e.put(t, "RPUSH", key, "foreign")
	}
	return func() {
		t.Helper()
		e.put(t, "DEL", key)
		if there {
			e.put(t, "RENAME", aside, key)
		}
	}
}

// spoilInTurn makes a key one of each type but the right one, calls f with that, and fails the test unless all is as before, to whom looks.
func (e *Env) spoilInTurn(t *testing.T, key, right string, look func(testing.TB) map[string]string, f func(kind string)) {
	t.Helper()
	for _, kind := range kinds {
		if kind == right {
			continue
		}
		undo := e.spoil(t, key, kind)
		spoilt := look(t)
		f(kind)
		wantSame(t, key+" as a "+kind, spoilt, look(t))
		undo()
		if t.Failed() {
			t.Fatalf("with %s as a %s", key, kind)
		}
	}
}

func (e *Env) wantKeyError(t *testing.T, what string, err error, key, kind, right string) {
	t.Helper()
	var ke *store.KeyError
	if !errors.As(err, &ke) || !errors.Is(err, store.ErrServer) {
		t.Errorf("%s: error %v, want a *KeyError", what, err)
		return
	}
	if ke.Key != key || ke.Type != kind || ke.Want != right || !strings.Contains(err.Error(), key) {
		t.Errorf("%s: error %v, want it to name %s, a %s and not a %s", what, err, key, kind, right)
	}
}

func aKeyOfTheWrongTypeIsNamedAndChangesNothing(t *testing.T, e *Env) {
	e.inEachState(t)
	l := e.claimOne(t)
	e.ask(t, uuid.New())
	before := e.Content(t)
	for name, right := range Layout {
		if name == "lane" || name == "step_result" { // there is one of each lane, of each job
			continue
		}
		key := e.Key(instance, name)
		e.spoilInTurn(t, key, right, e.Content, func(kind string) {
			for _, op := range operations() {
				if op.only == nil || slices.Contains(op.only, name) {
					e.wantKeyError(t, op.name, op.call(e, t, l), key, kind, right)
				}
			}
		})
	}
	wantSame(t, "all put right again", before, e.Content(t))
	e.end(t, l, store.Complete)
}

func aLanesKeyOfTheWrongTypeIsNamedAndChangesNothing(t *testing.T, e *Env) {
	ctx := t.Context()
	var lane, working store.Lane
	must(t, errOf(e.Runtime.Enqueue(ctx, &lane, instance, newJobs(2))))
	e.claimAll(t, &working)
	for _, key := range e.keys(t) {
		if !strings.Contains(key, "}:lane:") {
			continue
		}
		undo := e.spoil(t, key, "hash")
		before, failed := e.Content(t), 0
		for _, err := range []error{
			errOf(e.Runtime.Enqueue(ctx, &lane, instance, newJobs(1))),
			errOf(e.Runtime.Exchange(ctx, &working, e.Terms(), store.Exchange{Claims: workers(1)})),
		} {
			if err != nil {
				e.wantKeyError(t, "a lane", err, key, "hash", "string")
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d operations failed with %s, want 1", failed, key)
		}
		after := e.Content(t)
		for k := range before {
			if strings.HasPrefix(k, key) && after[k] != before[k] {
				t.Errorf("%q was changed", k)
			}
		}
		undo()
	}
}

// claimAll claims what there is on a lane.
func (e *Env) claimAll(t *testing.T, lane *store.Lane) []*store.Lease {
	t.Helper()
	out, err := e.Runtime.Exchange(t.Context(), lane, e.Terms(), store.Exchange{Claims: workers(100)})
	must(t, err)
	return out.Leases
}

func globalKeysOfTheWrongTypeAreNamed(t *testing.T, e *Env) {
	l := e.hold(t)
	before := e.Content(t)
	for _, name := range []string{"instances", "processes"} {
		key, right := e.Prefix+":"+name, Global[name]
		e.spoilInTurn(t, key, right, e.Content, func(kind string) {
			for _, op := range append(operations(), globalOperations()...) {
				needs := slices.Contains([]string{"Processes", "Announce", "Leave"}, op.name)
				if name == "instances" {
					needs = slices.Contains([]string{"Get", "Requeue", "Delete", "Cancel", "List", "Stats", "Workers", "Instances", "Announce"}, op.name)
				}
				if needs {
					e.wantKeyError(t, op.name, op.call(e, t, l), key, kind, right)
				}
			}
			if name != "instances" { // that it is served was noted before the process could not be
				e.put(t, "SREM", e.Prefix+":instances", "another")
			}
		})
	}
	wantSame(t, "all put right again", before, e.Content(t))
}
