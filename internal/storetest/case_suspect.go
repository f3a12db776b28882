package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A poison job does not take its neighbours with it.
func suspectCases() []Case {
	return named(aJobOneCrashShortIsSuspect, aProcessRunsOneSuspectAtATime, aSuspectsEndMakesRoomForTheNext, aSuspectThatCrashesAgainIsDead,
		suspectsAndOthersAreClaimedInOrder, aSuspectLeftBehindIsLookedForAgain, aSuspectIsTodoToEverybody, aRepeatedClaimOfASuspectIsTheSame,
		oneCrashAllowedMakesNoSuspect, suspectsAreLeftToALaterRequestAndTold,
		theEndOfAnotherLeaseMakesNoRoom)
}

// suspected returns n jobs that are suspects.
func (e *Env) suspected(t *testing.T, n int, j ...store.NewJob) []uuid.UUID {
	t.Helper()
	ids := e.Enqueue(t, append(make([]store.NewJob, n), j...)...)
	for range e.Terms().MaxCrashes - 1 {
		if got := len(e.Claim(t, len(ids))); got != len(ids) {
			t.Fatalf("claimed %d jobs, want %d", got, len(ids))
		}
		e.Later(t, lease+time.Second)
		e.Reap(t)
	}
	for _, id := range ids {
		if !e.isSuspect(t, id) {
			t.Fatalf("a job after %d crashes is no suspect", e.Job(t, id).Crashes)
		}
	}
	return ids
}

func (e *Env) isSuspect(t *testing.T, id uuid.UUID) bool {
	t.Helper()
	return e.Raw.ZScore(t.Context(), e.Key(instance, "suspects"), string(id[:])).Err() == nil
}

func aJobOneCrashShortIsSuspect(t *testing.T, e *Env) {
	id := e.one(t)
	for n, want := range []bool{false, true} {
		_, m := e.crash(t)
		if len(m.Reaped) != 1 || m.Reaped[0].State != store.Todo || m.Reaped[0].Crashes != n+1 || m.Missing != 0 {
			t.Errorf("crash %d: %+v", n+1, m)
		}
		if j := e.Job(t, id); j.State != store.Todo || j.Attempt != 0 || e.isSuspect(t, id) != want {
			t.Errorf("after crash %d it is %s, suspect: %v", n+1, j.State, !want)
		}
	}
}

func aProcessRunsOneSuspectAtATime(t *testing.T, e *Env) {
	ids := e.suspected(t, 3)
	good := e.Add(t, 4)
	one, two := e.Terms(), e.Terms()
	two.Process = uuid.New()
	out := e.take(t, "the first process", one, 10, 5)
	if out.Next >= 0 {
		t.Errorf("what it may not run is left, and the next look is after %v, want never", out.Next)
	}
	got := jobIDs(out.Leases)
	for _, id := range append(good, ids[0]) {
		if !slices.Contains(got, id) {
			t.Errorf("job %s was not claimed", id)
		}
	}
	e.take(t, "the same process", one, 10, 0)
	wantIDs(t, "another process", jobIDs(e.take(t, "another process", two, 10, 1).Leases), ids[1:2])
	e.take(t, "that one again", two, 10, 0)
	more := e.Add(t, 2)
	wantIDs(t, "neighbours", jobIDs(e.take(t, "neighbours go on", one, 10, 2).Leases), more)
}

func aSuspectsEndMakesRoomForTheNext(t *testing.T, e *Env) {
	for _, verb := range []store.Verb{store.Complete, store.Bury, store.Release, store.Retry, store.Snooze, store.Cancel} {
		for _, atOnce := range []bool{true, false} { // in the call that ends it, or in a later one
			ids := e.suspected(t, 3)
			l := e.claimOne(t)
			wantIDs(t, "the first", jobIDs([]*store.Lease{l}), ids[:1])
			x := store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: verb, Delay: time.Hour}}}
			if atOnce {
				x.Claims = append(workers(2), l.Worker())
			}
			got := e.Exchange(t, e.Terms(), x).Leases
			if j := e.Job(t, l.Job.ID); j.Crashes != 0 && verb != store.Release {
				t.Errorf("after %q it has %d crashes", verb, j.Crashes)
			}
			if e.isSuspect(t, ids[0]) {
				t.Errorf("after %q it is suspect still", verb)
			}
			if !atOnce {
				got = e.Claim(t, 3)
			}
			if !slices.Contains(jobIDs(got), ids[1]) {
				t.Errorf("after %q (at once: %v) the next was not claimed", verb, atOnce)
			}
			for _, l := range e.Claim(t, 3) {
				if l.Job.ID == ids[2] {
					t.Errorf("after %q (at once: %v) two are run", verb, atOnce)
				}
			}
			must(t, e.Store.DeleteInstance(t.Context(), instance, true))
		}
	}
}

func aSuspectThatCrashesAgainIsDead(t *testing.T, e *Env) {
	ids := e.suspected(t, 2)
	e.claimOne(t)
	e.Later(t, lease+time.Second)
	m := e.Reap(t)
	if len(m.Reaped) != 1 || m.Reaped[0].State != store.Dead || m.Missing != 0 {
		t.Errorf("reaped %+v", m)
	}
	e.Want(t, store.Dead, ids[0])
	if n := e.Raw.HLen(t.Context(), e.Key(instance, "probes")).Val(); n != 0 {
		t.Errorf("%d probes are left", n)
	}
	wantIDs(t, "the next", jobIDs(e.Claim(t, 3)), ids[1:])
}

func suspectsAndOthersAreClaimedInOrder(t *testing.T, e *Env) {
	ids := e.suspected(t, 1, store.NewJob{Priority: 7})
	first := e.Enqueue(t, store.NewJob{Priority: 9})[0]
	last := e.Enqueue(t, store.NewJob{Priority: 3})[0]
	same := e.Enqueue(t, store.NewJob{Priority: 7})[0]
	var got []uuid.UUID
	for left := 4; left >= 0; left-- { // a worker at a time, each job done before the next
		out := e.take(t, "the next", e.Terms(), 1, 1)
		if (out.Next == 0) != (left > 0) {
			t.Errorf("with %d left the next look is after %v", left, out.Next)
		}
		l := out.Leases[0]
		got = append(got, l.Job.ID)
		e.end(t, l, store.Complete)
	}
	wantIDs(t, "claimed", got, []uuid.UUID{first, ids[1], same, ids[0], last})
}

// Whoever could run it must not wait for the next poll to find it.
func aSuspectLeftBehindIsLookedForAgain(t *testing.T, e *Env) {
	ids := e.suspected(t, 2)
	e.Enqueue(t, store.NewJob{Priority: 9})
	out := e.take(t, "a better one", e.Terms(), 1, 1)
	if out.Next != 0 {
		t.Errorf("a suspect is left, and the next look is after %v; want at once", out.Next)
	}
	l := e.claimOne(t)
	wantIDs(t, "the first suspect", jobIDs([]*store.Lease{l}), ids[:1])
	if out := e.take(t, "busy", e.Terms(), 3, 0); out.Next >= 0 {
		t.Errorf("a process that runs one looks again after %v, want never", out.Next)
	}
	all := e.listeners(t, 1)
	terms := e.Terms()
	terms.Process = all[0].process
	held := e.take(t, "the other process", terms, 1, 1).Leases[0]
	e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true})
	e.Finish(t, store.Finish{Verb: store.Release}, l) // todo now, and not suspect
	e.wantWoken(t, "a suspect that was given back", all, 0)
	e.Finish(t, store.Finish{Verb: store.Complete}, held)
}

func aSuspectIsTodoToEverybody(t *testing.T, e *Env) {
	ctx := t.Context()
	ids := e.suspected(t, 4)
	if s := e.Stats(t); s.Todo != 4 || s.Total != 4 {
		t.Errorf("stats are %+v", s)
	}
	wantIDs(t, "listed", e.Listed(t, store.Todo), ids)
	must(t, e.Store.Pause(ctx, instance))
	e.take(t, "paused", e.Terms(), 3, 0)
	must(t, e.Store.Resume(ctx, instance))
	must(t, e.Store.Delete(ctx, ids[0]))
	e.WantGone(t, ids[0])
	must(t, e.Store.Cancel(ctx, ids[1]))
	e.Want(t, store.Cancelled, ids[1])
	wantErr(t, "requeue", e.Store.Requeue(ctx, ids[2], store.RequeueMode{}), store.ErrState)
	n, err := e.Store.Purge(ctx, store.Filter{State: store.Todo})
	if n != 2 || err != nil {
		t.Errorf("purged %d, %v; want 2", n, err)
	}
	must(t, e.Store.Requeue(ctx, ids[1], store.RequeueMode{}))
	if l := e.claimOne(t); l.Job.Crashes != 0 || e.isSuspect(t, ids[1]) {
		t.Errorf("requeued it has %d crashes", l.Job.Crashes)
	}
}

func aRepeatedClaimOfASuspectIsTheSame(t *testing.T, e *Env) {
	ids := e.suspected(t, 2)
	w := workers(2)
	for range 3 {
		got := e.Exchange(t, e.Terms(), store.Exchange{Claims: w}).Leases
		wantIDs(t, "claimed", jobIDs(got), ids[:1])
	}
}

func oneCrashAllowedMakesNoSuspect(t *testing.T, e *Env) {
	terms := e.Terms()
	for limit, want := range map[int]store.State{1: store.Dead, 2: store.Todo} {
		terms.MaxCrashes = limit
		id := e.one(t)
		e.claimOne(t)
		e.Later(t, lease+time.Second)
		e.reap(t, terms)
		e.Want(t, want, id)
		if got := e.isSuspect(t, id); got != (want == store.Todo) {
			t.Errorf("with %d crashes allowed it is suspect: %v", limit, got)
		}
		must(t, e.Store.Delete(t.Context(), id))
	}
}

// A process that runs one of another instance asks for none, and has to know that there are some.
func suspectsAreLeftToALaterRequestAndTold(t *testing.T, e *Env) {
	want := func(what string, out store.Exchanged, jobs int, told bool) {
		t.Helper()
		if len(out.Leases) != jobs || out.Suspects != told || out.Next == 0 {
			t.Errorf("%s: %d jobs, suspects %v, the next look after %v; want %d, %v, no look at once",
				what, len(out.Leases), out.Suspects, out.Next, jobs, told)
		}
	}
	calm := func(n int) store.Exchange { return store.Exchange{Claims: workers(n), NoSuspects: true} }
	want("with none", e.Exchange(t, e.Terms(), calm(1)), 0, false)
	ids := e.suspected(t, 2)
	e.one(t)
	want("with two", e.Exchange(t, e.Terms(), calm(3)), 1, true)
	must(t, e.Store.Pause(t.Context(), instance))
	want("paused", e.Exchange(t, e.Terms(), calm(3)), 0, false)
	must(t, e.Store.Resume(t.Context(), instance))
	out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(3)})
	want("with leave", out, 1, false)
	wantIDs(t, "claimed", jobIDs(out.Leases), ids[:1])
	want("while it runs", e.Exchange(t, e.Terms(), calm(3)), 0, false)
	x := calm(3)
	x.Finishes = []store.Finish{{Lease: out.Leases[0], Verb: store.Complete}}
	want("with its end", e.Exchange(t, e.Terms(), x), 0, true)
	e.Want(t, store.Todo, ids[1])
}

// A process that was frozen loses one lease before it can extend the other.
func theEndOfAnotherLeaseMakesNoRoom(t *testing.T, e *Env) {
	ids := e.suspected(t, 2)
	runs := e.claimOne(t)
	wantIDs(t, "claimed", []uuid.UUID{runs.Job.ID}, ids[:1])
	lost := e.one(t)
	e.claimOne(t)
	e.Later(t, lease/2)
	e.beat(t, store.Beat{Lease: runs})
	e.Later(t, lease/2+time.Second)
	if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].Job != lost {
		t.Fatalf("reaped %+v, want the other", m)
	}
	wantIDs(t, "while it runs one", jobIDs(e.take(t, "the same process", e.Terms(), 3, 1).Leases), []uuid.UUID{lost})
}
