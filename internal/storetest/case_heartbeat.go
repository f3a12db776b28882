package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A heartbeat holds leases and tells what their holder does not know.
func heartbeatCases() []Case {
	return named(aJobOfTenLeaseLengthsRunsOnce, aHeartbeatKeepsTheLatestProgress, aHeartbeatTellsOfEachLease,
		aHeartbeatLearnsOfMappingsNobodyKnows)
}

// beat makes a heartbeat and returns the verdicts.
func (e *Env) beat(t *testing.T, beats ...store.Beat) []store.Verdict {
	t.Helper()
	verdicts, found, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), beats, nil)
	if err != nil || len(found) != 0 || len(verdicts) != len(beats) {
		t.Fatalf("a heartbeat got %v, %v, %v", verdicts, found, err)
	}
	return verdicts
}

// People report of systems like this: long jobs duplicated by a visibility timeout.
func aJobOfTenLeaseLengthsRunsOnce(t *testing.T, e *Env) {
	l := e.hold(t)
	for range 40 {
		before := e.Now(t)
		if got := e.beat(t, store.Beat{Lease: l}); got[0] != store.Held {
			t.Fatalf("a heartbeat got %v", got)
		}
		if until := e.Job(t, l.Job.ID).LeaseUntil; until.Before(before.Add(lease)) || until.After(e.Now(t).Add(lease)) {
			t.Errorf("the lease is until %v, want %v after %v", until, lease, before)
		}
		e.Later(t, lease/4)
		if m := e.Reap(t); len(m.Reaped) != 0 || len(e.Claim(t, 1)) != 0 {
			t.Fatalf("the job was taken from its worker: %+v", m)
		}
	}
	e.end(t, l, store.Complete)
}

func aHeartbeatKeepsTheLatestProgress(t *testing.T, e *Env) {
	l := e.hold(t)
	for _, p := range []string{`1`, `{"files":2}`} {
		e.beat(t, store.Beat{Lease: l, Progress: []byte(p)})
		e.beat(t, store.Beat{Lease: l}) // says nothing and so changes nothing
		if got := e.Job(t, l.Job.ID).Progress; string(got) != p {
			t.Errorf("progress is %s, want %s", got, p)
		}
	}
	e.Later(t, lease+time.Millisecond)
	e.Reap(t)
	if got := e.claimOne(t).Job.Progress; string(got) != `{"files":2}` {
		t.Errorf("after a crash the next attempt is told %s", got)
	}
}

func aHeartbeatTellsOfEachLease(t *testing.T, e *Env) {
	e.Add(t, 4)
	held := e.Claim(t, 4)
	e.end(t, held[1], store.Complete)
	must(t, e.Store.Cancel(t.Context(), held[2].Job.ID))
	e.Later(t, lease/2)
	before := e.Job(t, held[3].Job.ID).LeaseUntil
	got := e.beat(t, store.Beat{Lease: held[0], Progress: []byte(`0`)}, store.Beat{Lease: held[1], Progress: []byte(`1`)},
		store.Beat{Lease: held[2], Progress: []byte(`2`)})
	for i, want := range []store.Verdict{store.Held, store.Lost, store.CancelRequested} {
		if got[i] != want {
			t.Errorf("lease %d: %v, want %v", i, got[i], want)
		}
	}
	for i, want := range []string{`0`, ``, `2`} {
		if p := e.Job(t, held[i].Job.ID).Progress; string(p) != want {
			t.Errorf("lease %d: progress %q, want %q", i, p, want)
		}
	}
	if until := e.Job(t, held[3].Job.ID).LeaseUntil; !until.Equal(before) {
		t.Error("a lease was extended that is not in the heartbeat")
	}
	e.Later(t, lease/2+time.Millisecond)
	if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].Job != held[3].Job.ID {
		t.Errorf("reaped %+v, want the one that was not extended", m.Reaped)
	}
}

func aHeartbeatLearnsOfMappingsNobodyKnows(t *testing.T, e *Env) {
	ids := e.Add(t, 2)
	mine := workers(3)
	known := e.Exchange(t, e.Terms(), store.Exchange{Claims: mine[:1]}).Leases[0]
	e.Exchange(t, e.Terms(), store.Exchange{Claims: mine[1:2]}) // whose answer is never looked at
	verdicts, found, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), []store.Beat{{Lease: known}}, mine[1:])
	if err != nil || verdicts[0] != store.Held || len(found) != 1 {
		t.Fatalf("got %v, %d leases, %v; want held, one lease", verdicts, len(found), err)
	}
	l := found[0]
	if l.Job.ID != ids[1] || l.Worker() != mine[1] || l.Broken != nil {
		t.Errorf("found %+v, want the second job with the second worker", l.Job)
	}
	e.end(t, l, store.Release)
	if j := e.Job(t, ids[1]); j.State != store.Todo || j.Attempt != 0 {
		t.Errorf("released it is %s at attempt %d; want todo, uncharged", j.State, j.Attempt)
	}
	wantIDs(t, "claimed", e.drain(t), []uuid.UUID{ids[1]})
}
