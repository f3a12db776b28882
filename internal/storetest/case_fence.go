package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What a lease-holder writes is fenced by its token. People report of systems like this: a stale worker acks, writes a result, is
// "rescued" over a finished job; a crash between claim and start loses the job, which runs again when it was completed.
func fenceCases() []Case {
	return named(aStaleWorkerChangesNothing, aStaleLeaseOfTheSameWorkerChangesNothing, aStaleWorkerChangesNothingOfAnEndedJob,
		aFinishAfterTheDeadlineCountsUnlessReaped, aJobThatWasReapedRunsAgainOnce)
}

var allVerbs = []store.Verb{store.Complete, store.Retry, store.Snooze, store.Release, store.Bury, store.Cancel}

// wantFenced tries all that a holder may write and fails the test if any of it is accepted or leaves a trace.
func (e *Env) wantFenced(t *testing.T, l *store.Lease) {
	t.Helper()
	before := e.Kept(t)
	for _, v := range allVerbs {
		f := store.Finish{Verb: v, Error: "stale", Result: []byte(`"stale"`), Progress: []byte(`"stale"`), Delay: time.Second}
		if got := e.Finish(t, f, l)[0]; got != "" {
			t.Errorf("a stale %q led to %s", v, got)
		}
	}
	verdicts, found, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), []store.Beat{{Lease: l, Progress: []byte(`"stale"`)}}, nil)
	if err != nil || verdicts[0] != store.Lost || len(found) != 0 {
		t.Errorf("a stale heartbeat got %v, %v, %v; want lost", verdicts, found, err)
	}
	wantSame(t, "a stale worker", before, e.Kept(t))
}

func aStaleWorkerChangesNothing(t *testing.T, e *Env) {
	stale := e.hold(t)
	e.Later(t, lease+time.Millisecond)
	e.Reap(t)
	e.wantFenced(t, stale) // while todo
	l := e.claimOne(t)
	if l.Job.ID != stale.Job.ID {
		t.Fatal("claimed another job")
	}
	e.wantFenced(t, stale) // while doing by another
	if got := e.Finish(t, store.Finish{Verb: store.Complete, Result: []byte(`"good"`)}, l)[0]; got != store.Done {
		t.Fatalf("the new holder's finish led to %q", got)
	}
	e.wantFenced(t, stale) // while done
	if j := e.Job(t, l.Job.ID); string(j.Result) != `"good"` || j.Worker != l.Worker() {
		t.Errorf("the result is %s by %s, want the holder's", j.Result, j.Worker)
	}
}

// The token is told apart from another of the same worker, job and attempt.
func aStaleLeaseOfTheSameWorkerChangesNothing(t *testing.T, e *Env) {
	e.one(t)
	worker := workers(1)
	claim := store.Exchange{Claims: worker}
	stale := e.Exchange(t, e.Terms(), claim).Leases[0]
	e.end(t, stale, store.Release)
	l := e.Exchange(t, e.Terms(), claim).Leases[0]
	if l.Job.ID != stale.Job.ID || l.Job.Attempt != stale.Job.Attempt {
		t.Fatalf("claimed %s at %d, want the same attempt of the same job", l.Job.ID, l.Job.Attempt)
	}
	e.wantFenced(t, stale)
	e.Later(t, lease+time.Millisecond)
	e.Reap(t)
	again := e.Exchange(t, e.Terms(), claim).Leases[0]
	e.wantFenced(t, stale)
	e.wantFenced(t, l)
	e.end(t, again, store.Complete)
}

func aStaleWorkerChangesNothingOfAnEndedJob(t *testing.T, e *Env) {
	for _, v := range []store.Verb{store.Complete, store.Bury, store.Cancel} {
		l := e.hold(t)
		e.end(t, l, v)
		e.Later(t, 10*lease)
		if m := e.Reap(t); len(m.Reaped) != 0 {
			t.Errorf("an ended job was reaped: %+v", m.Reaped)
		}
		e.wantFenced(t, l)
	}
}

func aFinishAfterTheDeadlineCountsUnlessReaped(t *testing.T, e *Env) {
	late := e.hold(t)
	e.Later(t, 10*lease)
	if got := e.Finish(t, store.Finish{Verb: store.Complete}, late)[0]; got != store.Done {
		t.Errorf("a late finish led to %q, want done", got)
	}
	beating := e.hold(t)
	e.Later(t, 10*lease)
	verdicts, _, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), []store.Beat{{Lease: beating}}, nil)
	if err != nil || verdicts[0] != store.Held {
		t.Errorf("a late heartbeat got %v, %v; want held", verdicts, err)
	}
	if m := e.Reap(t); len(m.Reaped) != 0 {
		t.Errorf("reaped %+v after the lease was extended", m.Reaped)
	}
	e.end(t, beating, store.Complete)
}

// A crash between the claim and the start loses nothing; completing after that leaves nothing queued.
func aJobThatWasReapedRunsAgainOnce(t *testing.T, e *Env) {
	id := e.one(t)
	e.crash(t)
	l := e.claimOne(t)
	wantIDs(t, "claimed again", []uuid.UUID{l.Job.ID}, []uuid.UUID{id})
	e.end(t, l, store.Complete)
	if got := e.drain(t); len(got) != 0 {
		t.Errorf("%d jobs are left to run", len(got))
	}
	e.Want(t, store.Done, id)
}
