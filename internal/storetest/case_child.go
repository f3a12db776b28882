package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A child's outcome reaches its parent, however it ends.
func childCases() []Case {
	return named(everyEndOfAChildReachesItsParent, aChildsOutcomeIsKeptThoughTheChildIsNot, theFirstOutcomeStands,
		anOutcomeNobodyWantsChangesNothing, anOutcomeThatDoesNotFitIsAFailure, aChildIsWantedWhileItsParentWaits)
}

func everyEndOfAChildReachesItsParent(t *testing.T, e *Env) {
	reap := func() { e.reap(t, e.childTerms()) }
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
				if m := e.reap(t, e.childTerms()); m.Sweep != 0 {
					t.Errorf("the next sweep is due in %v, want at once", m.Sweep)
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
		e.reap(t, nothing)
		if j, err := e.Store.Get(t.Context(), id); err != nil || j.State != store.Done {
			t.Errorf("before its outcome was delivered the child is %q, %v; want it kept", j.State, err)
		}
		remove(id)
		e.sweepLater(t)
		e.wantStep(t, l.Job.ID, "thumb", store.StepCompleted, `7`, store.FateDone)
		e.reap(t, nothing)
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
