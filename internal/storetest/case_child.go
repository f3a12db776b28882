package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A child's outcome reaches its parent, however it ends; and what becomes of a parent reaches its children.
func childCases() []Case {
	return named(everyEndOfAChildReachesItsParent, aChildsOutcomeIsKeptThoughTheChildIsNot, theFirstOutcomeStands, anOutcomeNobodyWantsChangesNothing,
		aParentsEndCancelsItsChildren, aParentThatIsDoneLetsItsChildrenGo, aChildThatWasNeverEnqueuedRunsThoughItsParentIsDone, aParentThatIsDoneWantsNoChildTwice, aChildOfAParentThatIsGoneRunsOnce,
		allChildrenOfAParentThatIsGoneAreSeenTo,
		aChildIsWantedWhileItsParentWaits,
		aCancelReachesTheChildrenThoughNobodyServesTheirParent, anOutcomeThatDoesNotFitIsAFailure)
}

func everyEndOfAChildReachesItsParent(t *testing.T, e *Env) {
	reap := func() {
		if _, err := e.Runtime.Reap(t.Context(), e.childTerms()); err != nil {
			t.Fatal(err)
		}
	}
	one := func() *store.Lease { return e.claimChildren(t, 1)[0] }
	const worker, caller, sweeper = "worker", "caller", "sweeper"
	for what, c := range map[string]struct {
		end  func(id uuid.UUID)
		fate store.Fate
		told string // who tells its parent: its worker, who ends it, or the next sweep
	}{
		"completed":                {func(uuid.UUID) { e.endChild(t, one(), store.Finish{Verb: store.Complete, Result: []byte(`7`)}) }, store.FateDone, worker},
		"buried":                   {func(uuid.UUID) { e.endChild(t, one(), store.Finish{Verb: store.Bury, Error: "no ink"}) }, store.FateDead, worker},
		"cancelled while it waits": {func(id uuid.UUID) { e.cancel(t, id) }, store.FateCancelled, caller},
		"cancelled while doing": {func(id uuid.UUID) {
			l := one()
			e.cancel(t, id)
			e.endChild(t, l, store.Finish{Verb: store.Retry, Error: "stopped"})
		}, store.FateCancelled, worker},
		"deleted while it waits": {func(id uuid.UUID) { must(t, e.Store.Delete(t.Context(), id)) }, store.FateGone, caller},
		"crashed too often": {func(uuid.UUID) {
			for range 3 {
				one()
				e.Later(t, lease+time.Second)
				reap()
			}
		}, store.FateDead, sweeper},
		"past its deadline": {func(uuid.UUID) { e.Later(t, 2*time.Hour); reap() }, store.FateDead, sweeper},
		"past its deadline when it is claimed": {func(uuid.UUID) {
			e.Later(t, 2*time.Hour)
			e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(1)})
		}, store.FateDead, sweeper},
		"cancelled, then crashed": {func(id uuid.UUID) {
			one()
			e.cancel(t, id)
			e.Later(t, lease+time.Second)
			reap()
		}, store.FateCancelled, sweeper},
		"quarantined": {func(id uuid.UUID) {
			e.put(t, "HSET", e.Key(childInstance, "jobs"), id[:], "9 of another version")
			e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(1)})
		}, store.FateDead, sweeper},
		"cancelled with all": {func(uuid.UUID) {
			if _, err := e.Store.CancelAll(t.Context(), store.Filter{Instance: childInstance}); err != nil {
				t.Fatal(err)
			}
		}, store.FateCancelled, caller},
		"purged": {func(uuid.UUID) {
			if _, err := e.Store.Purge(t.Context(), store.Filter{Instance: childInstance, State: store.Todo}); err != nil {
				t.Fatal(err)
			}
		}, store.FateGone, caller},
	} {
		func() {
			l := e.hold(t)
			ids := e.spawn(t, l, func(n *store.NewJob) { n.Deadline = e.Now(t).Add(90 * time.Minute) }, "thumb")
			e.parkFor(t, l, "thumb")
			c.end(ids[0])
			switch c.told {
			case sweeper:
				if m, err := e.Runtime.Reap(t.Context(), e.childTerms()); err != nil || m.Sweep != 0 {
					t.Errorf("the next sweep is due in %v, %v; want at once", m.Sweep, err)
				}
				e.Want(t, store.Parked, l.Job.ID)
				e.sweep(t, childInstance)
			case worker:
				e.Want(t, store.Parked, l.Job.ID)
				e.sweepLater(t)
			}
			e.Want(t, store.Todo, l.Job.ID)
			s := e.step(t, l.Job.ID, "thumb")
			if s.Fate != c.fate || (s.State == store.StepCompleted) != (c.fate == store.FateDone) {
				t.Errorf("the step is %+v, want fate %q", s, c.fate)
			}
			if n := e.Raw.HLen(t.Context(), e.Key(childInstance, "outbox")).Val(); n != 0 {
				t.Errorf("%d outcomes are left in the outbox", n)
			}
			e.Claim(t, 1)
			must(t, e.Store.DeleteInstance(t.Context(), instance, true))
			must(t, e.Store.DeleteInstance(t.Context(), childInstance, true))
			if t.Failed() {
				t.Fatalf("with a child that was %s", what)
			}
		}()
	}
}

func aChildsOutcomeIsKeptThoughTheChildIsNot(t *testing.T, e *Env) {
	nothing := e.childTerms()
	nothing.Done = store.Retention{}
	for i, remove := range []func(id uuid.UUID){
		func(uuid.UUID) {},
		func(id uuid.UUID) { must(t, e.Store.Delete(t.Context(), id)) },
	} {
		l := e.hold(t)
		id := e.spawn(t, l, nil, "thumb")[0]
		e.parkFor(t, l, "thumb")
		k := e.claimChildren(t, 1)[0]
		e.Exchange(t, nothing, store.Exchange{Finishes: []store.Finish{{Lease: k, Verb: store.Complete, Result: []byte(`7`)}}})
		if _, err := e.Runtime.Reap(t.Context(), nothing); err != nil {
			t.Fatal(err)
		}
		if j, err := e.Store.Get(t.Context(), id); err != nil || j.State != store.Done {
			t.Errorf("before its outcome was delivered the child is %q, %v; want it kept", j.State, err)
		}
		remove(id)
		e.sweepLater(t)
		e.wantStep(t, l.Job.ID, "thumb", store.StepCompleted, `7`, store.FateDone)
		if _, err := e.Runtime.Reap(t.Context(), nothing); err != nil {
			t.Fatal(err)
		}
		e.WantGone(t, id)
		if n := len(e.Claim(t, 1)); n != 1 {
			t.Errorf("case %d: claimed %d parents", i, n)
		}
	}
}

func theFirstOutcomeStands(t *testing.T, e *Env) {
	l := e.hold(t)
	id := e.spawn(t, l, nil, "thumb")[0]
	parent := child(l, "thumb").Child.Parent
	say := func(fate store.Fate, text string) {
		must(t, e.Runtime.Relay(t.Context(), []store.Outcome{{Child: id, Instance: childInstance, Parent: parent, Fate: fate, Text: text}}))
	}
	say(store.FateDone, `1`)
	say(store.FateDead, `no ink`)
	say(store.FateDone, `2`)
	e.wantStep(t, l.Job.ID, "thumb", store.StepCompleted, `1`, store.FateDone)
}

func anOutcomeNobodyWantsChangesNothing(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("local", `1`))
	id := e.spawn(t, l, nil, "thumb")[0]
	parent := child(l, "thumb").Child.Parent
	before := e.Kept(t)
	for _, o := range []store.Outcome{
		{Child: id, Parent: store.Parent{ID: uuid.New(), Instance: instance, Step: "thumb"}},
		{Child: uuid.New(), Parent: parent},
		{Child: id, Parent: store.Parent{ID: l.Job.ID, Instance: instance, Step: "local"}},
		{Child: id, Parent: store.Parent{ID: l.Job.ID, Instance: instance, Step: "none"}},
	} {
		o.Instance, o.Fate, o.Text = "nobody", store.FateDone, `9`
		must(t, e.Runtime.Relay(t.Context(), []store.Outcome{o}))
	}
	wantSame(t, "outcomes of nobody's children", before, e.Kept(t))
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
			if _, err := e.Runtime.Reap(t.Context(), terms); err != nil {
				t.Fatal(err)
			}
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
	if _, err := e.Runtime.Reap(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
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
		if _, err := e.Runtime.Reap(t.Context(), terms); err != nil {
			t.Fatal(err)
		}
		e.sweepLater(t)
		j, err := e.Store.Get(t.Context(), id)
		if err != nil || j.State != store.Todo {
			t.Fatalf("with a parent that is %s the child is %s, %v; want it todo", what, j.State, err)
		}
		k := e.claimChildren(t, 1)[0]
		e.wantWanted(t, "with its parent "+what, k, true)
		e.endChild(t, k, store.Finish{Verb: store.Complete})
		e.sweepLater(t)
		if _, err := e.Runtime.Reap(t.Context(), terms); err != nil {
			t.Fatal(err)
		}
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
		_, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), childInstance, []store.NewJob{w.Child})
		must(t, err)
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

func aChildIsWantedWhileItsParentWaits(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "a")
	k := e.claimChildren(t, 1)[0]
	e.wantWanted(t, "with its parent doing", k, true)
	e.parkFor(t, l, "a")
	e.wantWanted(t, "with its parent parked", k, true)
	must(t, e.Runtime.Relay(t.Context(), []store.Outcome{store.OutcomeOf(&k.Job, store.Done, []byte(`1`), "")}))
	e.wantWanted(t, "with an outcome", k, false)
	if k.Job.Parent.ID != l.Job.ID || k.Job.Parent.Step != "a" || k.Job.Parent.Instance != instance {
		t.Errorf("it says of its parent %+v", k.Job.Parent)
	}
}

func aCancelReachesTheChildrenThoughNobodyServesTheirParent(t *testing.T, e *Env) {
	for what, end := range map[string]func(id uuid.UUID) error{
		"cancel": func(id uuid.UUID) error { return e.Store.Cancel(t.Context(), id) },
		"delete": func(id uuid.UUID) error { return e.Store.Delete(t.Context(), id) },
		"cancel of all": func(uuid.UUID) error {
			_, err := e.Store.CancelAll(t.Context(), store.Filter{Instance: instance})
			return err
		},
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

func anOutcomeThatDoesNotFitIsAFailure(t *testing.T, e *Env) {
	l := e.hold(t)
	w := child(l, "thumb")
	if _, err := e.Runtime.Commit(t.Context(), l, store.StepLimits{Count: 10, Bytes: 2000}, w); err != nil {
		t.Fatal(err)
	}
	big := fmt.Sprintf(`"%3000d"`, 1)
	must(t, e.Runtime.Relay(t.Context(), []store.Outcome{{Child: w.Child.ID, Instance: childInstance, Parent: w.Child.Parent, Fate: store.FateDone, Text: big}}))
	e.wantStep(t, l.Job.ID, "thumb", store.StepFailed, "", store.FateTooBig)
}
