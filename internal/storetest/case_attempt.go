package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// What an attempt costs, and what a crash.
func attemptCases() []Case {
	return named(anAttemptIsChargedAtClaimAndRefunded, aReapRefundsTheAttemptAndCountsACrash, anyFinishResetsTheCrashes,
		aJobThatCrashesTooOftenIsDeadWithItsReason, crashesShowInTheNextClaim)
}

func anAttemptIsChargedAtClaimAndRefunded(t *testing.T, e *Env) {
	for _, c := range []struct {
		verb store.Verb
		want int
	}{
		{store.Complete, 3}, {store.Bury, 3}, {store.Cancel, 3}, {store.Retry, 3}, {store.Snooze, 2}, {store.Release, 2},
	} {
		id := e.one(t)
		for range 2 {
			e.end(t, e.claimOne(t), store.Retry)
		}
		l := e.claimOne(t)
		if l.Job.Attempt != 3 || e.Job(t, id).Attempt != 3 {
			t.Errorf("attempt %d in the lease, %d in the store; want 3", l.Job.Attempt, e.Job(t, id).Attempt)
		}
		e.end(t, l, c.verb)
		if got := e.Job(t, id).Attempt; got != c.want {
			t.Errorf("after %q attempt %d is charged, want %d", c.verb, got, c.want)
		}
		if !e.Job(t, id).State.Terminal() {
			if got := e.claimOne(t).Job.Attempt; got != c.want+1 {
				t.Errorf("claimed after %q it is attempt %d, want %d", c.verb, got, c.want+1)
			}
		}
	}
}

// crash claims the next job and lets its lease run out.
func (e *Env) crash(t *testing.T) (*store.Lease, store.Maintained) {
	t.Helper()
	l := e.claimOne(t)
	e.Later(t, lease+time.Millisecond)
	return l, e.Reap(t)
}

func aReapRefundsTheAttemptAndCountsACrash(t *testing.T, e *Env) {
	id := e.one(t)
	for n := 1; n <= 2; n++ {
		l, m := e.crash(t)
		want := store.Reaped{Job: id, Worker: l.Worker(), Crashes: n, State: store.Todo}
		if len(m.Reaped) != 1 || m.Reaped[0] != want {
			t.Fatalf("reaped %+v, want %+v", m.Reaped, want)
		}
		if j := e.Job(t, id); j.Attempt != 0 || j.Crashes != n || j.State != store.Todo {
			t.Errorf("after crash %d: attempt %d, crashes %d, %s; want 0, %d, todo", n, j.Attempt, j.Crashes, j.State, n)
		}
	}
}

func anyFinishResetsTheCrashes(t *testing.T, e *Env) {
	for _, v := range []store.Verb{store.Complete, store.Bury, store.Cancel, store.Retry, store.Snooze, store.Release} {
		id := e.one(t)
		e.crash(t)
		e.crash(t)
		e.end(t, e.claimOne(t), v)
		j := e.Job(t, id)
		if j.Crashes != 0 {
			t.Errorf("after %q there are %d crashes in a row, want 0", v, j.Crashes)
		}
		if !j.State.Terminal() {
			must(t, e.Store.Delete(t.Context(), id))
		}
	}
}

func aJobThatCrashesTooOftenIsDeadWithItsReason(t *testing.T, e *Env) {
	id, other := e.one(t), e.Enqueue(t, store.NewJob{Delay: time.Hour})[0]
	e.crash(t)
	e.crash(t)
	_, m := e.crash(t)
	if len(m.Reaped) != 1 || m.Reaped[0].State != store.Dead || m.Reaped[0].Crashes != 3 {
		t.Errorf("reaped %+v, want the job dead at its third crash", m.Reaped)
	}
	j := e.Job(t, id)
	if j.State != store.Dead || j.Crashes != 3 || !strings.Contains(j.LastError, "crashed 3 times") {
		t.Errorf("job is %s after %d crashes, %q; want dead with its reason", j.State, j.Crashes, j.LastError)
	}
	if j.FinishedAt.IsZero() {
		t.Error("a dead job without the time of its end")
	}
	e.Want(t, store.Scheduled, other)
	must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
	if j := e.Job(t, id); j.Crashes != 0 || j.Attempt != 0 || j.LastError != "" {
		t.Errorf("requeued: crashes %d, attempt %d, error %q; want none", j.Crashes, j.Attempt, j.LastError)
	}

	must(t, e.Store.Delete(t.Context(), id))
	once := e.one(t)
	e.claimOne(t)
	e.Later(t, lease+time.Millisecond)
	terms := e.Terms()
	terms.MaxCrashes = 1
	e.reap(t, terms)
	e.Want(t, store.Dead, once)
}

func crashesShowInTheNextClaim(t *testing.T, e *Env) {
	e.one(t)
	e.crash(t)
	if l := e.claimOne(t); l.Job.Crashes != 1 || l.Job.Attempt != 1 {
		t.Errorf("claimed with %d crashes at attempt %d, want 1 and 1", l.Job.Crashes, l.Job.Attempt)
	}
}
