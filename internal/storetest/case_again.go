package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A parent that is removed and enqueued again under its id has nothing to do with the children of before.
func againCases() []Case {
	return named(aParentEnqueuedAgainTakesNoOutcomeOfBefore, aParentEnqueuedAgainKeepsItsNewChildren)
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
	if wanted, err := e.Runtime.Wanted(t.Context(), &k[1].Job); err != nil || wanted {
		t.Errorf("the child of before is wanted: %v, %v", wanted, err)
	}
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
			if wanted, err := e.Runtime.Wanted(t.Context(), &k[id].Job); err != nil || !wanted {
				t.Errorf("a new child is wanted: %v, %v", wanted, err)
			}
			e.endChild(t, k[id], store.Finish{Verb: store.Complete, Result: []byte(`1`)})
		}
		e.sweepLater(t)
		e.Want(t, store.Todo, l.Job.ID)
		e.end(t, e.claimOne(t), store.Complete)
		must(t, e.Store.Delete(t.Context(), l.Job.ID))
		e.sweepLater(t)
		for _, key := range []string{"chores", "children", "stepped"} {
			if n := e.Raw.Exists(t.Context(), e.Key(instance, key)).Val(); n != 0 {
				t.Errorf("%s is not empty", key)
			}
		}
		must(t, e.Store.DeleteInstance(t.Context(), childInstance, true))
		if t.Failed() {
			t.Fatalf("with a parent that was ended by %v", verb)
		}
	}
}
