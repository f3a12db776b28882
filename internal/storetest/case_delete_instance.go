package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// An instance is deleted whole, and may be there again.
func deleteInstanceCases() []Case {
	return named(deleteInstanceIsRefusedWhileJobsAreDoing, aDeletedInstanceIsVisibleAgainWithItsNextJob, anEnqueueDuringADeletionIsVisible)
}

func deleteInstanceIsRefusedWhileJobsAreDoing(t *testing.T, e *Env) {
	ctx := t.Context()
	ids := e.inEachState(t)
	l := e.claimOne(t)
	other := e.EnqueueTo(t, "other", newJobs(1)...)[0]
	e.untouched(t, func() { wantErr(t, "unforced", e.Store.DeleteInstance(ctx, instance, false), store.ErrState) })
	must(t, e.Store.DeleteInstance(ctx, instance, true))
	for _, id := range ids {
		e.WantGone(t, id)
	}
	if got := e.Finish(t, store.Finish{Verb: store.Complete}, l)[0]; got != "" {
		t.Errorf("a lease of it led to %s", got)
	}
	if v := e.beat(t, store.Beat{Lease: l})[0]; v != store.Lost {
		t.Errorf("a heartbeat got %v", v)
	}
	e.WantGone(t, l.Job.ID)
	e.Want(t, store.Todo, other)
	names, err := e.Store.Instances(ctx)
	if err != nil || !slices.Equal(names, []string{"other"}) {
		t.Errorf("instances are %v, %v", names, err)
	}
	must(t, e.Store.DeleteInstance(ctx, "never-seen", true))
}

func aDeletedInstanceIsVisibleAgainWithItsNextJob(t *testing.T, e *Env) {
	stores := []*store.Store{e.Store}
	if !e.Fake { // another process, which knows nothing of the deletion
		second, err := store.Open(e.Raw, store.Options{Prefix: e.Prefix})
		must(t, err)
		stores = append(stores, second)
	}
	for _, st := range stores {
		for _, j := range []store.NewJob{{}, {Delay: time.Hour}} {
			for range 2 {
				j.ID, j.Payload = uuid.New(), []byte(`1`)
				outcome, err := st.Runtime().Enqueue(t.Context(), new(store.Lane), instance, []store.NewJob{j})
				must(t, errors.Join(append(outcome, err)...))
				if got := e.Job(t, j.ID); got.Instance != instance {
					t.Errorf("it is of %q", got.Instance)
				}
				must(t, e.Store.DeleteInstance(t.Context(), instance, false))
				e.WantGone(t, j.ID)
			}
		}
	}
}

func anEnqueueDuringADeletionIsVisible(t *testing.T, e *Env) {
	e.one(t)
	var id uuid.UUID
	s := e.spy()
	s.before["srem"] = func() { id = e.one(t) }
	must(t, e.Store.DeleteInstance(t.Context(), instance, false))
	if id == uuid.Nil {
		t.Fatal("nothing was enqueued meanwhile")
	}
	e.Want(t, store.Todo, id)
}
