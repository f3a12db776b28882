package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A lease that ran out ends once, at its time.
func reapCases() []Case {
	return named(aLeaseThatIsLetRunOutIsReapedAlone, aReapEndsWhatRanOutAndTellsOfTheNext, aLeaseRunsOutByTheServersClock, manyReapersEndEachLeaseOnce,
		thousandsOfExpiredLeasesAreReapedInBoundedCalls)
}

func aReapEndsWhatRanOutAndTellsOfTheNext(t *testing.T, e *Env) {
	if m := e.Reap(t); m.Next >= 0 || len(m.Reaped) != 0 || m.Missing != 0 {
		t.Errorf("with no job a reap says %+v", m)
	}
	early := e.hold(t)
	e.Later(t, lease/2)
	late := e.hold(t)
	m := e.Reap(t)
	if len(m.Reaped) != 0 || m.Next <= lease/4 || m.Next > lease/2+time.Millisecond {
		t.Errorf("before the time: %+v; want nothing reaped, and the next in %v", m, lease/2)
	}
	if e.Fake { // to the millisecond: at its deadline a lease still stands
		e.Later(t, m.Next-time.Millisecond)
		if m := e.Reap(t); len(m.Reaped) != 0 || m.Next != time.Millisecond {
			t.Errorf("at the deadline: %+v", m)
		}
		e.Later(t, time.Millisecond)
	} else {
		e.Later(t, m.Next)
	}
	m = e.Reap(t)
	if len(m.Reaped) != 1 || m.Reaped[0].Job != early.Job.ID || m.Next <= lease/4 || m.Next > lease/2+lease/4 {
		t.Errorf("after it: %+v; want the first reaped, and the next in %v", m, lease/2)
	}
	e.Want(t, store.Doing, late.Job.ID)
}

// Nothing is moved into the past here.
func aLeaseRunsOutByTheServersClock(t *testing.T, e *Env) {
	const short = 300 * time.Millisecond
	id, terms := e.one(t), e.Terms()
	terms.Lease = short
	before := e.Now(t)
	l := e.Exchange(t, terms, store.Exchange{Claims: workers(1)}).Leases[0]
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		m := e.reap(t, terms)
		if len(m.Reaped) == 0 {
			continue
		}
		if now := e.Now(t); now.Before(before.Add(short)) {
			t.Errorf("reaped after %v, the lease is %v", now.Sub(before), short)
		}
		if m.Reaped[0].Job != id || m.Reaped[0].Worker != l.Worker() {
			t.Errorf("reaped %+v", m.Reaped)
		}
		return
	}
	t.Error("the lease did not run out")
}

func manyReapersEndEachLeaseOnce(t *testing.T, e *Env) {
	const n = 60
	e.Add(t, n)
	e.Claim(t, n)
	e.Later(t, lease+time.Millisecond)
	var mu sync.Mutex
	reaped := map[uuid.UUID]int{}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 10 {
				m, err := e.Runtime.Reap(t.Context(), e.Terms())
				must(t, err)
				mu.Lock()
				for _, r := range m.Reaped {
					reaped[r.Job]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(reaped) != n {
		t.Errorf("%d leases were reaped, want %d", len(reaped), n)
	}
	for _, times := range reaped {
		if times != 1 {
			t.Errorf("a lease was reaped %d times", times)
		}
	}
	for _, l := range e.Claim(t, n) {
		if l.Job.Crashes != 1 {
			t.Errorf("%d crashes counted, want 1", l.Job.Crashes)
		}
	}
}

// reapStep is how much of each kind one pass of the reaper ends or removes at most.
const reapStep = 200

// People report of systems like this: 8,000 expired entries overflow Lua's unpack; the script stops half-way.
func thousandsOfExpiredLeasesAreReapedInBoundedCalls(t *testing.T, e *Env) {
	n := e.size(2_500, 8_500)
	ids := e.Add(t, n)
	for left := n; left > 0; left -= store.MaxCall {
		e.Claim(t, min(left, store.MaxCall))
	}
	if s := e.Stats(t); s.Doing != int64(n) {
		t.Fatalf("%d are doing, want %d", s.Doing, n)
	}
	e.Later(t, lease+time.Second)
	total := 0
	for call := 1; ; call++ {
		m := e.Reap(t)
		total += len(m.Reaped)
		if len(m.Reaped) > reapStep || m.Missing != 0 {
			t.Errorf("a call reaped %d, %d are missing", len(m.Reaped), m.Missing)
		}
		if m.Next != 0 {
			break
		}
		if call > n/reapStep+1 {
			t.Fatalf("not over after %d calls", call)
		}
	}
	if s := e.Stats(t); total != n || s.Todo != int64(n) {
		t.Errorf("reaped %d, %d are todo; want %d", total, s.Todo, n)
	}
	wantIDs(t, "todo", e.Listed(t, store.Todo), ids)
}

func aLeaseThatIsLetRunOutIsReapedAlone(t *testing.T, e *Env) {
	e.Add(t, 2)
	leases := e.Claim(t, 2)
	must(t, e.Runtime.Lapse(t.Context(), instance, leases[0].Job.ID))
	if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].Job != leases[0].Job.ID || m.Reaped[0].Crashes != 1 {
		t.Errorf("reaped: %+v", m.Reaped)
	}
	e.Want(t, store.Todo, leases[0].Job.ID)
	e.Want(t, store.Doing, leases[1].Job.ID)
	wantErr(t, "once more", e.Runtime.Lapse(t.Context(), instance, leases[0].Job.ID), store.ErrLeaseLost)
}
