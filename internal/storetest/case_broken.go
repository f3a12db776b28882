package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Records were changed or lost behind our back.
func brokenCases() []Case {
	return named(aJobWithoutARecordIsQuarantinedAndItsNeighboursRun, aJobWithoutARecordPastItsDeadlineIsDeadToo,
		aRecordOfAnotherVersionIsQuarantined, aRecordThatCannotBeReadIsHandedOverAsBroken, manyMissingRecordsStopNothing,
		aRecordLostWhileDoingEndsDead)
}

func (e *Env) loseRecord(t *testing.T, id uuid.UUID) {
	t.Helper()
	e.put(t, "HDEL", e.Key(instance, "jobs"), id[:])
}

func aJobWithoutARecordIsQuarantinedAndItsNeighboursRun(t *testing.T, e *Env) {
	ids := e.Add(t, 3)
	e.loseRecord(t, ids[1])
	if m := e.Reap(t); m.Missing != -1 {
		t.Errorf("a reap reports %d missing records less jobs, want -1", m.Missing)
	}
	var got []uuid.UUID
	for range 4 {
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(1)})
		got = append(got, jobIDs(out.Leases)...)
		if len(got) < 2 && out.Next != 0 {
			t.Errorf("with jobs left the next look is after %v", out.Next)
		}
	}
	wantIDs(t, "claimed", got, []uuid.UUID{ids[0], ids[2]})
	if j := e.Job(t, ids[1]); j.State != store.Dead || !strings.Contains(j.LastError, "missing") || j.FinishedAt.IsZero() {
		t.Errorf("it is %s with %q, want dead with its reason", j.State, j.LastError)
	}
	if m := e.Reap(t); m.Missing != 0 {
		t.Errorf("then a reap reports %d, want 0", m.Missing)
	}
	if s := e.Stats(t); s.Dead != 1 || s.Doing != 2 {
		t.Errorf("stats are %+v, want 1 dead and 2 doing", s)
	}
	must(t, e.Store.Delete(t.Context(), ids[1]))
}

func aJobWithoutARecordPastItsDeadlineIsDeadToo(t *testing.T, e *Env) {
	id := e.Enqueue(t, e.by(t, soon))[0]
	e.loseRecord(t, id)
	e.Later(t, soon+time.Second)
	if n := len(e.Claim(t, 1)); n != 0 {
		t.Errorf("claimed %d jobs, want none", n)
	}
	e.Want(t, store.Dead, id)
	if m := e.Reap(t); m.Missing != 0 {
		t.Errorf("%d are missing, want 0", m.Missing)
	}
}

func aRecordOfAnotherVersionIsQuarantined(t *testing.T, e *Env) {
	ids := e.Add(t, 2)
	e.put(t, "HSET", e.Key(instance, "jobs"), ids[0][:], "9 from the future")
	wantIDs(t, "claimed", jobIDs(e.Claim(t, 2)), ids[1:])
	if j := e.Job(t, ids[0]); j.State != store.Dead || !strings.Contains(j.LastError, "version") {
		t.Errorf("it is %s with %q, want dead with its reason", j.State, j.LastError)
	}
	if got := e.Raw.HGet(t.Context(), e.Key(instance, "jobs"), string(ids[0][:])).Val(); got != "9 from the future" {
		t.Errorf("its record was changed to %q", got)
	}
}

func aRecordThatCannotBeReadIsHandedOverAsBroken(t *testing.T, e *Env) {
	const at, place = "0946684800000", "4500000000000001"
	for _, record := range []string{"1", "1" + at, "1xxxxxxxxxxxxx" + place + "5\x00{}", "1" + at + "xxxxxxxxxxxxxxxx5",
		"1" + at + place + "\xff\x00{}", "1" + at + place + "5\x07", "1" + at + place + "5\x01\x09{}"} {
		ids := e.Add(t, 2)
		e.put(t, "HSET", e.Key(instance, "jobs"), ids[0][:], record)
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(2)})
		wantIDs(t, "claimed", jobIDs(out.Leases), ids)
		if out.Leases[0].Broken == nil || out.Leases[1].Broken != nil {
			t.Fatalf("broken: %v and %v; want the first alone", out.Leases[0].Broken, out.Leases[1].Broken)
		}
		if j := e.Job(t, ids[0]); j.LastError == "" {
			t.Error("a snapshot does not say that the record can't be read")
		}
		e.Finish(t, store.Finish{Verb: store.Bury, Error: out.Leases[0].Broken.Error()}, out.Leases[0])
		e.end(t, out.Leases[1], store.Complete)
		e.Want(t, store.Dead, ids[0])
		must(t, e.Store.Requeue(t.Context(), ids[0], store.RequeueMode{}))
		must(t, e.Store.Delete(t.Context(), ids[0]))
	}
}

func manyMissingRecordsStopNothing(t *testing.T, e *Env) {
	ids := e.Add(t, 300)
	for _, id := range ids[:299] {
		e.loseRecord(t, id)
	}
	for range 10 {
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(50)})
		if len(out.Leases) == 1 && out.Leases[0].Job.ID == ids[299] {
			if s := e.Stats(t); s.Dead != 299 {
				t.Errorf("%d are dead, want 299", s.Dead)
			}
			return
		}
		if out.Next != 0 {
			t.Fatalf("with jobs left the next look is after %v", out.Next)
		}
	}
	t.Error("the last job was not reached")
}

func aRecordLostWhileDoingEndsDead(t *testing.T, e *Env) {
	l := e.hold(t)
	id := l.Job.ID
	e.loseRecord(t, id)
	if got := e.beat(t, store.Beat{Lease: l}); got[0] != store.Held {
		t.Errorf("a heartbeat got %v", got)
	}
	other := e.one(t)
	mine := l.Worker() // asks for a job though it holds one that can't be handed over
	got := e.Exchange(t, e.Terms(), store.Exchange{Claims: []uuid.UUID{mine}}).Leases
	wantIDs(t, "claimed", jobIDs(got), []uuid.UUID{other})
	e.Later(t, lease+time.Millisecond)
	m := e.Reap(t)
	if len(m.Reaped) != 2 {
		t.Errorf("reaped %d leases, want 2", len(m.Reaped))
	}
	wantIDs(t, "claimed", jobIDs(e.Claim(t, 2)), []uuid.UUID{other})
	e.Want(t, store.Dead, id)
}
