package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Foreign keys harm nothing, and what was spoilt harms only its own instance.
func foreignCases() []Case {
	return named(foreignKeysHarmNothing, aBrokenInstanceHarmsNoOther, aBusyRunLeavesOnlyKeysOfTheLayout)
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
	wantErr(t, "an unknown id", errOf(e.Store.Get(ctx, uuid.New())), store.ErrNotFound)
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
	must(t, errOf(e.Runtime.Await(t.Context(), instance, l.Job.ID)))
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
