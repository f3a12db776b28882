package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// GlobalLimit and Rate act inside the claim.
func limitCases() []Case {
	return named(aLimitCountsTheLeasesOfAllProcesses, aCrashLeaksNothingOfALimit, aFreedLimitWakesOne, whatHoldsNothingFreesALimitInTime,
		aLimitedJobIsNotChargedAndKeepsItsPlace,
		aJobGivenBackAndTakenAgainFillsTheLimit, aLimitIsOfOneInstance, aRateSpacesClaims, aRateIsKeptOverTime, aRateChargesNothing,
		aRateGoesOnWhenTheClockGoesBack, theNotesOfALimitGoWithIt)
}

// limited returns terms with a limit, of another process with each call.
func (e *Env) limited(n int) store.Terms {
	terms := e.Terms()
	terms.Process, terms.Limit, terms.MaxCrashes = uuid.New(), n, 10
	return terms
}

func (e *Env) rated(n int, per time.Duration) store.Terms {
	terms := e.Terms()
	terms.Process, terms.Rate = uuid.New(), store.Rate{N: n, Per: per}
	return terms
}

// take claims for n workers under terms and fails the test unless want jobs come.
func (e *Env) take(t testing.TB, what string, terms store.Terms, n, want int) store.Exchanged {
	t.Helper()
	out := e.Exchange(t, terms, store.Exchange{Claims: workers(n)})
	if len(out.Leases) != want {
		t.Errorf("%s: claimed %d jobs, want %d", what, len(out.Leases), want)
	}
	return out
}

func aLimitCountsTheLeasesOfAllProcesses(t *testing.T, e *Env) {
	ids := e.Add(t, 6)
	first := e.take(t, "one process", e.limited(2), 3, 2)
	if first.Next >= 0 {
		t.Errorf("at the limit the next look is after %v, want none", first.Next)
	}
	e.take(t, "another", e.limited(2), 3, 0)
	more := e.take(t, "a higher limit", e.limited(3), 3, 1)
	e.take(t, "a lower one", e.limited(1), 3, 0)
	out := e.Exchange(t, e.limited(3), store.Exchange{
		Finishes: []store.Finish{{Lease: first.Leases[0], Verb: store.Complete}, {Lease: first.Leases[1], Verb: store.Bury}},
		Claims:   append(workers(2), first.Leases[0].Worker(), first.Leases[1].Worker()),
	})
	if len(out.Leases) != 2 {
		t.Errorf("with two finishes claimed %d jobs, want 2", len(out.Leases))
	}
	wantIDs(t, "in order", append(append(jobIDs(first.Leases), jobIDs(more.Leases)...), jobIDs(out.Leases)...), ids[:5])
	if n := e.Stats(t).Doing; n != 3 {
		t.Errorf("%d are doing, want 3", n)
	}
}

func aCrashLeaksNothingOfALimit(t *testing.T, e *Env) {
	e.Add(t, 3)
	for range 2 {
		e.take(t, "before the crash", e.limited(2), 3, 2)
		e.take(t, "at the limit", e.limited(2), 3, 0)
		e.Later(t, lease+time.Second)
		e.take(t, "before the reap", e.limited(2), 3, 0)
		e.reap(t, e.limited(2))
	}
	e.take(t, "after the crashes", e.limited(3), 3, 3)
}

// Ways in which a lease ends that are no finish.
const (
	crashed          store.Verb = '1'
	crashedCancelled store.Verb = '2'
)

func aFreedLimitWakesOne(t *testing.T, e *Env) {
	for _, verb := range []store.Verb{store.Complete, store.Bury, store.Release, store.Retry, store.Snooze, store.Cancel, crashed, crashedCancelled} {
		e.Add(t, 3)
		got := e.take(t, "the first", e.limited(1), 1, 1).Leases
		all := e.listeners(t, 2)
		if verb == crashed || verb == crashedCancelled {
			e.Later(t, lease+time.Second) // before they ask, as they do every few seconds
		}
		for _, w := range all {
			terms := e.limited(1)
			terms.Process = w.process
			if out := e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true}); len(out.Leases) != 0 || out.Next >= 0 {
				t.Errorf("at the limit: %d jobs, next look after %v", len(out.Leases), out.Next)
			}
			e.Later(t, time.Millisecond)
		}
		switch verb {
		default:
			e.finishAll(t, e.limited(1), verb, got...)
		case crashedCancelled: // it does not come back itself
			must(t, e.Store.Cancel(t.Context(), got[0].Job.ID))
			fallthrough
		case crashed:
			e.reap(t, e.limited(1))
		}
		e.wantWoken(t, "finish "+string(verb), all, 0)
		e.take(t, "the freed one", e.limited(1), 2, 1)
		must(t, e.Store.DeleteInstance(t.Context(), instance, true))
	}
}

// A worker that somebody added to the index counts until its time is up.
func whatHoldsNothingFreesALimitInTime(t *testing.T, e *Env) {
	w := uuid.New()
	e.put(t, "ZADD", e.Key(instance, "doing"), 1, w[:])
	e.Add(t, 1)
	terms, all := e.limited(1), e.listeners(t, 1)
	terms.Process = all[0].process
	if out := e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true}); len(out.Leases) != 0 {
		t.Errorf("claimed %d jobs beside it", len(out.Leases))
	}
	if m := e.reap(t, terms); len(m.Reaped) != 0 || m.Missing != 0 {
		t.Errorf("reaped %+v", m)
	}
	e.wantWoken(t, "when its time is up", all, 0)
	e.take(t, "then", terms, 1, 1)
}

func aLimitedJobIsNotChargedAndKeepsItsPlace(t *testing.T, e *Env) {
	first := e.hold(t)
	ids := e.Enqueue(t, store.NewJob{}, store.NewJob{}, store.NewJob{Priority: 9})
	for range 5 {
		e.take(t, "at the limit", e.limited(1), 4, 0)
	}
	for _, id := range ids {
		if j := e.Job(t, id); j.State != store.Todo || j.Attempt != 0 || j.Crashes != 0 || !j.StartedAt.IsZero() {
			t.Errorf("a limited job is %s, attempt %d", j.State, j.Attempt)
		}
	}
	e.end(t, first, store.Complete)
	wantIDs(t, "then claimed", e.drain(t), []uuid.UUID{ids[2], ids[0], ids[1]})
}

func aJobGivenBackAndTakenAgainFillsTheLimit(t *testing.T, e *Env) {
	e.Add(t, 3)
	terms := e.limited(1)
	l := e.take(t, "the first", terms, 1, 1).Leases[0]
	out := e.Exchange(t, terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Release}}, Claims: append(workers(1), l.Worker())})
	if len(out.Leases) != 1 || out.Leases[0].Job.ID != l.Job.ID || out.Next >= 0 {
		t.Errorf("claimed %d jobs, and the next look is after %v; want the same, and none", len(out.Leases), out.Next)
	}
	e.take(t, "the limit is full", terms, 3, 0)
}

func aLimitIsOfOneInstance(t *testing.T, e *Env) {
	e.Add(t, 5)
	e.EnqueueTo(t, "other", newJobs(5)...)
	e.take(t, "limited", e.limited(1), 5, 1)
	other := e.Terms()
	other.Instance = "other"
	e.take(t, "another instance", other, 5, 5)
	rated := e.rated(1, time.Hour)
	e.take(t, "rated", rated, 5, 1)
}

func aRateSpacesClaims(t *testing.T, e *Env) {
	ids := e.Add(t, 5)
	var got []uuid.UUID
	for range 4 {
		out := e.take(t, "in its time", e.rated(1, time.Hour), 3, 1)
		got = append(got, jobIDs(out.Leases)...)
		if out.Next > time.Hour || out.Next < time.Hour-10*time.Second {
			t.Errorf("the next look is after %v, want about an hour", out.Next)
		}
		again := e.take(t, "too early", e.rated(1, time.Hour), 3, 0)
		if again.Next > out.Next || again.Next < out.Next-10*time.Second {
			t.Errorf("too early: the next look is after %v, want %v", again.Next, out.Next)
		}
		if e.Fake { // to the millisecond
			e.Later(t, again.Next-time.Millisecond)
			if last := e.take(t, "a millisecond early", e.rated(1, time.Hour), 3, 0); last.Next != time.Millisecond {
				t.Errorf("a millisecond early the next look is after %v", last.Next)
			}
			e.Later(t, time.Millisecond)
		} else {
			e.Later(t, again.Next)
		}
	}
	wantIDs(t, "claimed", got, ids[:4])
}

// Three processes that look when they are told to; an idle time is not made up for.
func aRateIsKeptOverTime(t *testing.T, e *Env) {
	if !e.Fake {
		return // it takes its time
	}
	const rate = 100
	span := redistest.Size(3, 10)
	want := rate * span
	all := []store.Terms{e.rated(rate, time.Second), e.rated(rate, time.Second), e.rated(rate, time.Second)}
	e.Add(t, 2*want)
	claimed := 0
	run := func() {
		for start := e.Now(t); e.Now(t).Sub(start) < time.Duration(span)*time.Second; {
			next := time.Second
			for _, terms := range all {
				out := e.Exchange(t, terms, store.Exchange{Claims: workers(4)})
				claimed += len(out.Leases)
				if next = min(next, out.Next); out.Next <= 0 && len(out.Leases) == 0 {
					t.Fatalf("nothing claimed, and the next look is after %v", out.Next)
				}
			}
			e.Later(t, next+7*time.Millisecond) // somewhat late
		}
	}
	run()
	if claimed < want*95/100 || claimed > want*105/100 {
		t.Errorf("%d claims in %d s, want %d", claimed, span, want)
	}
	e.Later(t, time.Hour)
	burst := len(e.Exchange(t, all[0], store.Exchange{Claims: workers(500)}).Leases)
	if burst < 1 || burst > 15 {
		t.Errorf("after an idle hour %d claims at once", burst)
	}
}

func aRateChargesNothing(t *testing.T, e *Env) {
	e.take(t, "with no job", e.rated(1, time.Hour), 3, 0)
	id := e.one(t)
	l := e.take(t, "a claim in vain did not count", e.rated(1, time.Hour), 3, 1).Leases[0]
	if l.Job.ID != id {
		t.Errorf("claimed %s", l.Job.ID)
	}
	waits := e.one(t)
	for range 5 {
		e.take(t, "too early", e.rated(1, time.Hour), 3, 0)
	}
	if j := e.Job(t, waits); j.State != store.Todo || j.Attempt != 0 || !j.StartedAt.IsZero() {
		t.Errorf("it is %s, attempt %d", j.State, j.Attempt)
	}
	e.end(t, l, store.Complete)
	e.take(t, "another instance's is not held up", e.rated(0, 0), 3, 1)
}

func aRateGoesOnWhenTheClockGoesBack(t *testing.T, e *Env) {
	for _, back := range []time.Duration{time.Minute, time.Hour, 30 * time.Hour, 3000 * time.Hour} {
		e.Add(t, 3)
		e.take(t, "the first", e.rated(1, 10*time.Second), 3, 1)
		e.Back(t, back)
		out := e.take(t, "right after", e.rated(1, 10*time.Second), 3, 1)
		if out.Next > 10*time.Second || out.Next < 0 {
			t.Errorf("after the clock went back by %v the next look is after %v", back, out.Next)
		}
		must(t, e.Store.DeleteInstance(t.Context(), instance, true))
	}
}

func theNotesOfALimitGoWithIt(t *testing.T, e *Env) {
	e.Add(t, 4)
	terms := e.rated(1, time.Hour)
	terms.Limit = 1
	e.take(t, "with both", terms, 4, 1)
	notes := func() (n int64) {
		for _, field := range []string{"limit", "rate"} {
			if e.Raw.HExists(t.Context(), e.Key(instance, "meta"), field).Val() {
				n++
			}
		}
		return n
	}
	if n := notes(); n != 2 {
		t.Errorf("%d notes are kept, want 2", n)
	}
	e.take(t, "with none", e.Terms(), 4, 3)
	if n := notes(); n != 0 {
		t.Errorf("%d notes are left, want none", n)
	}
}
