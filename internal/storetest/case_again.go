package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A parent that is removed and enqueued again under its id has nothing to do with the children of before.
func againCases() []Case {
	return named(aParentEnqueuedAgainTakesNoOutcomeOfBefore, aParentEnqueuedAgainKeepsItsNewChildren, aNoteOfBeforeIsNotOfNewChildren,
		childrenOfEachGenerationHaveTheirOwnFate, aChildOfAParentEnqueuedAgainRunsOnce)
}

// again removes a job that has ended and enqueues another under its id.
func (e *Env) again(t *testing.T, id uuid.UUID) *store.Lease {
	t.Helper()
	must(t, e.Store.Delete(t.Context(), id))
	time.Sleep(2 * time.Millisecond) // by the server's clock one is told from the other
	e.Enqueue(t, store.NewJob{ID: id})
	return e.claimOne(t)
}

func aParentEnqueuedAgainTakesNoOutcomeOfBefore(t *testing.T, e *Env) {
	l := e.hold(t)
	old := e.spawn(t, l, nil, "done", "doing")
	k := e.claimChildren(t, 2)
	e.endChild(t, k[0], store.Finish{Verb: store.Complete, Result: []byte(`"of before"`)})
	e.end(t, l, store.Bury)
	l = e.again(t, l.Job.ID)
	ids := e.spawn(t, l, nil, "done", "doing")
	e.parkFor(t, l, "done", "doing")
	e.endChild(t, k[1], store.Finish{Verb: store.Complete, Result: []byte(`"of before"`)})
	e.sweepLater(t)
	for i, name := range []string{"done", "doing"} {
		e.wantStep(t, l.Job.ID, name, store.StepDispatched, "", 0)
		e.Want(t, store.Todo, ids[i])
		if ids[i] == old[i] {
			t.Errorf("child %s has the id of the one before", name)
		}
	}
	e.wantWanted(t, "of before", k[1], false)
	e.Want(t, store.Parked, l.Job.ID)
}

func aParentEnqueuedAgainKeepsItsNewChildren(t *testing.T, e *Env) {
	for verb, fate := range map[store.Verb]store.State{store.Bury: store.Cancelled, store.Complete: store.Todo} {
		l := e.hold(t)
		old := e.spawn(t, l, nil, stepsOf(3)...)
		e.end(t, l, verb) // what is to become of its children is noted, and not done yet
		l = e.again(t, l.Job.ID)
		ids := e.spawn(t, l, nil, stepsOf(3)...)
		e.parkFor(t, l, stepsOf(3)...)
		e.sweepLater(t)
		e.Want(t, fate, old...)
		e.Want(t, store.Todo, ids...)
		k := map[uuid.UUID]*store.Lease{}
		for range 2 {
			for _, one := range e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(3)}).Leases {
				k[one.Job.ID] = one
			}
		}
		for _, id := range ids {
			if k[id] == nil {
				t.Fatalf("the new child %s was not claimed", id)
			}
			e.wantWanted(t, "a new one", k[id], true)
			e.endChild(t, k[id], store.Finish{Verb: store.Complete, Result: []byte(`1`)})
		}
		e.sweepLater(t)
		e.Want(t, store.Todo, l.Job.ID)
		e.end(t, e.claimOne(t), store.Complete)
		must(t, e.Store.Delete(t.Context(), l.Job.ID))
		e.sweepLater(t)
		e.wantNoFamily(t)
		if n := e.Raw.Exists(t.Context(), e.Key(instance, "stepped")).Val(); n != 0 {
			t.Error("some jobs are still said to have steps")
		}
		must(t, e.Store.DeleteInstance(t.Context(), childInstance, true))
		if t.Failed() {
			t.Fatalf("with a parent that was ended by %v", verb)
		}
	}
}

// What is noted of the children of before stays as long as it is not done, however often another job comes and goes under the id.
func aNoteOfBeforeIsNotOfNewChildren(t *testing.T, e *Env) {
	for what, between := range map[string]func(id uuid.UUID) (old store.State){
		"enqueued and removed once more": func(id uuid.UUID) store.State {
			e.end(t, e.again(t, id), store.Complete)
			return store.Cancelled
		},
		"requeued": func(id uuid.UUID) store.State {
			e.requeueUntold(t, id, store.Fresh)
			e.end(t, e.claimOne(t), store.Complete)
			return store.Cancelled
		},
		"told": func(uuid.UUID) store.State {
			e.finishChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete, Result: []byte(`1`)})
			return store.Done
		},
	} {
		l := e.hold(t)
		old := e.spawn(t, l, nil, "thumb")
		e.end(t, l, store.Bury) // its child is to be cancelled
		want := between(l.Job.ID)
		l = e.again(t, l.Job.ID)
		ids := e.spawn(t, l, nil, "thumb")
		e.parkFor(t, l, "thumb")
		e.sweepLater(t)
		e.Want(t, want, old...)
		e.Want(t, store.Todo, ids...)
		e.Want(t, store.Parked, l.Job.ID)
		must(t, e.Store.Cancel(t.Context(), l.Job.ID))
		must(t, e.Store.Delete(t.Context(), l.Job.ID))
		e.sweepLater(t)
		e.wantNoFamily(t)
		if t.Failed() {
			t.Fatalf("with a parent that was %s", what)
		}
	}
}

// requeueUntold requeues a job, and its children don't hear of it.
func (e *Env) requeueUntold(t *testing.T, id uuid.UUID, mode store.RequeueMode) {
	t.Helper()
	undo := e.spoil(t, e.Key(childInstance, "cancels"), "string")
	wantErr(t, "requeuing", e.Store.Requeue(t.Context(), id, mode), store.ErrUntold)
	undo()
}

// wantWanted fails unless it is so that a child, which what tells of, is wanted.
func (e *Env) wantWanted(t *testing.T, what string, child *store.Lease, want bool) {
	t.Helper()
	if got, err := e.Runtime.Wanted(t.Context(), &child.Job); err != nil || got != want {
		t.Errorf("child, %s: wanted is %v, %v; want %v", what, got, err, want)
	}
}

// wantNoFamily fails if anything is left of parents and children, but their jobs.
func (e *Env) wantNoFamily(t *testing.T) {
	t.Helper()
	for _, key := range []string{e.Key(instance, "children"), e.Key(instance, "chores"), e.Key(childInstance, "chores"), e.Key(childInstance, "outbox")} {
		if n := e.Raw.Exists(t.Context(), key).Val(); n != 0 {
			t.Errorf("there is still %s", key)
		}
	}
}

// One that was done and let its children go, one of the same id that died: both happened before the sweeper came.
func childrenOfEachGenerationHaveTheirOwnFate(t *testing.T, e *Env) {
	fates := map[store.Verb]store.State{store.Complete: store.Todo, store.Bury: store.Cancelled}
	for first, second := range map[store.Verb]store.Verb{store.Complete: store.Bury, store.Bury: store.Complete} {
		l := e.hold(t)
		old := e.spawn(t, l, nil, "a", "b")
		e.end(t, l, first)
		l = e.again(t, l.Job.ID)
		ids := e.spawn(t, l, nil, "a", "b")
		e.end(t, l, second)
		e.sweepLater(t)
		e.Want(t, fates[first], old...)
		e.Want(t, fates[second], ids...)
		must(t, e.Store.Delete(t.Context(), l.Job.ID))
	}
}

// Its outcome comes when its parent, which let it go, is already another job; who dispatched it, and was held up, may enqueue it just then.
func aChildOfAParentEnqueuedAgainRunsOnce(t *testing.T, e *Env) {
	l := e.hold(t)
	w := child(l, "thumb")
	e.commit(t, l, w)
	e.EnqueueTo(t, childInstance, w.Child)
	e.end(t, l, store.Complete)
	l = e.again(t, l.Job.ID)
	e.finishChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete, Result: []byte(`1`)})
	for range 2 {
		must(t, e.Store.Delete(t.Context(), w.Child.ID))
		must(t, errOf(e.Runtime.Enqueue(t.Context(), new(store.Lane), childInstance, []store.NewJob{w.Child})))
		for _, again := range e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(1)}).Leases {
			e.wantWanted(t, "ended, and enqueued late", again, false)
			e.endChild(t, again, store.Finish{Verb: store.Cancel})
		}
		e.sweepLater(t)
		e.sweepLater(t)
		if _, err := e.Store.Get(t.Context(), w.Child.ID); errors.Is(err, store.ErrNotFound) {
			e.EnqueueTo(t, childInstance, w.Child)
		}
	}
	e.end(t, l, store.Complete)
	e.wantNoFamily(t)
}
