package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The first run of a job, which a short record tells of itself: it must not show where that is kept.
func firstCases() []Case {
	return named(theFirstRunIsToldAsEveryOther, whatIsRequeuedUnclaimedTakesANewPlace, theFormOfARecordDoesNotShow,
		aFirstRunWhoseRecordIsSpoiltEnds, whatIsHandedOverOfASpoiltRunIsReleased)
}

// kinds of jobs by how their records are: short, long, and without a place as they are not todo at once.
func (e *Env) kinds(t *testing.T) map[string]uuid.UUID {
	t.Helper()
	long := store.NewJob{Payload: []byte(`"` + strings.Repeat("x", 10_000) + `"`)}
	ids := map[string]uuid.UUID{}
	for kind, n := range map[string]store.NewJob{"short": {}, "long": long, "delayed": {Delay: time.Second}} {
		ids[kind] = e.Enqueue(t, n)[0]
	}
	e.Later(t, 2*time.Second)
	return ids
}

func theFirstRunIsToldAsEveryOther(t *testing.T, e *Env) {
	for verb, want := range map[store.Verb]struct {
		state          store.State
		attempt, again int
	}{
		store.Complete: {store.Done, 1, 0}, store.Bury: {store.Dead, 1, 0}, store.Cancel: {store.Cancelled, 1, 0},
		store.Retry: {store.Scheduled, 1, 2}, store.Snooze: {store.Scheduled, 0, 1}, store.Release: {store.Todo, 0, 1},
	} {
		ids := e.kinds(t)
		leases := map[uuid.UUID]*store.Lease{}
		for _, l := range e.Claim(t, len(ids)) {
			leases[l.Job.ID] = l
		}
		holders, err := e.Store.Workers(t.Context(), instance)
		must(t, err)
		for kind, id := range ids {
			l := leases[id]
			tell := func(when string, j store.Job, state store.State, attempt int) {
				t.Helper()
				if j.State != state || j.Attempt != attempt || j.Crashes != 0 || j.Worker != l.Worker() || !j.StartedAt.Equal(l.Job.StartedAt) {
					t.Errorf("%s, a %s job is %s, attempt %d of %s since %v; want %s, attempt %d of %s since %v", when, kind,
						j.State, j.Attempt, j.Worker, j.StartedAt, state, attempt, l.Worker(), l.Job.StartedAt)
				}
			}
			tell("claimed", l.Job, store.Doing, 1)
			tell("while it runs", e.Job(t, id), store.Doing, 1)
			for _, w := range holders {
				if w.Job == id && (w.ID != l.Worker() || !w.Since.Equal(l.Job.StartedAt)) {
					t.Errorf("a %s job is held by %s since %v, want %s since %v", kind, w.ID, w.Since, l.Worker(), l.Job.StartedAt)
				}
			}
			e.end(t, l, verb)
			tell(fmt.Sprint("after ", verb), e.Job(t, id), want.state, want.attempt)
		}
		if want.again > 0 {
			e.Later(t, time.Minute)
			for _, l := range e.Claim(t, len(ids)) {
				if l.Job.Attempt != want.again {
					t.Errorf("claimed again after %v it is attempt %d, want %d", verb, l.Job.Attempt, want.again)
				}
				e.end(t, l, store.Complete)
			}
		}
		for _, id := range ids {
			must(t, e.Store.Delete(t.Context(), id))
		}
	}
}

// Its record still has the place that it had before it was cancelled.
func whatIsRequeuedUnclaimedTakesANewPlace(t *testing.T, e *Env) {
	ids := e.Add(t, 3)
	must(t, e.Store.Cancel(t.Context(), ids[0]))
	must(t, e.Store.Requeue(t.Context(), ids[0], store.RequeueMode{}))
	want := []uuid.UUID{ids[1], ids[2], ids[0]}
	for _, when := range []string{"at first", "after a release", "after another"} {
		leases := e.Claim(t, 3)
		wantIDs(t, when, jobIDs(leases), want)
		for _, l := range leases {
			e.end(t, l, store.Release)
		}
	}
}

// Behind our back: then nothing but the lease tells of the run.
func aFirstRunWhoseRecordIsSpoiltEnds(t *testing.T, e *Env) {
	for _, spoilt := range []string{"", "x", "1", "2", "2" + strings.Repeat("0", 29), "2" + strings.Repeat("0", 58) + "5"} {
		for _, verb := range []store.Verb{store.Complete, store.Retry, store.Release, store.Bury, 0} {
			l := e.hold(t)
			if spoilt == "" {
				e.loseRecord(t, l.Job.ID)
			} else {
				e.put(t, "HSET", e.Key(instance, "jobs"), l.Job.ID[:], spoilt)
			}
			if got := e.beat(t, store.Beat{Lease: l}); got[0] != store.Held {
				t.Errorf("spoilt as %q: a heartbeat got %v", spoilt, got)
			}
			if verb == 0 {
				e.Later(t, lease+time.Millisecond)
				if m := e.Reap(t); len(m.Reaped) != 1 || m.Reaped[0].Job != l.Job.ID || m.Reaped[0].Worker != l.Worker() {
					t.Errorf("spoilt as %q: reaped %+v, want that of %s", spoilt, m.Reaped, l.Worker())
				}
			} else {
				e.end(t, l, verb)
			}
			e.Later(t, time.Minute)
			next := e.one(t)
			got := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(3)}).Leases
			for _, l := range got {
				e.end(t, l, map[bool]store.Verb{true: store.Bury, false: store.Complete}[l.Broken != nil])
			}
			e.Want(t, store.Done, next)
			if s := e.Stats(t); s.Done+s.Dead != 2 || s.Todo+s.Scheduled+s.Doing > 0 {
				t.Errorf("spoilt as %q and ended by %v: %+v", spoilt, verb, s)
			}
			if holders, err := e.Store.Workers(t.Context(), instance); err != nil || len(holders) > 0 {
				t.Errorf("spoilt as %q and ended by %v: %v hold a job, %v", spoilt, verb, holders, err)
			}
			e.wipe(t)
		}
	}
}

// Records of up to 1,024 bytes are rewritten at the first claim, which adds 29 to them.
func theFormOfARecordDoesNotShow(t *testing.T, e *Env) {
	for _, priority := range []int{1, 5, 10} {
		var jobs []store.NewJob
		for _, size := range []int{40, 994, 995, 996, 1023, 1024, 1025, 1053, 1054} {
			jobs = append(jobs, store.NewJob{Priority: priority, Payload: []byte(`"` + strings.Repeat("x", size-34) + `"`)})
		}
		ids, crew := e.Enqueue(t, jobs...), workers(len(jobs))
		var leases []*store.Lease
		claims := func(when string, attempt, crashes int) {
			t.Helper()
			leases = e.Exchange(t, e.Terms(), store.Exchange{Claims: crew}).Leases
			wantIDs(t, when, jobIDs(leases), ids)
			again := e.Exchange(t, e.Terms(), store.Exchange{Claims: crew}).Leases
			for i, l := range leases {
				if l.Broken != nil || l.Job.Attempt != attempt || l.Job.Crashes != crashes || l.Job.Priority != priority {
					t.Errorf("%s: job %d is %+v (%v), want attempt %d after %d crashes", when, i, l.Job, l.Broken, attempt, crashes)
				}
				if got, want := fmt.Sprintf("%+v", again[i].Job), fmt.Sprintf("%+v", l.Job); got != want {
					t.Errorf("%s: handed over again, job %d is %s, was %s", when, i, got, want)
				}
				if j := e.Job(t, ids[i]); j.Attempt != attempt || j.Crashes != crashes || j.Worker != crew[i] || !j.StartedAt.Equal(l.Job.StartedAt) {
					t.Errorf("%s: job %d is shown as %+v", when, i, j)
				}
			}
		}
		all := func(v store.Verb) {
			for _, l := range leases {
				e.end(t, l, v)
				e.Later(t, 2*time.Millisecond) // those that are retried come in this order
			}
		}
		claims("at first", 1, 0)
		all(store.Release)
		claims("released", 1, 0)
		e.Later(t, lease+time.Millisecond)
		e.Reap(t)
		claims("reaped", 1, 1)
		all(store.Retry)
		e.Later(t, time.Minute)
		claims("retried", 2, 0)
		all(store.Bury)
		for _, id := range ids {
			must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
		}
		claims("requeued", 1, 0)
		all(store.Complete)
		e.wipe(t)
	}
}

// Whatever was made of the record, a script must not stumble over what it is then told: it would have done half of its work.
func whatIsHandedOverOfASpoiltRunIsReleased(t *testing.T, e *Env) {
	for _, rest := range []string{"", strings.Repeat("0", 20), strings.Repeat("0", 13) + strings.Repeat("x", 16) + "5\x00{}"} {
		for _, found := range []bool{false, true} {
			l := e.hold(t)
			w := l.Worker()
			e.put(t, "HSET", e.Key(instance, "jobs"), l.Job.ID[:], "2"+strings.Repeat("0", 13)+string(w[:])+rest)
			other := e.hold(t)
			var got []*store.Lease
			if found {
				var err error
				_, got, err = e.Runtime.Heartbeat(t.Context(), e.Terms(), nil, []uuid.UUID{w})
				must(t, err)
			} else {
				got = e.Exchange(t, e.Terms(), store.Exchange{Claims: []uuid.UUID{w}}).Leases
			}
			for _, l := range got {
				e.Exchange(t, e.Terms(), store.Exchange{Finishes: []store.Finish{{Lease: other, Verb: store.Complete}, {Lease: l, Verb: store.Release}}})
				e.Want(t, store.Done, other.Job.ID)
			}
			if len(got) != 1 {
				t.Errorf("spoilt with %q: %d leases were handed over, want 1", rest, len(got))
			}
			e.wipe(t)
		}
	}
}
