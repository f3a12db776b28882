package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What parents and children have still to be told outlasts the bounds of retention, and an instance is not removed over it.
func owedCases() []Case {
	return named(childrenThatEndBeyondABoundStayUntilTheyAreTold, anInstanceWithFamiliesIsNotDeletedUnforced,
		oneUnfinishedChildAmongManyEndedIsEnough, aJobTakesNoStepsOfARemovedInstance, childrenWhoseOutcomeIsOwedKeepNoOtherJob)
}

func childrenThatEndBeyondABoundStayUntilTheyAreTold(t *testing.T, e *Env) {
	terms := e.childTerms()
	terms.Done, terms.Dead, terms.MaxCrashes = store.Retention{Count: 1}, store.Retention{Count: 1}, 1
	for state, end := range map[store.State]func(kids []*store.Lease){
		store.Done:      func(kids []*store.Lease) { e.finishAll(t, terms, store.Complete, kids...) },
		store.Cancelled: func(kids []*store.Lease) { e.finishAll(t, terms, store.Cancel, kids...) },
		store.Dead: func([]*store.Lease) {
			e.Later(t, lease+time.Second)
			e.reap(t, terms)
		},
	} {
		l := e.hold(t)
		ids := e.spawn(t, l, nil, stepsOf(3)...)
		e.parkFor(t, l, stepsOf(3)...)
		end(e.claimChildren(t, 3))
		for _, id := range ids {
			if j, err := e.Store.Get(t.Context(), id); err != nil || j.State != state {
				t.Errorf("before its outcome was delivered a child that is to be %s is %q, %v", state, j.State, err)
			}
		}
		e.sweepLater(t)
		e.Want(t, store.Todo, l.Job.ID)
		e.reap(t, terms)
		if page, err := e.Store.List(t.Context(), store.Filter{Instance: childInstance, State: state}); err != nil || len(page.Jobs) != 1 {
			t.Errorf("afterwards %d are kept that are %s, %v; want 1", len(page.Jobs), state, err)
		}
		e.end(t, e.claimOne(t), store.Complete)
	}
}

func anInstanceWithFamiliesIsNotDeletedUnforced(t *testing.T, e *Env) {
	refused := func(what string) {
		t.Helper()
		e.untouched(t, func() {
			wantErr(t, what, e.Store.DeleteInstance(t.Context(), childInstance, false), store.ErrState)
			wantErr(t, what, e.Store.DeleteInstance(t.Context(), instance, false), store.ErrState)
		})
	}
	for what, edit := range map[string]func(*store.NewJob){"todo": nil, "scheduled": func(n *store.NewJob) { n.Delay = time.Hour }} {
		l := e.hold(t)
		id := e.spawn(t, l, edit, "thumb")[0]
		e.parkFor(t, l, "thumb")
		refused("with a child that is " + what)
		must(t, e.Store.Cancel(t.Context(), id))
		e.end(t, e.claimOne(t), store.Complete)
	}
	l := e.hold(t)
	e.spawn(t, l, nil, "thumb")
	e.end(t, l, store.Bury)
	refused("with a child that is to be cancelled")
	e.sweepLater(t)
	e.sweepLater(t)
	e.EnqueueTo(t, childInstance, store.NewJob{}) // nobody's child
	must(t, e.Store.DeleteInstance(t.Context(), childInstance, false))
	must(t, e.Store.DeleteInstance(t.Context(), instance, false))
}

func oneUnfinishedChildAmongManyEndedIsEnough(t *testing.T, e *Env) {
	n := e.size(100, 2500)
	l := e.hold(t)
	names := stepsOf(n)
	ids := e.spawn(t, l, nil, names...)
	must(t, errOf(e.Store.CancelAll(t.Context(), store.Filter{Instance: childInstance})))
	last := e.spawn(t, l, nil, "last")[0]
	e.parkFor(t, l, "last")
	wantErr(t, "with one that waits", e.Store.DeleteInstance(t.Context(), childInstance, false), store.ErrState)
	e.Want(t, store.Cancelled, ids[0], ids[n-1])
	must(t, e.Store.Cancel(t.Context(), last))
	must(t, e.Store.DeleteInstance(t.Context(), childInstance, false))
}

// An instance's steps are removed after its jobs, some at a time; a job may be enqueued in between under the id of one that had steps.
func aJobTakesNoStepsOfARemovedInstance(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("a", `"of before"`))
	for _, key := range e.keys(t) {
		if key != e.Key(instance, "stepped") && key != e.stepsKey(l.Job.ID) {
			e.put(t, "DEL", key)
		}
	}
	e.Enqueue(t, store.NewJob{ID: l.Job.ID})
	again := e.claimOne(t)
	if len(again.Steps.Known) != 0 {
		t.Errorf("it was claimed with %+v", again.Steps)
	}
	if got := e.commit(t, again, local("a", `"its own"`))[0]; string(got.Result) != `"its own"` {
		t.Errorf("its step is %s", got.Result)
	}
	other := uuid.New()
	e.Enqueue(t, store.NewJob{ID: other}) // which takes nothing of another's
	e.wantStep(t, l.Job.ID, "a", store.StepCompleted, `"its own"`, 0)
}

// Their parents' server may be away for long.
func childrenWhoseOutcomeIsOwedKeepNoOtherJob(t *testing.T, e *Env) {
	l := e.hold(t)
	n := e.size(600, 3000)
	for held := 0; held < n; { // they end first
		some := min(250, n-held)
		names := stepsOf(n)[held : held+some]
		e.spawn(t, l, nil, names...)
		for _, k := range e.claimChildren(t, some) {
			e.endChild(t, k, store.Finish{Verb: store.Complete})
		}
		held += some
	}
	e.EnqueueTo(t, childInstance, newJobs(10)...)
	for _, k := range e.claimChildren(t, 10) {
		e.endChild(t, k, store.Finish{Verb: store.Complete})
	}
	terms := e.childTerms()
	terms.Done = store.Retention{Age: time.Millisecond}
	for range 20 {
		e.Later(t, time.Second)
		e.reap(t, terms)
	}
	if page, err := e.Store.List(t.Context(), store.Filter{Instance: childInstance, State: store.Done, Limit: 1000}); err != nil || len(page.Jobs) != min(n, 1000) {
		t.Errorf("%d jobs are kept, %v; want the %d children alone", len(page.Jobs), err, n)
	} else if got := e.Raw.ZCard(t.Context(), e.Key(childInstance, "done")).Val(); got != int64(n) {
		t.Errorf("%d jobs are done, want %d", got, n)
	}
}
