package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// Who changes a job tells its family at once, as far as that goes.
func untoldCases() []Case {
	return named(whoCanNotTellTheFamilySaysSo, aCancelAmidMuchElseReachesItsChildren, aCancelLooksAfterNoOtherFamily,
		childrenThatCanNotBeToldStandBeforeNoOthers, onlyDispatchesThatWereMadeAreCounted)
}

func whoCanNotTellTheFamilySaysSo(t *testing.T, e *Env) {
	family := func(to string) (*store.Lease, []uuid.UUID) {
		l := e.hold(t)
		w := child(l, "a")
		w.Instance = to
		e.commit(t, l, w)
		e.parkFor(t, l, "a")
		return l, e.EnqueueTo(t, to, w.Child)
	}
	l, ids := family(childInstance)
	second, others := family(otherInstance)
	foreign := e.Key(childInstance, "deadlines")
	e.put(t, "SET", foreign, "somebody else's")
	err := e.Store.Cancel(t.Context(), l.Job.ID)
	wantErr(t, "a cancel that does not reach the children", err, store.ErrUntold)
	wantErr(t, "a cancel that does not reach the children", err, store.ErrServer)
	e.Want(t, store.Cancelled, l.Job.ID)
	e.put(t, "DEL", foreign)
	e.Later(t, 11*time.Second)
	e.put(t, "SET", foreign, "somebody else's")
	must(t, e.Store.Cancel(t.Context(), second.Job.ID)) // has nothing to do with it
	e.Want(t, store.Cancelled, others...)
	e.put(t, "DEL", foreign)

	third, more := family(childInstance)
	e.put(t, "SET", e.Key(instance, "deadlines"), "somebody else's")
	wantErr(t, "a cancel of a child that does not reach its parent", e.Store.Cancel(t.Context(), more[0]), store.ErrUntold)
	e.put(t, "DEL", e.Key(instance, "deadlines"))
	e.Want(t, store.Cancelled, more...)
	e.sweepLater(t)
	e.Want(t, store.Cancelled, ids...)
	e.Want(t, store.Todo, third.Job.ID)

	n, err := e.Store.Purge(t.Context(), store.Filter{Instance: instance})
	if n != 2 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

func aCancelAmidMuchElseReachesItsChildren(t *testing.T, e *Env) {
	l := e.hold(t)
	ids := e.spawn(t, l, nil, "a")
	e.parkFor(t, l, "a")
	for i := range 40 {
		args := []any{"ZADD", e.Key(instance, "chores")}
		for k := range 500 {
			args = append(args, 1, fmt.Sprint("zz", 500*i+k))
		}
		e.put(t, args...)
	}
	spy := e.spy()
	must(t, e.Store.Cancel(t.Context(), l.Job.ID))
	if spy.scripts > 10 {
		t.Errorf("it made %d calls", spy.scripts)
	}
	e.Want(t, store.Cancelled, append(ids, l.Job.ID)...)
	for range 200 { // as maintenance goes on
		if e.sweep(t, instance).Next != 0 {
			break
		}
	}
	e.sweepLater(t)
	e.wantNoFamily(t)
}

// What is due of others is the sweeper's, which tells what it does: who cancels has no events, and waits for no server but those of its family.
func aCancelLooksAfterNoOtherFamily(t *testing.T, e *Env) {
	l, asleep := e.hold(t), e.hold(t)
	lost := e.forsake(t, l, nil, "thumb")[0]
	e.parkFor(t, l, "thumb")
	e.sleepFor(t, asleep, "nap", time.Second)
	e.Later(t, 11*time.Second)
	other := e.hold(t)
	ids := e.spawn(t, other, nil, "a")
	e.parkFor(t, other, "a")
	must(t, e.Store.Cancel(t.Context(), other.Job.ID))
	e.Want(t, store.Cancelled, ids...)
	e.Want(t, store.Parked, asleep.Job.ID)
	e.WantGone(t, lost)
	got := e.sweep(t, instance)
	wantIDs(t, "woken", got.Woken, []uuid.UUID{asleep.Job.ID})
	if len(got.Again) != 1 || got.Again[0].Child != lost {
		t.Errorf("swept: %+v", got)
	}
}

func childrenThatCanNotBeToldStandBeforeNoOthers(t *testing.T, e *Env) {
	l := e.hold(t)
	var writes []store.StepWrite
	for _, name := range stepsOf(250) {
		writes = append(writes, child(l, name))
	}
	last := child(l, "last")
	last.Instance, last.Child.ID = "other", uuid.Max
	e.commit(t, l, append(writes, last)...)
	e.EnqueueTo(t, "other", last.Child)
	e.parkFor(t, l, "last")
	foreign := e.Key(childInstance, "deadlines")
	e.put(t, "SET", foreign, "somebody else's")
	wantErr(t, "a cancel that does not reach all", e.Store.Cancel(t.Context(), l.Job.ID), store.ErrUntold)
	for range 40 { // each begins elsewhere
		if e.Job(t, last.Child.ID).State == store.Cancelled {
			break
		}
		must(t, errOf(e.Runtime.Sweep(t.Context(), instance)))
	}
	e.Want(t, store.Cancelled, last.Child.ID)
	e.put(t, "DEL", foreign)
}

func onlyDispatchesThatWereMadeAreCounted(t *testing.T, e *Env) {
	l := e.hold(t)
	id := e.forsake(t, l, nil, "thumb")[0]
	e.parkFor(t, l, "thumb")
	e.EnqueueTo(t, childInstance) // so that the instance is known
	for range 2 * store.MaxSweeps {
		failed := e.Fault.FailNth(1, redistest.Mentions(e.Key(childInstance, "lane:")))
		e.Later(t, 11*time.Minute)
		got, err := e.Runtime.Sweep(t.Context(), instance)
		if err != nil || got.Err == nil || len(got.Again)+len(got.Lost) != 0 {
			t.Fatalf("the dispatch failed, and the sweep says %+v, %v", got, err)
		}
		select {
		case <-failed:
		default:
			t.Fatal("nothing was dispatched")
		}
	}
	e.Later(t, 11*time.Minute)
	if got := e.sweep(t, instance); len(got.Again) != 1 || got.Again[0].Sweeps != 1 || got.Again[0].Child != id {
		t.Errorf("when it works again: %+v", got)
	}
	e.Want(t, store.Todo, id)
	if s := e.step(t, l.Job.ID, "thumb"); s.Sweeps != 1 || s.State != store.StepDispatched {
		t.Errorf("the step is %+v", s)
	}
	e.finishChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete})
	e.Want(t, store.Todo, l.Job.ID)
}
