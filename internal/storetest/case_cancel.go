package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A cancel is durable. People report of systems like this: a cancelled task is retried; a cancel by notification is lost.
func cancelCases() []Case {
	return named(aWaitingJobIsCancelledAtOnce, aDoingJobIsToldByNotification, aDoingJobIsToldByHeartbeatWhenNobodyListens,
		aCancelledJobThatCompletesIsDone, anyOtherFinishOfACancelledJobIsCancelled, aCancelledJobThatCrashesIsCancelled,
		aCancelIsOfOneLifeOnly, aCancelOfWhatIsNotThere)
}

func (e *Env) cancel(t *testing.T, id uuid.UUID) {
	t.Helper()
	if err := e.Store.Cancel(t.Context(), id); err != nil {
		t.Errorf("cancelling: %v", err)
	}
}

// park moves a job to where no operation puts it yet.
func (e *Env) park(t *testing.T, id uuid.UUID) {
	t.Helper()
	e.put(t, "ZREM", e.Key(instance, "todo"), id[:])
	e.put(t, "ZADD", e.Key(instance, "parked"), e.Now(t).UnixMilli(), id[:])
}

func aWaitingJobIsCancelledAtOnce(t *testing.T, e *Env) {
	ids := append(e.Add(t, 2), e.Enqueue(t, store.NewJob{Delay: time.Minute})[0])
	e.park(t, ids[1])
	before := e.Now(t)
	for _, id := range ids {
		e.cancel(t, id)
		if j := e.Job(t, id); j.State != store.Cancelled || j.FinishedAt.Before(before) {
			t.Errorf("it is %s since %v, want cancelled now", j.State, j.FinishedAt)
		}
		wantErr(t, "a second cancel", e.Store.Cancel(t.Context(), id), store.ErrTerminal)
	}
	e.Later(t, time.Hour)
	if n := len(e.Claim(t, 5)); n != 0 {
		t.Errorf("claimed %d jobs, want none", n)
	}
}

func aDoingJobIsToldByNotification(t *testing.T, e *Env) {
	l := e.hold(t)
	w := &waiter{e.Process, e.listen(t, e.Runtime.ProcessChannel(e.Process))}
	other := e.listeners(t, 1)
	e.cancel(t, l.Job.ID)
	e.Want(t, store.Doing, l.Job.ID)
	if got := e.messages(t, w); len(got) != 1 || got[0].Kind != store.CancelJob || got[0].Job != l.Job.ID {
		t.Errorf("the process was told %+v, want the cancel", got)
	}
	e.wantWoken(t, "another process", other)
}

func aDoingJobIsToldByHeartbeatWhenNobodyListens(t *testing.T, e *Env) {
	l := e.hold(t)
	if got := e.beat(t, store.Beat{Lease: l}); got[0] != store.Held {
		t.Errorf("before the cancel a heartbeat got %v", got)
	}
	e.cancel(t, l.Job.ID)
	for range 2 { // and again, should its answer be lost
		if got := e.beat(t, store.Beat{Lease: l}); got[0] != store.CancelRequested {
			t.Errorf("after the cancel a heartbeat got %v", got)
		}
	}
	e.Later(t, lease/2) // the lease was extended all the same
	if m := e.Reap(t); len(m.Reaped) != 0 {
		t.Errorf("reaped %+v", m.Reaped)
	}
	e.end(t, l, store.Cancel)
	e.Want(t, store.Cancelled, l.Job.ID)
}

func aCancelledJobThatCompletesIsDone(t *testing.T, e *Env) {
	l := e.hold(t)
	e.cancel(t, l.Job.ID)
	if got := e.Finish(t, store.Finish{Verb: store.Complete, Result: []byte(`1`)}, l)[0]; got != store.Done {
		t.Errorf("complete led to %q, want done", got)
	}
	if j := e.Job(t, l.Job.ID); j.State != store.Done || string(j.Result) != `1` {
		t.Errorf("it is %s with %s", j.State, j.Result)
	}
}

func anyOtherFinishOfACancelledJobIsCancelled(t *testing.T, e *Env) {
	for _, v := range []store.Verb{store.Retry, store.Snooze, store.Release, store.Bury, store.Cancel} {
		l := e.hold(t)
		e.cancel(t, l.Job.ID)
		if got := e.Finish(t, store.Finish{Verb: v, Error: "stopped", Delay: time.Minute}, l)[0]; got != store.Cancelled {
			t.Errorf("%q led to %q, want cancelled", v, got)
		}
		if j := e.Job(t, l.Job.ID); j.State != store.Cancelled || j.LastError != "stopped" {
			t.Errorf("after %q it is %s with %q", v, j.State, j.LastError)
		}
	}
	e.Later(t, time.Hour)
	if n := len(e.Claim(t, 10)); n != 0 {
		t.Errorf("%d cancelled jobs ran again", n)
	}
}

func aCancelledJobThatCrashesIsCancelled(t *testing.T, e *Env) {
	l := e.hold(t)
	e.cancel(t, l.Job.ID)
	e.Later(t, lease+time.Millisecond)
	if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].State != store.Cancelled {
		t.Errorf("reaped %+v, want cancelled", m.Reaped)
	}
	e.Want(t, store.Cancelled, l.Job.ID)
}

func aCancelIsOfOneLifeOnly(t *testing.T, e *Env) {
	l := e.hold(t)
	e.cancel(t, l.Job.ID)
	e.end(t, l, store.Complete)
	must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.RequeueMode{}))
	again := e.claimOne(t)
	if got := e.beat(t, store.Beat{Lease: again}); got[0] != store.Held {
		t.Errorf("requeued, a heartbeat got %v", got)
	}
	if got := e.Finish(t, store.Finish{Verb: store.Retry, Delay: time.Hour}, again)[0]; got != store.Scheduled {
		t.Errorf("requeued, a retry led to %q", got)
	}
}

func aCancelOfWhatIsNotThere(t *testing.T, e *Env) {
	wantErr(t, "with no instance", e.Store.Cancel(t.Context(), uuid.New()), store.ErrNotFound)
	e.one(t)
	wantErr(t, "an unknown id", e.Store.Cancel(t.Context(), uuid.New()), store.ErrNotFound)
}
