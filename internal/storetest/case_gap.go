package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// After an outage, or a jump of Redis' clock, nobody loses a lease that could not have been extended.
func gapCases() []Case {
	return named(afterAGapTheReaperWaitsALease, heartbeatsWithinTheGraceSaveTheirLeases, withoutAGapLeasesEndInTime,
		afterTimeGoesBackLeasesEndALeaseLater, aLeaseNearlyOverGetsAnotherWhenTimeGoesBack, farDeadlinesAreCut, aFarDeadlineIsCutToALease, aGapHoldsUpNothingElse, theFirstPassIsNoGap,
		aShorterLeaseElsewhereEndsNoLonger, aLongerLeaseThatNobodyHasAnyMoreIsForgotten)
}

const period = lease / 4

// pass makes a pass of the reaper that expects others.
func (e *Env) pass(t testing.TB) store.Maintained {
	t.Helper()
	terms := e.Terms()
	terms.Period = period
	return e.reap(t, terms)
}

// passes lets time go by with a pass each period, and returns what was reaped.
func (e *Env) passes(t testing.TB, d time.Duration, each func()) (reaped []uuid.UUID) {
	t.Helper()
	for ; d > 0; d -= period {
		e.Later(t, min(d, period))
		if each != nil {
			each()
		}
		for _, r := range e.pass(t).Reaped {
			reaped = append(reaped, r.Job)
		}
	}
	return reaped
}

func afterAGapTheReaperWaitsALease(t *testing.T, e *Env) {
	for _, jump := range []time.Duration{2*period + e.slack(), lease + time.Second, 1000 * time.Hour} {
		e.pass(t)
		l := e.hold(t)
		if jump < lease {
			e.passes(t, lease-jump+time.Second, nil) // so that the lease is over after the jump
		}
		e.Later(t, jump)
		m := e.pass(t)
		if len(m.Reaped) != 0 || m.Next > lease || m.Next < lease-period {
			t.Errorf("after a gap of %v: %+v; want nothing reaped, and the next look in %v", jump, m, lease)
		}
		if got := e.passes(t, lease-period, nil); len(got) != 0 {
			t.Errorf("after a gap of %v %d were reaped within a lease", jump, len(got))
		}
		wantIDs(t, "reaped after a lease", e.passes(t, period+time.Second, nil), []uuid.UUID{l.Job.ID})
		must(t, e.Store.DeleteInstance(t.Context(), instance, true))
	}
}

func heartbeatsWithinTheGraceSaveTheirLeases(t *testing.T, e *Env) {
	e.Add(t, 2)
	held := e.Claim(t, 2)
	e.pass(t)
	e.Later(t, time.Hour) // the outage
	e.pass(t)
	saved, lost := held[0], held[1]
	beat := func() {
		if v := e.beat(t, store.Beat{Lease: saved})[0]; v != store.Held {
			t.Errorf("the heartbeat got %v", v)
		}
	}
	wantIDs(t, "reaped", e.passes(t, 3*lease, beat), []uuid.UUID{lost.Job.ID})
	e.end(t, saved, store.Complete)
	e.Want(t, store.Done, saved.Job.ID)
}

func withoutAGapLeasesEndInTime(t *testing.T, e *Env) {
	e.pass(t)
	l := e.hold(t)
	if got := e.passes(t, lease-e.slack(), nil); len(got) != 0 {
		t.Errorf("%d were reaped early", len(got))
	}
	wantIDs(t, "reaped in time", e.passes(t, 2*e.slack(), nil), []uuid.UUID{l.Job.ID})
	l = e.claimOne(t)
	if got := e.passes(t, lease-period, nil); len(got) != 0 {
		t.Errorf("%d were reaped early", len(got))
	}
	e.Later(t, 2*period-e.slack()) // no gap yet
	if m := e.pass(t); len(m.Reaped) != 1 || m.Reaped[0].Job != l.Job.ID {
		t.Errorf("after two periods: %+v", m)
	}
}

func afterTimeGoesBackLeasesEndALeaseLater(t *testing.T, e *Env) {
	for _, back := range []time.Duration{time.Second, time.Hour, 10_000 * time.Hour} {
		e.Add(t, 2)
		held := e.Claim(t, 2)
		e.pass(t)
		e.Later(t, time.Millisecond)
		e.Back(t, back)
		m := e.pass(t)
		if len(m.Reaped) != 0 || m.Next > lease+time.Millisecond {
			t.Errorf("after going back by %v: %+v", back, m)
		}
		saved, lost := held[0], held[1]
		got := e.passes(t, lease+time.Second, func() { e.beat(t, store.Beat{Lease: saved}) })
		wantIDs(t, "reaped a lease later", got, []uuid.UUID{lost.Job.ID})
		if until := e.Job(t, saved.Job.ID).LeaseUntil; until.After(e.Now(t).Add(lease)) {
			t.Errorf("a lease until %v", until)
		}
		must(t, e.Store.DeleteInstance(t.Context(), instance, true))
	}
}

// Who can't tell how long its lease has been running may need all of another to say so.
func aLeaseNearlyOverGetsAnotherWhenTimeGoesBack(t *testing.T, e *Env) {
	e.pass(t)
	l := e.hold(t)
	if got := e.passes(t, lease-2*e.slack(), nil); len(got) != 0 {
		t.Errorf("%d were reaped early", len(got))
	}
	e.Back(t, e.slack())
	e.pass(t)
	if got := e.passes(t, lease-e.slack(), nil); len(got) != 0 {
		t.Errorf("%d were reaped within a lease", len(got))
	}
	wantIDs(t, "reaped after it", e.passes(t, 2*e.slack(), nil), []uuid.UUID{l.Job.ID})
}

func farDeadlinesAreCut(t *testing.T, e *Env) {
	n := e.size(1_200, 2_500)
	e.Add(t, n)
	for left := n; left > 0; left -= store.MaxCall {
		e.Claim(t, min(left, store.MaxCall))
	}
	e.pass(t)
	e.Back(t, 50*time.Hour)
	calls := 0
	for m := e.pass(t); m.Next == 0; m = e.pass(t) {
		if calls++; calls > n/reapStep+1 {
			t.Fatal("a reap without end")
		}
	}
	top, err := e.Raw.ZRevRangeWithScores(t.Context(), e.Key(instance, "doing"), 0, 0).Result()
	if err != nil || len(top) != 1 || int64(top[0].Score) > e.Now(t).Add(lease).UnixMilli() {
		t.Errorf("the last lease ends %v, want within %v of %v", top, lease, e.Now(t))
	}
	if got := e.passes(t, lease-period, nil); len(got) != 0 {
		t.Errorf("%d were reaped early", len(got))
	}
	got := len(e.passes(t, period+10*time.Second, nil))
	for calls = 0; calls < n/reapStep+1 && got < n; calls++ {
		got += len(e.pass(t).Reaped)
	}
	if got != n {
		t.Errorf("%d were reaped, want %d", got, n)
	}
}

// Also by a reaper that expects no others.
func aFarDeadlineIsCutToALease(t *testing.T, e *Env) {
	l := e.hold(t)
	e.Back(t, time.Hour)
	for _, later := range []time.Duration{0, lease - e.slack()} {
		e.Later(t, later)
		if m := e.Reap(t); len(m.Reaped) != 0 {
			t.Errorf("after %v it was reaped", later)
		}
	}
	e.Later(t, 2*e.slack())
	if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].Job != l.Job.ID {
		t.Errorf("after a lease: %+v", m)
	}
}

// What waits past its deadline, what retention does not keep and who waits do not depend on anybody's heartbeat.
func aGapHoldsUpNothingElse(t *testing.T, e *Env) {
	e.pass(t)
	late := e.Enqueue(t, e.by(t, soon))[0]
	e.Later(t, time.Hour)
	m := e.pass(t)
	wantIDs(t, "expired", m.Expired, []uuid.UUID{late})
	l := e.hold(t)
	e.end(t, l, store.Release)
	l = e.claimOne(t)
	e.end(t, l, store.Complete)
}

func theFirstPassIsNoGap(t *testing.T, e *Env) {
	l := e.hold(t)
	e.Later(t, lease+time.Second)
	m := e.pass(t)
	if len(m.Reaped) != 1 || m.Reaped[0].Job != l.Job.ID {
		t.Errorf("the first pass: %+v", m)
	}
}

// quick are the terms of a process that has a lease of 2 s, as after a deployment that makes it shorter.
func (e *Env) quick() store.Terms {
	terms := e.Terms()
	terms.Process, terms.Lease, terms.Period = uuid.New(), 2*time.Second, time.Second/2
	return terms
}

// While a deployment is under way processes with another lease look after the same instance. Whoever has a long one sends its
// heartbeats accordingly, also when the other has reaped first, and after an outage.
func aShorterLeaseElsewhereEndsNoLonger(t *testing.T, e *Env) {
	quick := e.quick()
	for _, outage := range []time.Duration{0, time.Hour} {
		reap := func() {
			t.Helper()
			if m := e.reap(t, quick); len(m.Reaped) != 0 {
				t.Errorf("after an outage of %v a lease of %v was ended by a process with one of %v", outage, lease, quick.Lease)
			}
		}
		reap()
		l := e.hold(t)
		reap()
		if until := e.Job(t, l.Job.ID).LeaseUntil.Sub(e.Now(t)); until < lease-2*time.Second {
			t.Errorf("the lease was cut to %v", until)
		}
		e.pass(t)
		e.Later(t, outage)
		for range 10 {
			for range 10 {
				reap()
				e.Later(t, period/10)
			}
			if v := e.beat(t, store.Beat{Lease: l})[0]; v != store.Held {
				t.Fatalf("the heartbeat got %v", v)
			}
			e.pass(t)
		}
		e.end(t, l, store.Complete)
	}
}

func aLongerLeaseThatNobodyHasAnyMoreIsForgotten(t *testing.T, e *Env) {
	quick := e.quick()
	e.end(t, e.hold(t), store.Complete) // of the long lease
	for range 5 * int(lease/quick.Period) {
		e.reap(t, quick)
		e.Later(t, quick.Period)
	}
	e.reap(t, quick)
	e.one(t)
	l := e.take(t, "with the short lease", quick, 1, 1).Leases[0]
	e.Back(t, time.Hour)
	e.reap(t, quick)
	if until := e.Job(t, l.Job.ID).LeaseUntil.Sub(e.Now(t)); until > quick.Lease {
		t.Errorf("when time went back the lease was cut to %v, want %v", until, quick.Lease)
	}
}
