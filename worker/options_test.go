package worker_test

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func limitTo(n int) retry.Policy { return retry.Limit(n, retry.Fixed(time.Second)) }

func workers(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

func TestWhatAJobCarriesIsThereInItsHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		by := time.Now().Add(time.Hour)
		opts := []worker.EnqueueOption{
			worker.Metadata("tenant", "a"), worker.Metadata("trace", "1"), worker.Metadata("tenant", "b"),
			worker.MaxAttempts(7), worker.Deadline(by),
		}
		c := r.client()
		ids := []uuid.UUID{r.accepts(c, "x", 1, opts...), r.accepts(c, "x", 1, opts[:1]...)}
		for i, want := range []map[string]string{{"tenant": "b", "trace": "1"}, {"tenant": "a"}} {
			if got := r.job(ids[i]).Metadata; !maps.Equal(got, want) {
				t.Errorf("metadata %v, want %v", got, want)
			}
		}
		if j := r.job(ids[0]); j.MaxAttempts != 7 || !j.Deadline.Equal(by) {
			t.Errorf("%d attempts by %v, want 7 by %v", j.MaxAttempts, j.Deadline, by)
		}
	})
}

func TestADeadlineThatPassesIsAnEventAndCostsNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		c := r.client()
		atClaim := r.accepts(c, "x", nil, worker.Deadline(time.Now().Add(time.Second)))
		settle(2 * time.Second)
		r.start() // claims it too late, or the reaper finds it
		waiting := r.accepts(c, "x", nil, worker.Delay(time.Hour), worker.Deadline(time.Now().Add(10*time.Second)))
		inTime := r.accepts(c, "x", nil, worker.Deadline(time.Now().Add(time.Second)))
		settle(16 * time.Second)
		for _, id := range []uuid.UUID{atClaim, waiting} {
			r.wantState(id, store.Dead, 0, "its deadline has passed")
		}
		r.wantState(inTime, store.Done, 1, "")
		told := map[uuid.UUID]int{}
		for _, e := range of[worker.JobExpired](r.events) {
			if e.Instance == "x" {
				told[e.Job]++
			}
		}
		if len(told) != 2 || told[atClaim] != 1 || told[waiting] != 1 || len(starts) != 1 {
			t.Errorf("told of %v, %d starts; want each of the two once, and one start", told, len(starts))
		}
		r.stopWell()
	})
}

func TestASecondJobWithTheKeyIsADuplicateOfTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		for name, until := range map[string]worker.Until{
			"claimed": worker.UntilClaimed(), "done": worker.UntilDone(), "terminal": worker.UntilTerminal(), "window": worker.For(time.Minute),
		} {
			first := r.accepts(c, "x", nil, worker.Unique(name, until))
			_, err := c.Enqueue(t.Context(), "x", nil, worker.Unique(name, until))
			dup, ok := errors.AsType[*store.DuplicateError](err)
			if !ok || dup.Holder != first || !errors.Is(err, store.ErrDuplicate) {
				t.Errorf("until %s: %v, want a DuplicateError that names %s", name, err, first)
			}
			r.accepts(c, "y", nil, worker.Unique(name, until)) // another instance's
			r.accepts(c, "x", nil, worker.Unique(name+" other", until))
		}
	})
}

func TestAKeyIsFreeAgainWhenItWasSaidToBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("ends", exactly(10*time.Second))
		worker.Handle(r.sup, "fails", returns(retry.Permanent(errBoom)))
		c := r.client()
		r.start()
		taken := func(instance, key string, until worker.Until) bool {
			t.Helper()
			_, err := c.Enqueue(t.Context(), instance, nil, worker.Unique(key, until), worker.Delay(time.Hour))
			if err != nil && !errors.Is(err, store.ErrDuplicate) {
				t.Fatal(err)
			}
			return err != nil
		}
		for key, until := range map[string]worker.Until{
			"c": worker.UntilClaimed(), "d": worker.UntilDone(), "t": worker.UntilTerminal(), "w": worker.For(15 * time.Second),
		} {
			r.accepts(c, "ends", nil, worker.Unique(key, until))
			r.accepts(c, "fails", nil, worker.Unique(key, until))
		}
		settle(5 * time.Second)
		if n := len(starts); n != 4 {
			t.Fatalf("%d jobs run, want 4", n)
		}
		// While the first run, and when the others are dead.
		for key, want := range map[string][2]bool{"c": {false, false}, "d": {true, true}, "t": {true, false}, "w": {true, true}} {
			until := worker.UntilDone()
			if got := [2]bool{taken("ends", key, until), taken("fails", key, until)}; got != want {
				t.Errorf("%s: taken %v while its job runs and when it is dead, want %v", key, got, want)
			}
		}
		settle(15 * time.Second)
		for _, key := range []string{"d", "t", "w"} {
			if taken("ends", key, worker.UntilTerminal()) {
				t.Errorf("%s: still taken when its job is done and the window over", key)
			}
		}
		r.stopWell()
	})
}

func TestAnAuditFollowsAnInconsistencyAndTellsWhatItPutRight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		ids := make([]uuid.UUID, 300)
		for i := range ids {
			ids[i] = r.enqueue("x", nil, after(time.Hour))
		}
		r.start()
		settle(time.Second)
		redis := r.st.Runtime().Client()
		lost := ids[:5]
		for _, id := range lost {
			must(t, redis.ZRem(t.Context(), "stint:{x}:scheduled", string(id[:])).Err())
		}
		settle(10 * time.Second)
		told := map[uuid.UUID]int{}
		for _, e := range of[worker.Audited](r.events) {
			for _, id := range e.Jobs {
				told[id]++
			}
		}
		for _, id := range lost {
			r.wantState(id, store.Dead, 0, "it was in no state")
			if told[id] != 1 {
				t.Errorf("told %d times of job %s, want once", told[id], id)
			}
		}
		if e := of[worker.Inconsistent](r.events); len(e) != 1 || e[0].Missing != 5 || len(told) != 5 {
			t.Errorf("%+v, told of %d jobs; want one event with 5 missing, and 5 jobs", e, len(told))
		}
		before := r.fault.Seen()
		settle(20 * time.Second)
		if n := r.fault.Seen() - before; n > 25 {
			t.Errorf("%d commands in the 20 s after that, want the audit to be over", n)
		}
		r.stopWell()
	})
}

func TestALeaseOverAnOutageOfAllReapersLastsAnotherOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		worker.Handle(r.sup, "x", returns(nil))
		r.start()
		settle(10 * time.Second)
		r.stopWell()
		id := r.enqueue("x", nil)
		terms := store.Terms{Instance: "x", Process: theID, Lease: 4 * time.Second, MaxCrashes: 3}
		var lane store.Lane
		if got, err := r.st.Runtime().Exchange(t.Context(), &lane, terms, store.Exchange{Claims: workers(1)}); err != nil || len(got.Leases) != 1 {
			t.Fatalf("claimed %+v: %v", got, err)
		}
		settle(time.Minute) // nobody looks; the holder may be as unable to heartbeat as the reapers were
		next := r.second(worker.Config{Lease: 4 * time.Second})
		worker.Handle(next.sup, "x", returns(nil))
		next.start()
		settle(3900 * time.Millisecond)
		r.wantState(id, store.Doing, 1, "")
		settle(1200 * time.Millisecond)
		synctest.Wait()
		if j := r.job(id); j.State != store.Done || j.Crashes != 0 {
			t.Errorf("the job is %s, want done", j.State)
		}
		if e := of[worker.JobReaped](next.events); len(e) != 1 {
			t.Errorf("%d leases were reaped, want one", len(e))
		}
		next.stopWell()
	})
}
