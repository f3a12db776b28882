package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What stands in one job's way stops no other, and an instance is removed whole or not at all.
func spoiltCases() []Case {
	return named(aForeignKeyOfOneParentKeepsNoOthersOutcome, aForeignKeyOfOneParentKeepsNoOthersLostChild, aForeignKeyOfOneJobStopsNoOthersRequeue, manyJobsWithManyStepsAreRequeuedInBoundedCalls,
		anInstanceThatOwesOutcomesIsNotDeletedUnforced, anInstanceWithStepsOfManyJobsIsDeletedUnforced)
}

func (e *Env) stepsKey(id uuid.UUID) string {
	return e.Key(instance, fmt.Sprintf("step_result:%x", id[:]))
}

func aForeignKeyOfOneParentKeepsNoOthersOutcome(t *testing.T, e *Env) {
	var parents []*store.Lease
	for range 3 {
		l := e.hold(t)
		e.spawn(t, l, nil, "thumb")
		parents = append(parents, l)
	}
	var outcomes []store.Outcome
	for _, k := range e.claimChildren(t, 3) {
		e.endChild(t, k, store.Finish{Verb: store.Complete, Result: []byte(`7`)})
		outcomes = append(outcomes, store.OutcomeOf(&k.Job, store.Done, []byte(`7`), ""))
	}
	bad := parents[1].Job.ID
	undo := e.spoil(t, e.stepsKey(bad), "list")
	e.wantKeyError(t, "relaying", e.Runtime.Relay(t.Context(), outcomes), e.stepsKey(bad), "list", "hash")
	for _, i := range []int{0, 2} {
		e.wantStep(t, parents[i].Job.ID, "thumb", store.StepCompleted, `7`, store.FateDone)
	}
	if n := e.Raw.HLen(t.Context(), e.Key(childInstance, "outbox")).Val(); n != 1 {
		t.Errorf("%d outcomes are left, want the one that could not be delivered", n)
	}
	undo()
	e.sweepLater(t)
	e.wantStep(t, bad, "thumb", store.StepCompleted, `7`, store.FateDone)
}

func aForeignKeyOfOneParentKeepsNoOthersLostChild(t *testing.T, e *Env) {
	var parents []*store.Lease
	var ids []uuid.UUID
	for range 3 {
		l := e.hold(t)
		parents, ids = append(parents, l), append(ids, e.forsake(t, l, nil, "thumb")...)
		e.end(t, l, store.Complete)
	}
	undo := e.spoil(t, e.stepsKey(parents[1].Job.ID), "list")
	e.sweepLater(t)
	undo()
	e.Want(t, store.Todo, ids[0], ids[2])
}

func aForeignKeyOfOneJobStopsNoOthersRequeue(t *testing.T, e *Env) {
	var ids []uuid.UUID
	for range 3 {
		l := e.hold(t)
		e.commit(t, l, local("a", `1`))
		e.end(t, l, store.Bury)
		ids = append(ids, l.Job.ID)
	}
	undo := e.spoil(t, e.stepsKey(ids[1]), "list")
	n, err := e.Store.RequeueAll(t.Context(), store.Filter{Instance: instance})
	e.wantKeyError(t, "requeuing many", err, e.stepsKey(ids[1]), "list", "hash")
	if n != 2 || !strings.Contains(err.Error(), ids[1].String()) {
		t.Errorf("%d were requeued, %v; want 2, and the third named", n, err)
	}
	e.Want(t, store.Todo, ids[0], ids[2])
	e.Want(t, store.Dead, ids[1])
	e.wantKeyError(t, "requeuing it", e.Store.Requeue(t.Context(), ids[1], store.Resume), e.stepsKey(ids[1]), "list", "hash")
	undo()
	must(t, e.Store.Requeue(t.Context(), ids[1], store.Resume))
}

func manyJobsWithManyStepsAreRequeuedInBoundedCalls(t *testing.T, e *Env) {
	big := fmt.Sprintf(`"%s"`, strings.Repeat("x", 1000*1000))
	for range 10 {
		l := e.hold(t)
		e.commit(t, l, local("a", big))
		e.commit(t, l, local("b", big))
		e.end(t, l, store.Bury)
	}
	made := e.calls(t, "evalsha", func() {
		if n, err := e.Store.RequeueAll(t.Context(), store.Filter{Instance: instance}); err != nil || n != 10 {
			t.Errorf("%d were requeued, %v; want 10", n, err)
		}
	})
	if !e.Fake && made < 5 {
		t.Errorf("10 jobs with 2 MB of steps each were requeued in %d calls", made)
	}
}

func anInstanceThatOwesOutcomesIsNotDeletedUnforced(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "thumb")
	e.parkFor(t, l, "thumb")
	e.endChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete, Result: []byte(`7`)})
	before := e.Content(t)
	if err := e.Store.DeleteInstance(t.Context(), childInstance, false); !errors.Is(err, store.ErrState) {
		t.Errorf("it was deleted, with an outcome that its parent waits for: %v", err)
	}
	wantSame(t, "a refused removal", before, e.Content(t))
	e.sweepLater(t)
	e.Want(t, store.Todo, l.Job.ID)
	must(t, e.Store.DeleteInstance(t.Context(), childInstance, false))
}

func anInstanceWithStepsOfManyJobsIsDeletedUnforced(t *testing.T, e *Env) {
	n := e.size(300, 2500)
	for held := 0; held < n; {
		some := min(250, n-held)
		e.Add(t, some)
		for _, l := range e.Claim(t, some) {
			e.commit(t, l, local("a", `1`))
			e.end(t, l, store.Complete)
		}
		held += some
	}
	must(t, e.Store.DeleteInstance(t.Context(), instance, false))
	for _, key := range e.keys(t) {
		if strings.Contains(key, "{"+instance+"}") && !strings.Contains(key, ":lane:") {
			t.Fatalf("%s is left", key)
		}
	}
}
