package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// An audit puts right what somebody changed behind our back.
func auditCases() []Case {
	return named(anAuditBuriesARecordInNoState, anAuditBuriesAJobWithoutARecord, anAuditLeavesWhatIsDoingOrHasEnded,
		anAuditLeavesAJobInOneStateOnly, anAuditOfThousandsGoesByCursor, anAuditOfWhatIsWholeChangesNothing, whatAnAuditBuriesHasEnded,
		whatAnAuditBuriesIsNobodys, whatAWorkerHoldsIsDoing, aJobThatTwoWorkersHoldIsThatOfTheLater,
		aReapLeavesAJobThatTwoWorkersHoldToTheLater)
}

// audit goes through the whole instance and returns what was put right, in the order of ids.
func (e *Env) audit(t testing.TB) (moved []uuid.UUID) {
	t.Helper()
	var at store.AuditCursor
	for range 1000 {
		some, next, err := e.Runtime.Audit(t.Context(), instance, at)
		if err != nil {
			t.Fatalf("auditing: %v", err)
		}
		if !e.Fake && len(some) > store.MaxCall { // the embedded server scans all at once
			t.Errorf("a step of an audit moved %d jobs", len(some))
		}
		moved = append(moved, some...)
		if at = next; at == (store.AuditCursor{}) {
			slices.SortFunc(moved, byID)
			return slices.Compact(moved)
		}
	}
	t.Fatal("an audit without end")
	return nil
}

func byID(a, b uuid.UUID) int { return strings.Compare(string(a[:]), string(b[:])) }

// wantAudited fails the test unless an audit puts exactly these jobs right, after which all is well.
func (e *Env) wantAudited(t testing.TB, what string, ids ...uuid.UUID) {
	t.Helper()
	ids = slices.SortedFunc(slices.Values(ids), byID)
	wantIDs(t, what, e.audit(t), ids)
	e.Check(t)
	if m := e.Reap(t); m.Missing != 0 {
		t.Errorf("%s: %d are missing after the audit", what, m.Missing)
	}
	if again := e.audit(t); len(again) != 0 {
		t.Errorf("%s: a second audit moved %d jobs", what, len(again))
	}
}

func (e *Env) wantDead(t testing.TB, what string, id uuid.UUID, reason string) {
	t.Helper()
	if j := e.Job(t, id); j.State != store.Dead || !strings.Contains(j.LastError, reason) || j.FinishedAt.IsZero() {
		t.Errorf("%s: it is %s (%q), want dead: %s", what, j.State, j.LastError, reason)
	}
}

func anAuditBuriesARecordInNoState(t *testing.T, e *Env) {
	ids := e.Enqueue(t, store.NewJob{Payload: []byte(`"kept"`)}, store.NewJob{Delay: time.Hour}, store.NewJob{}, store.NewJob{Delay: time.Hour})
	e.put(t, "ZREM", e.Key(instance, "todo"), ids[0][:])
	e.put(t, "ZREM", e.Key(instance, "scheduled"), ids[1][:])
	if m := e.Reap(t); m.Missing != 2 {
		t.Errorf("%d are missing, want 2", m.Missing)
	}
	e.wantAudited(t, "in no state", ids[:2]...)
	for _, id := range ids[:2] {
		e.wantDead(t, "in no state", id, "in no state")
	}
	if got := e.Job(t, ids[0]); string(got.Payload) != `"kept"` {
		t.Errorf("the payload is %s", got.Payload)
	}
	e.Want(t, store.Todo, ids[2])
	e.Want(t, store.Scheduled, ids[3])
	must(t, e.Store.Requeue(t.Context(), ids[0], store.RequeueMode{})) // it is a job like any other
}

func anAuditBuriesAJobWithoutARecord(t *testing.T, e *Env) {
	suspect := e.suspected(t, 1)[0]
	must(t, e.Store.Pause(t.Context(), instance))
	parked := e.one(t)
	e.park(t, parked)
	all := append(e.Enqueue(t, store.NewJob{}, store.NewJob{Delay: time.Hour}), parked, suspect)
	kept := e.one(t)
	for _, id := range all {
		e.loseRecord(t, id)
	}
	if m := e.Reap(t); m.Missing != -4 {
		t.Errorf("%d are missing, want -4", m.Missing)
	}
	e.wantAudited(t, "without a record", all...)
	for _, id := range all {
		e.wantDead(t, "without a record", id, "record is missing")
	}
	e.Want(t, store.Todo, kept)
}

func anAuditLeavesWhatIsDoingOrHasEnded(t *testing.T, e *Env) {
	ids := e.inEachState(t)
	l := e.claimOne(t)
	e.loseRecord(t, l.Job.ID)
	all := []uuid.UUID{l.Job.ID}
	for _, s := range []store.State{store.Done, store.Dead, store.Cancelled} {
		e.loseRecord(t, ids[s])
		all = append(all, ids[s])
	}
	e.wantAudited(t, "without a record", all...)
	for _, s := range []store.State{store.Doing, store.Done, store.Dead, store.Cancelled} {
		e.Want(t, s, ids[s])
	}
	e.Want(t, store.Doing, l.Job.ID)
	e.end(t, l, store.Complete) // its worker goes on
	e.Want(t, store.Done, l.Job.ID)
}

func anAuditLeavesAJobInOneStateOnly(t *testing.T, e *Env) {
	states := []string{"doing", "done", "dead", "cancelled", "parked", "todo", "suspects", "scheduled"} // the first of them counts
	for i, first := range states {
		for _, second := range states[i+1:] {
			id := e.one(t)
			var l *store.Lease
			if first == "doing" {
				l = e.claimOne(t)
			} else {
				e.put(t, "ZREM", e.Key(instance, "todo"), id[:])
				e.put(t, "ZADD", e.Key(instance, first), int64(5e15+3), id[:])
			}
			e.put(t, "ZADD", e.Key(instance, second), int64(5e15+3), id[:])
			e.wantAudited(t, first+" and "+second, id)
			want := store.State(first)
			if first == "suspects" {
				want = store.Todo
			}
			e.Want(t, want, id)
			if l != nil {
				e.end(t, l, store.Complete)
			}
			must(t, e.Store.Delete(t.Context(), id))
		}
	}
}

func anAuditOfThousandsGoesByCursor(t *testing.T, e *Env) {
	const n = 2_500
	ids := e.Add(t, n)
	var broken []uuid.UUID
	for i := 0; i < n; i += 50 {
		broken = append(broken, ids[i], ids[i+1])
		e.put(t, "ZREM", e.Key(instance, "todo"), ids[i][:])
		e.loseRecord(t, ids[i+1])
	}
	e.wantAudited(t, "of thousands", broken...)
	if s := e.Stats(t); s.Dead != int64(len(broken)) || s.Todo != int64(n-len(broken)) || s.Total != n {
		t.Errorf("stats are %+v", s)
	}
	// all of them: no step is larger for that
	e.put(t, "DEL", e.Key(instance, "todo"))
	var rest []uuid.UUID
	for i := range ids {
		if i%50 > 1 {
			rest = append(rest, ids[i])
		}
	}
	e.wantAudited(t, "all of them", rest...)
}

func anAuditOfWhatIsWholeChangesNothing(t *testing.T, e *Env) {
	e.suspected(t, 2)
	e.claimOne(t)
	e.inEachState(t)
	before := e.Content(t)
	if moved := e.audit(t); len(moved) != 0 {
		t.Errorf("%d jobs were moved", len(moved))
	}
	wantSame(t, "an audit", before, e.Content(t))
	moved, at, err := e.Runtime.Audit(t.Context(), "empty", store.AuditCursor{})
	if len(moved) != 0 || at == (store.AuditCursor{}) || err != nil {
		t.Errorf("of nothing: %v, %+v, %v", moved, at, err)
	}
}

// loseLease removes the lease that a worker holds.
func (e *Env) loseLease(t testing.TB, l *store.Lease) {
	t.Helper()
	w := l.Worker()
	e.put(t, "HDEL", e.Key(instance, "workers"), w[:])
}

// Whatever else of it is lost: its worker goes on, or its lease runs out.
func whatAWorkerHoldsIsDoing(t *testing.T, e *Env) {
	losses := map[string]func(l *store.Lease){
		"doing": func(l *store.Lease) { w := l.Worker(); e.put(t, "ZREM", e.Key(instance, "doing"), w[:]) },
		"runs":  func(l *store.Lease) { e.put(t, "HDEL", e.Key(instance, "runs"), l.Job.ID[:]) },
		"both": func(*store.Lease) {
			e.put(t, "DEL", e.Key(instance, "doing"))
			e.put(t, "DEL", e.Key(instance, "runs"))
		},
	}
	for what, lose := range losses {
		for _, lives := range []bool{true, false} {
			e.end(t, e.hold(t), store.Release)
			l := e.claimOne(t) // it runs for the second time, so that its run is not told by its record
			lose(l)
			e.wantAudited(t, what+" lost", l.Job.ID)
			e.Want(t, store.Doing, l.Job.ID)
			if lives {
				if v := e.beat(t, store.Beat{Lease: l})[0]; v != store.Held {
					t.Errorf("%s lost: a heartbeat got %v", what, v)
				}
			} else {
				e.Later(t, lease+time.Second)
				if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].Job != l.Job.ID || m.Missing != 0 {
					t.Errorf("%s lost: reaped %+v", what, m)
				}
				l = e.claimOne(t)
			}
			e.end(t, l, store.Complete)
			e.Want(t, store.Done, l.Job.ID)
			must(t, e.Store.Delete(t.Context(), l.Job.ID))
		}
	}
}

// It was put back behind our back, and claimed again.
func aJobThatTwoWorkersHoldIsThatOfTheLater(t *testing.T, e *Env) {
	first := e.hold(t)
	e.put(t, "ZADD", e.Key(instance, "todo"), int64(5e15+3), first.Job.ID[:])
	second := e.claimOne(t)
	e.wantAudited(t, "held twice", first.Job.ID)
	got := e.beat(t, store.Beat{Lease: first}, store.Beat{Lease: second})
	if got[0] != store.Lost || got[1] != store.Held {
		t.Errorf("the heartbeats got %v, want lost and held", got)
	}
	e.end(t, second, store.Complete)
	e.Want(t, store.Done, first.Job.ID)
}

// Also before an audit: that the other's time is up does not make the job run a third time.
func aReapLeavesAJobThatTwoWorkersHoldToTheLater(t *testing.T, e *Env) {
	first := e.hold(t)
	e.put(t, "ZADD", e.Key(instance, "todo"), int64(5e15+3), first.Job.ID[:])
	second := e.claimOne(t)
	e.Later(t, lease/2)
	e.beat(t, store.Beat{Lease: second})
	e.Later(t, lease/2+time.Second)
	if m := e.Reap(t); len(m.Reaped) != 0 || m.Missing != 0 {
		t.Errorf("reaped %+v", m)
	}
	if got := e.beat(t, store.Beat{Lease: first}, store.Beat{Lease: second}); got[0] != store.Lost || got[1] != store.Held {
		t.Errorf("the heartbeats got %v, want lost and held", got)
	}
	e.Later(t, lease+time.Second)
	if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].Worker != second.Worker() {
		t.Errorf("when both are gone: reaped %+v", m)
	}
}

// Its worker, if it has one after all, has lost it; so has who asked for it to be cancelled.
func whatAnAuditBuriesIsNobodys(t *testing.T, e *Env) {
	l := e.hold(t)
	must(t, e.Store.Cancel(t.Context(), l.Job.ID))
	e.loseLease(t, l)
	e.wantAudited(t, "held by somebody", l.Job.ID)
	e.wantDead(t, "held by somebody", l.Job.ID, "no state")
	if v := e.beat(t, store.Beat{Lease: l})[0]; v != store.Lost {
		t.Errorf("a heartbeat got %v", v)
	}
	if got := e.Finish(t, store.Finish{Verb: store.Complete}, l)[0]; got != "" {
		t.Errorf("a finish led to %s", got)
	}
}

// Its key is free, its deadline is over, who waits is told.
func whatAnAuditBuriesHasEnded(t *testing.T, e *Env) {
	j := unique(store.UniqueTerminal, "k")
	j.Deadline = e.Now(t).Add(time.Hour)
	id := e.Enqueue(t, j)[0]
	a := e.listen(t, e.Runtime.EndedChannel(id))
	must(t, errOf(e.Runtime.Await(t.Context(), instance, id)))
	e.put(t, "ZREM", e.Key(instance, "todo"), id[:])
	e.wantAudited(t, "buried", id)
	if m := a.hear(t, store.Ended); m.Job != id {
		t.Errorf("heard of %s", m.Job)
	}
	must(t, e.try(t, unique(store.UniqueTerminal, "k"))[0])
}
