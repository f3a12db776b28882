package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Foreign keys, also of the wrong type in our namespace, harm nothing but themselves and are named in the error.
func foreignCases() []Case {
	return named(aKeyOfTheWrongTypeIsNamedAndChangesNothing, aLanesKeyOfTheWrongTypeIsNamedAndChangesNothing,
		globalKeysOfTheWrongTypeAreNamed, foreignKeysHarmNothing, aBrokenInstanceHarmsNoOther, aBusyRunLeavesOnlyKeysOfTheLayout)
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
		for _, kind := range kinds {
			if kind == right {
				continue
			}
			undo := e.spoil(t, key, kind)
			spoilt := e.Content(t)
			for _, op := range operations() {
				if op.only != nil && !slices.Contains(op.only, name) {
					continue
				}
				e.wantKeyError(t, op.name, op.call(e, t, l), key, kind, right)
			}
			wantSame(t, name+" as a "+kind, spoilt, e.Content(t))
			undo()
			if t.Failed() {
				t.Fatalf("with %s as a %s", name, kind)
			}
		}
	}
	wantSame(t, "all put right again", before, e.Content(t))
	e.end(t, l, store.Complete)
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

func aLanesKeyOfTheWrongTypeIsNamedAndChangesNothing(t *testing.T, e *Env) {
	ctx := t.Context()
	var lane, working store.Lane
	must(t, func() error { _, err := e.Runtime.Enqueue(ctx, &lane, instance, newJobs(2)); return err }())
	e.claimAll(t, &working)
	for _, key := range e.keys(t) {
		if !strings.Contains(key, "}:lane:") {
			continue
		}
		undo := e.spoil(t, key, "hash")
		before, failed := e.Content(t), 0
		for _, err := range []error{
			func() error { _, err := e.Runtime.Enqueue(ctx, &lane, instance, newJobs(1)); return err }(),
			func() error {
				_, err := e.Runtime.Exchange(ctx, &working, e.Terms(), store.Exchange{Claims: workers(1)})
				return err
			}(),
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
		for _, kind := range kinds {
			if kind == right {
				continue
			}
			undo := e.spoil(t, key, kind)
			spoilt := e.Content(t)
			for _, op := range append(operations(), globalOperations()...) {
				needs := slices.Contains([]string{"Processes", "Announce", "Leave"}, op.name)
				if name == "instances" {
					needs = slices.Contains([]string{"Get", "Requeue", "Delete", "Cancel", "List", "Stats", "Workers", "Instances", "Announce"}, op.name)
				}
				if needs {
					e.wantKeyError(t, op.name, op.call(e, t, l), key, kind, right)
				}
			}
			after := e.Content(t)
			delete(after, e.Prefix+":instances another") // that it is served was noted before the process could not be
			wantSame(t, name+" as a "+kind, spoilt, after)
			undo()
			e.put(t, "SREM", e.Prefix+":instances", "another")
			if t.Failed() {
				t.Fatalf("with %s as a %s", name, kind)
			}
		}
	}
	wantSame(t, "all put right again", before, e.Content(t))
}

func foreignKeysHarmNothing(t *testing.T, e *Env) {
	foreign := []string{e.Prefix, e.Prefix + ":mail:jobs", e.Prefix + ":{mail}", e.Prefix + ":{mail}:lane", e.Prefix + ":{mail}:other",
		e.Prefix + ":{}:jobs", e.Prefix + "x:{mail}:jobs", e.Prefix + ":{mail}x:todo", e.Prefix + ":process"}
	for i, key := range foreign {
		e.spoil(t, key, kinds[i%len(kinds)])
	}
	before := e.Content(t)
	for _, s := range e.inEachState(t) {
		_ = e.Job(t, s)
	}
	l := e.claimOne(t)
	for _, op := range append(operations(), globalOperations()...) {
		err := op.call(e, t, l)
		if err != nil && !errors.Is(err, store.ErrState) && !errors.Is(err, store.ErrTerminal) && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", op.name, err)
		}
	}
	after := e.Content(t)
	for k, v := range before {
		if after[k] != v {
			t.Errorf("foreign %q was %q, is %q", k, v, after[k])
		}
	}
	for _, key := range foreign {
		e.put(t, "DEL", key)
	}
}

func aBrokenInstanceHarmsNoOther(t *testing.T, e *Env) {
	ctx := t.Context()
	id := e.hold(t).Job.ID
	e.EnqueueTo(t, "broken", newJobs(1)...)
	undo := e.spoil(t, e.Key("broken", "jobs"), "list")
	if j := e.Job(t, id); j.State != store.Doing {
		t.Errorf("it is %s, want doing", j.State)
	}
	must(t, e.Store.Pause(ctx, instance))
	must(t, e.Store.Resume(ctx, instance))
	if p, err := e.Store.List(ctx, store.Filter{Instance: instance}); err != nil || len(p.Jobs) != 1 {
		t.Errorf("listed %d jobs, %v", len(p.Jobs), err)
	}
	all, err := e.Store.Stats(ctx)
	e.wantKeyError(t, "counting all", err, e.Key("broken", "jobs"), "list", "hash")
	if len(all) != 1 || all[0].Instance != instance || all[0].Doing != 1 {
		t.Errorf("stats are %+v, want those of the other instance", all)
	}
	// What is beside it is listed page by page, before it and behind it.
	other := e.EnqueueTo(t, "an-other", newJobs(1)...)
	var seen []uuid.UUID
	named := 0
	for f := (store.Filter{Limit: 1}); ; {
		p, err := e.Store.List(ctx, f)
		if err != nil {
			named++
			e.wantKeyError(t, "listing all", err, e.Key("broken", "jobs"), "list", "hash")
		}
		for _, j := range p.Jobs {
			seen = append(seen, j.ID)
		}
		if f.Cursor = p.Next; f.Cursor == "" || len(seen) > 2 {
			break
		}
	}
	wantIDs(t, "listed", seen, []uuid.UUID{other[0], id})
	if named != 1 {
		t.Errorf("the key was named %d times, want once", named)
	}
	whole := e.spoil(t, e.Key("broken", "workers"), "list")
	holding, err := e.Store.Workers(ctx, "")
	e.wantKeyError(t, "workers of all", err, e.Key("broken", "workers"), "list", "hash")
	if len(holding) != 1 {
		t.Errorf("%d workers, want 1", len(holding))
	}
	whole()
	n, err := e.Store.CancelAll(ctx, store.Filter{State: store.Doing})
	e.wantKeyError(t, "cancelling all", err, e.Key("broken", "jobs"), "list", "hash")
	if n != 1 {
		t.Errorf("%d were cancelled, want 1", n)
	}
	e.cancel(t, id)
	// An id that is nowhere may be where we can't look: that is not "not found".
	_, err = e.Store.Get(ctx, uuid.New())
	e.wantKeyError(t, "an unknown id", err, e.Key("broken", "jobs"), "list", "hash")
	undo()
	_, err = e.Store.Get(ctx, uuid.New())
	wantErr(t, "an unknown id", err, store.ErrNotFound)
}

// Every key there is after all kinds of operations is one of the layout (which the check after each case sees to); and
// each of the layout is used.
func aBusyRunLeavesOnlyKeysOfTheLayout(t *testing.T, e *Env) {
	e.suspected(t, 2)
	e.claimOne(t) // one of them
	ids := e.inEachState(t)
	l := e.claimOne(t)
	_, _, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), []store.Beat{{Lease: l, Progress: []byte(`1`)}}, nil)
	must(t, err)
	_, err = e.Runtime.Await(t.Context(), instance, l.Job.ID)
	must(t, err)
	e.cancel(t, l.Job.ID)
	e.cancel(t, ids[store.Doing])
	must(t, e.Runtime.Announce(t.Context(), store.Process{ID: e.Process, Instances: []string{instance}}, time.Minute))
	e.leaveOutcome(t)
	must(t, e.Store.Pause(t.Context(), instance)) // so that a job waits and a process too
	e.ask(t, uuid.New())
	e.Enqueue(t, e.by(t, soon), unique(store.UniqueDone, "k"), unique(store.UniqueWindow, "w"))
	e.registered(t, "nightly")
	e.Later(t, time.Hour)
	e.dispatch(t, "node", "nightly", e.Now(t))
	seen := map[string]bool{}
	for _, key := range e.keys(t) {
		rest := strings.TrimPrefix(strings.TrimPrefix(key, e.Prefix+":"), "{"+instance+"}:")
		name, _, _ := strings.Cut(rest, ":")
		seen[name] = true
	}
	for name := range Layout {
		if !seen[name] {
			t.Errorf("the run did not use %q", name)
		}
	}
	for name := range Global {
		if !seen[name] {
			t.Errorf("the run did not use %q", name)
		}
	}
}
