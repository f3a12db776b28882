package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What becomes of a parent reaches its children.
func orphanCases() []Case {
	return named(aParentsEndCancelsItsChildren, aParentThatIsDoneLetsItsChildrenGo, aChildThatWasNeverEnqueuedRunsThoughItsParentIsDone,
		aParentThatIsDoneWantsNoChildTwice, aChildOfAParentThatIsGoneRunsOnce,
		allChildrenOfAParentThatIsGoneAreSeenTo, aCancelReachesTheChildrenThoughNobodyServesTheirParent)
}

// familyEnds are the ends of a parent that cancel its children.
func familyEnds(t *testing.T, e *Env) map[string]func(l *store.Lease) {
	return map[string]func(l *store.Lease){
		"buried":    func(l *store.Lease) { e.end(t, l, store.Bury) },
		"cancelled": func(l *store.Lease) { e.parkFor(t, l, "a", "b"); e.cancel(t, l.Job.ID) },
		"deleted":   func(l *store.Lease) { e.parkFor(t, l, "a", "b"); must(t, e.Store.Delete(t.Context(), l.Job.ID)) },
		"reaped": func(l *store.Lease) {
			terms := e.Terms()
			terms.MaxCrashes = 1
			e.Later(t, lease+time.Second)
			e.reap(t, terms)
		},
	}
}

func aParentsEndCancelsItsChildren(t *testing.T, e *Env) {
	for what, end := range familyEnds(t, e) {
		func() {
			l := e.hold(t)
			ids := e.spawn(t, l, nil, "a", "b")
			k := e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(1)}).Leases[0]
			end(l)
			e.wantWanted(t, "with its parent "+what, k, false)
			e.sweep(t, instance)
			for _, id := range ids {
				if want := store.Cancelled; id != k.Job.ID {
					e.Want(t, want, id)
				}
			}
			terms := e.childTerms()
			terms.Lease = time.Hour
			if v, _, err := e.Runtime.Heartbeat(t.Context(), terms, []store.Beat{{Lease: k}}, nil); err != nil || v[0] != store.CancelRequested {
				t.Errorf("the child that runs hears %v, %v", v, err)
			}
			e.endChild(t, k, store.Finish{Verb: store.Retry})
			e.sweepLater(t)
			e.sweepLater(t)
			if page, err := e.Store.Unresolved(t.Context(), instance, ""); err != nil || len(page.Steps) != 0 {
				t.Errorf("unresolved: %+v, %v", page.Steps, err)
			}
			e.wantNoFamily(t)
			if t.Failed() {
				t.Fatalf("with a parent that was %s", what)
			}
		}()
	}
}

func aParentThatIsDoneLetsItsChildrenGo(t *testing.T, e *Env) {
	terms := e.Terms()
	terms.Done = store.Retention{}
	l := e.hold(t)
	ids := e.spawn(t, l, nil, "a", "b")
	e.Exchange(t, terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Complete}}})
	first := e.claimChildren(t, 1)[0]
	e.wantWanted(t, "right after its parent was done", first, true)
	e.sweepLater(t)
	e.reap(t, terms)
	e.WantGone(t, l.Job.ID) // it stayed until its children had been seen to
	second := e.claimChildren(t, 1)[0]
	e.wantWanted(t, "later", second, true)
	e.endChild(t, first, store.Finish{Verb: store.Complete})
	e.endChild(t, second, store.Finish{Verb: store.Complete})
	e.wantWanted(t, "when it has ended", second, false)
	e.sweepLater(t)
	e.Want(t, store.Done, ids...)
	e.wantNoFamily(t)
	if n := e.Raw.HLen(t.Context(), e.Key(childInstance, "parents")).Val(); n != 0 {
		t.Errorf("of %d children it is still said that they have a parent", n)
	}
}

// A crash came between the record and the enqueue, and the parent did not wait: done leaves its children running, and they are to run.
func aChildThatWasNeverEnqueuedRunsThoughItsParentIsDone(t *testing.T, e *Env) {
	for what, keep := range map[string]store.Retention{"kept": e.Terms().Done, "not kept": {}} {
		terms := e.Terms()
		terms.Done = keep
		l := e.hold(t)
		id := e.forsake(t, l, nil, "thumb")[0]
		e.Exchange(t, terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Complete}}})
		e.reap(t, terms)
		e.sweepLater(t)
		j, err := e.Store.Get(t.Context(), id)
		if err != nil || j.State != store.Todo {
			t.Fatalf("with a parent that is %s the child is %s, %v; want it todo", what, j.State, err)
		}
		k := e.claimChildren(t, 1)[0]
		e.wantWanted(t, "with its parent "+what, k, true)
		e.endChild(t, k, store.Finish{Verb: store.Complete})
		e.sweepLater(t)
		e.reap(t, terms)
		if keep == (store.Retention{}) {
			e.WantGone(t, l.Job.ID)
		}
		e.wantNoFamily(t)
		if t.Failed() {
			t.Fatalf("with a parent that is %s", what)
		}
	}
}

func aParentThatIsDoneWantsNoChildTwice(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "a", "b")
	kids := map[string]*store.Lease{}
	for _, k := range e.claimChildren(t, 2) {
		kids[k.Job.Parent.Step] = k
	}
	e.finishChild(t, kids["a"], store.Finish{Verb: store.Bury})
	e.end(t, l, store.Complete)
	for name, want := range map[string]bool{"a": false, "b": true} {
		e.wantWanted(t, name, kids[name], want)
	}
}

// A parent that is done and removed has let its children go. One that ends before a sweeper has seen to that, and is removed as well, is
// gone without a trace; who dispatched it, and was held up, may enqueue it just then.
func aChildOfAParentThatIsGoneRunsOnce(t *testing.T, e *Env) {
	l := e.hold(t)
	w := child(l, "thumb")
	e.commit(t, l, w)
	e.EnqueueTo(t, childInstance, w.Child)
	e.end(t, l, store.Complete)
	must(t, e.Store.Delete(t.Context(), l.Job.ID))
	e.finishChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete, Result: []byte(`1`)})
	late := func(when string) {
		t.Helper()
		must(t, e.Store.Delete(t.Context(), w.Child.ID))
		must(t, errOf(e.Runtime.Enqueue(t.Context(), new(store.Lane), childInstance, []store.NewJob{w.Child})))
		for _, again := range e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(1)}).Leases {
			e.wantWanted(t, "ended, and enqueued late "+when, again, false)
			e.endChild(t, again, store.Finish{Verb: store.Cancel})
		}
	}
	late("before a sweep")
	e.sweepLater(t)
	e.sweepLater(t)
	if _, err := e.Store.Get(t.Context(), w.Child.ID); errors.Is(err, store.ErrNotFound) {
		e.EnqueueTo(t, childInstance, w.Child)
	}
	late("after a sweep")
	e.sweepLater(t)
	e.sweepLater(t)
	e.wantNoFamily(t)
}

// There are more of them than are looked at in one sweep, and they are due to be looked at when their parent ends.
func allChildrenOfAParentThatIsGoneAreSeenTo(t *testing.T, e *Env) {
	const n = 700
	for what, end := range map[string]func(l *store.Lease){
		"done": func(l *store.Lease) {
			e.end(t, l, store.Complete)
			must(t, e.Store.Delete(t.Context(), l.Job.ID))
		},
		"dead, and requeued": func(l *store.Lease) {
			e.end(t, l, store.Bury)
			must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.Fresh))
			e.end(t, e.claimOne(t), store.Complete)
		},
		"dead, and enqueued again with children of the same names": func(l *store.Lease) {
			e.end(t, l, store.Bury)
			e.spawn(t, e.again(t, l.Job.ID), nil, stepsOf(n)...)
		},
	} {
		l := e.hold(t)
		e.spawn(t, l, nil, stepsOf(n)...)
		e.Later(t, 11*time.Second)
		end(l)
		for range 20 {
			e.sweep(t, instance)
		}
		if what == "done" {
			for _, k := range e.claimChildren(t, n) {
				e.wantWanted(t, k.Job.Parent.Step, k, true)
			}
		} else if page, err := e.Store.List(t.Context(), store.Filter{Instance: childInstance, State: store.Cancelled, Limit: store.MaxCall}); err != nil ||
			len(page.Jobs) != n {
			t.Errorf("with a parent that is %s, %d children of %d are cancelled, %v", what, len(page.Jobs), n, err)
		}
		must(t, e.Store.DeleteInstance(t.Context(), instance, true))
		must(t, e.Store.DeleteInstance(t.Context(), childInstance, true))
	}
}

func aCancelReachesTheChildrenThoughNobodyServesTheirParent(t *testing.T, e *Env) {
	for what, end := range map[string]func(id uuid.UUID) error{
		"cancel":        func(id uuid.UUID) error { return e.Store.Cancel(t.Context(), id) },
		"delete":        func(id uuid.UUID) error { return e.Store.Delete(t.Context(), id) },
		"cancel of all": func(uuid.UUID) error { return errOf(e.Store.CancelAll(t.Context(), store.Filter{Instance: instance})) },
	} {
		l := e.hold(t)
		ids := e.spawn(t, l, nil, stepsOf(250)...)
		e.parkFor(t, l, stepsOf(250)...)
		must(t, end(l.Job.ID))
		for _, id := range ids {
			if j := e.Job(t, id); j.State != store.Cancelled {
				t.Fatalf("after a %s a child is %s", what, j.State)
			}
		}
	}
}
