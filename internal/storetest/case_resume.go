package storetest

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A requeue resumes with what is committed, or drops all of it, or what came after some step.
func resumeCases() []Case {
	return named(requeueResumesWithWhatIsCommitted, requeueAfreshDropsAll, requeueFromAStepDropsWhatCameAfter, aChildIsNotRequeued,
		aJobWithoutStepsIsRequeuedAfreshAsWell, aRequeueCancelsWhatWasToBeLetGo, aRequeuedParentIsDeafToItsOldChildren, stepsAreInTheOrderInWhichTheyWereFirstCommitted)
}

// family has a parent with two local steps around two children, one of which failed, and one that is open; it is dead.
func (e *Env) family(t *testing.T) (*store.Lease, []uuid.UUID) {
	t.Helper()
	l := e.hold(t)
	e.commit(t, l, local("first", `1`))
	ids := e.spawn(t, l, nil, "good", "bad", "open")
	e.commit(t, l, local("last", `2`), store.StepWrite{Name: "refused", Kind: store.LocalStep, Error: "for good"})
	kids := map[string]*store.Lease{}
	for _, k := range e.claimChildren(t, 3) {
		kids[k.Job.Parent.Step] = k
	}
	e.finishChild(t, kids["good"], store.Finish{Verb: store.Complete, Result: []byte(`"g"`)})
	e.finishChild(t, kids["bad"], store.Finish{Verb: store.Bury, Error: "no ink"})
	e.endChild(t, kids["open"], store.Finish{Verb: store.Release})
	e.end(t, l, store.Bury)
	return l, ids
}

// wantSteps checks which steps a job has.
func (e *Env) wantSteps(t *testing.T, job uuid.UUID, want ...string) {
	t.Helper()
	got := e.steps(t, job)
	for _, name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("step %s is gone", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d steps, want %v", len(got), want)
	}
}

func requeueResumesWithWhatIsCommitted(t *testing.T, e *Env) {
	l, ids := e.family(t)
	must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.RequeueMode{}))
	e.wantSteps(t, l.Job.ID, "first", "good", "last")
	again := e.claimOne(t)
	if again.Steps.Generation != 1 || again.Steps.Epoch != 0 || len(again.Steps.Known) != 3 {
		t.Errorf("claimed with %+v", again.Steps)
	}
	fresh := e.spawn(t, again, nil, "bad", "open")
	if fresh[1] == ids[2] {
		t.Error("the child of the new generation has the old one's id")
	}
	e.sweep(t, instance)
	e.Want(t, store.Cancelled, ids[2])
	e.Want(t, store.Todo, fresh...)
}

func requeueAfreshDropsAll(t *testing.T, e *Env) {
	l, ids := e.family(t)
	must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.Fresh))
	e.wantSteps(t, l.Job.ID)
	if again := e.claimOne(t); again.Steps.Generation != 1 || again.Steps.Epoch != 1 || len(again.Steps.Known) != 0 {
		t.Errorf("claimed with %+v", again.Steps)
	}
	e.sweepLater(t)
	e.Want(t, store.Cancelled, ids[2])
}

func requeueFromAStepDropsWhatCameAfter(t *testing.T, e *Env) {
	l, ids := e.family(t)
	wantErr(t, "from a step that is not there", e.Store.Requeue(t.Context(), l.Job.ID, store.FromStep("none")), store.ErrNotFound)
	e.Want(t, store.Dead, l.Job.ID)
	must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.FromStep("good")))
	e.wantSteps(t, l.Job.ID, "first")
	e.sweepLater(t)
	e.Want(t, store.Cancelled, ids[2])
}

// What it ran and did not come to commit may have had its effect: afresh means under another key of idempotency, which the epoch is part of.
func aJobWithoutStepsIsRequeuedAfreshAsWell(t *testing.T, e *Env) {
	l := e.hold(t)
	e.end(t, l, store.Bury)
	wantErr(t, "from a step that is not there", e.Store.Requeue(t.Context(), l.Job.ID, store.FromStep("none")), store.ErrNotFound)
	for i, m := range []store.RequeueMode{store.Resume, store.Fresh, store.Resume, store.Fresh} {
		must(t, e.Store.Requeue(t.Context(), l.Job.ID, m))
		again := e.claimOne(t)
		if again.Steps.Epoch != (i+1)/2 || len(again.Steps.Known) != 0 || !again.Steps.Complete && i > 0 {
			t.Errorf("requeued %d times it was claimed with %+v", i+1, again.Steps)
		}
		if i == 3 {
			e.commit(t, again, local("a", `1`))
		}
		e.end(t, again, store.Bury)
	}
	e.wantStep(t, l.Job.ID, "a", store.StepCompleted, `1`, 0)
	must(t, e.Store.Delete(t.Context(), l.Job.ID))
	if n := e.Raw.Exists(t.Context(), e.Key(instance, "stepped")).Val(); n != 0 {
		t.Error("something of its steps is left")
	}
}

// A parent that is done lets its children go, if the sweeper comes before a requeue; else they are cancelled, all of them that are open.
func aRequeueCancelsWhatWasToBeLetGo(t *testing.T, e *Env) {
	for what, mode := range map[string]store.RequeueMode{"resumed": store.Resume, "afresh": store.Fresh, "from a step": store.FromStep("first")} {
		l := e.hold(t)
		e.commit(t, l, local("first", `1`))
		ids := e.spawn(t, l, nil, "a", "b")
		e.end(t, l, store.Complete)
		e.requeueUntold(t, l.Job.ID, mode)
		k := e.claimChildren(t, 1)[0]
		e.wantWanted(t, "to be cancelled", k, false)
		e.endChild(t, k, store.Finish{Verb: store.Cancel})
		e.sweepLater(t)
		e.Want(t, store.Cancelled, ids...)
		e.end(t, e.claimOne(t), store.Complete)
		e.sweepLater(t)
		e.wantNoFamily(t)
		if t.Failed() {
			t.Fatalf("with a parent that was requeued, %s", what)
		}
	}
}

func aChildIsNotRequeued(t *testing.T, e *Env) {
	_, ids := e.family(t)
	wantErr(t, "requeuing a child", e.Store.Requeue(t.Context(), ids[1], store.RequeueMode{}), store.ErrState)
	e.Want(t, store.Dead, ids[1])
}

func aRequeuedParentIsDeafToItsOldChildren(t *testing.T, e *Env) {
	l, ids := e.family(t)
	must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.RequeueMode{}))
	again := e.claimOne(t)
	e.spawn(t, again, nil, "open")
	e.parkFor(t, again, "open")
	old := store.Parent{ID: l.Job.ID, Instance: instance, Step: "open"}
	must(t, e.Runtime.Relay(t.Context(), []store.Outcome{{Child: ids[2], Instance: childInstance, Parent: old, Fate: store.FateDone, Text: `"old"`}}))
	e.Want(t, store.Parked, l.Job.ID)
	e.sweepLater(t) // which cancels the old one, and leaves the new one
	e.Want(t, store.Parked, l.Job.ID)
	e.wantStep(t, l.Job.ID, "open", store.StepDispatched, "", 0)
}

func stepsAreInTheOrderInWhichTheyWereFirstCommitted(t *testing.T, e *Env) {
	at := func(save int) store.StepWrite {
		return store.StepWrite{Name: "at", Kind: store.CursorStep, Save: save, Value: []byte(fmt.Sprint(save))}
	}
	for from, want := range map[string][]string{
		"last":   {"at", "early"},
		"redone": {"at", "early", "last"},
		"early":  {"at"},
		"at":     {},
	} {
		l := e.hold(t)
		e.commit(t, l, at(1))
		e.commit(t, l, local("early", `1`))
		redone := e.commit(t, l, local("redone", `"as it was"`))[0].Number
		e.commit(t, l, local("last", `2`))
		e.commit(t, l, at(2))
		w := local("redone", `3`)
		w.Replace = redone
		for range 2 { // repeated, as when its reply was lost
			if got := e.commit(t, l, w)[0]; string(got.Result) != `3` || got.Number != redone+2 {
				t.Fatalf("a step that was made again of number %d is %+v", redone, got)
			}
		}
		e.end(t, l, store.Bury)
		must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.FromStep(from)))
		e.wantSteps(t, l.Job.ID, want...)
		if len(want) > 0 {
			e.wantStep(t, l.Job.ID, "at", store.StepCompleted, `2`, 0) // its last position
		}
		e.end(t, e.claimOne(t), store.Complete)
	}
}
