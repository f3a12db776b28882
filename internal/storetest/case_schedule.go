package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Milliseconds, and never early. People report of systems like this: delays fire early, sub-second ones are rounded away.
func scheduleCases() []Case {
	return named(aJobNeverStartsBeforeItsTime, delaysAreMillisecondsRoundedUp, aClaimSaysWhenToLookAgain,
		thousandsDueAtOnceArePromotedInBoundedBatchesInDueOrder, timeInThePastIsNow,
		aClaimSaysSinceWhenTheJobCouldRun)
}

func aJobNeverStartsBeforeItsTime(t *testing.T, e *Env) {
	const delay = 250 * time.Millisecond
	retried := e.hold(t)
	before := e.Now(t)
	ids := []uuid.UUID{e.Enqueue(t, store.NewJob{Delay: delay})[0], e.Enqueue(t, store.NewJob{At: before.Add(delay)})[0]}
	if j := e.Job(t, ids[1]); !j.RunAt.Equal(before.Add(delay)) && j.State == store.Scheduled {
		t.Errorf("due at %v, want %v", j.RunAt, before.Add(delay))
	}
	e.Finish(t, store.Finish{Verb: store.Retry, Delay: delay}, retried)
	ids = append(ids, retried.Job.ID)
	due := map[uuid.UUID]time.Time{}
	for _, id := range ids {
		due[id] = e.Job(t, id).RunAt
	}
	if e.Fake {
		time.Sleep(delay - time.Millisecond)
		if n := len(e.Claim(t, 1)); n != 0 {
			t.Errorf("claimed %d jobs a millisecond early", n)
		}
		time.Sleep(time.Millisecond)
		if n := len(e.Claim(t, 3)); n != 3 {
			t.Errorf("claimed %d jobs in time, want 3", n)
		}
		return
	}
	claimed := 0
	for start := time.Now(); claimed < 3 && time.Since(start) < 10*time.Second; {
		for _, l := range e.Claim(t, 1) {
			claimed++
			if j := l.Job; j.StartedAt.Before(due[j.ID]) {
				t.Errorf("started at %v, due at %v", j.StartedAt, due[j.ID])
			}
		}
	}
	if claimed != 3 {
		t.Errorf("claimed %d jobs, want 3", claimed)
	}
}

func delaysAreMillisecondsRoundedUp(t *testing.T, e *Env) {
	for delay, want := range map[time.Duration]time.Duration{
		1: time.Millisecond, time.Millisecond: time.Millisecond, 1500 * time.Microsecond: 2 * time.Millisecond,
		time.Hour + 1: time.Hour + time.Millisecond, 750 * time.Millisecond: 750 * time.Millisecond,
		100 * 365 * 24 * time.Hour: 100 * 365 * 24 * time.Hour,
	} {
		for _, priority := range []int{1, 10} {
			before := e.Now(t)
			id := e.Enqueue(t, store.NewJob{Delay: delay, Priority: priority})[0]
			if j := e.Job(t, id); j.RunAt.Before(before.Add(want)) || j.RunAt.After(e.Now(t).Add(want)) || j.State != store.Scheduled {
				t.Errorf("%v from now is %s at %v, want %v", delay, j.State, j.RunAt.Sub(before), want)
			}
			must(t, e.Store.Delete(t.Context(), id))
			l := e.hold(t)
			before = e.Now(t)
			e.Finish(t, store.Finish{Verb: store.Snooze, Delay: delay}, l)
			if j := e.Job(t, l.Job.ID); j.RunAt.Before(before.Add(want)) || j.RunAt.After(e.Now(t).Add(want)) {
				t.Errorf("snoozed for %v it is due in %v, want %v", delay, j.RunAt.Sub(before), want)
			}
			must(t, e.Store.Delete(t.Context(), l.Job.ID))
		}
	}
	base := time.Date(2035, 5, 6, 7, 8, 9, 123_000_000, time.UTC)
	for at, want := range map[time.Time]time.Time{
		base: base, base.Add(1): base.Add(time.Millisecond), base.Add(999_999): base.Add(time.Millisecond),
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC): time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	} {
		if j := e.Job(t, e.Enqueue(t, store.NewJob{At: at})[0]); !j.RunAt.Equal(want) {
			t.Errorf("at %v it is due at %v, want %v", at, j.RunAt, want)
		}
	}
}

func aClaimSaysWhenToLookAgain(t *testing.T, e *Env) {
	next := func() time.Duration {
		t.Helper()
		return e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(1)}).Next
	}
	if got := next(); got >= 0 {
		t.Errorf("with no job the next look is after %v, want never", got)
	}
	e.Enqueue(t, store.NewJob{Delay: time.Hour}, store.NewJob{Delay: time.Minute, Priority: 1}, store.NewJob{Delay: time.Minute + 7*time.Millisecond})
	got := next()
	if got > time.Minute || got < time.Minute/2 || e.Fake && got != time.Minute {
		t.Errorf("the next look is after %v, want a minute", got)
	}
	e.Later(t, got)
	got = next()
	if got > time.Second || e.Fake && got != 7*time.Millisecond {
		t.Errorf("after the first the next look is after %v, want 7 ms", got)
	}
	e.Add(t, 2)
	if got := next(); got != 0 {
		t.Errorf("with a job left the next look is after %v, want at once", got)
	}
}

func thousandsDueAtOnceArePromotedInBoundedBatchesInDueOrder(t *testing.T, e *Env) {
	const n = 2_500
	jobs := newJobs(n)
	for i := range jobs { // enqueued from the last to be due to the first
		jobs[n-1-i].Delay = time.Duration(60_000+n-1-i) * time.Millisecond
	}
	var want []uuid.UUID
	for i := range jobs {
		want = append(want, jobs[i].ID)
	}
	last := jobs[0]
	shuffled := append(append([]store.NewJob{}, jobs[1:]...), last)
	if e.Fake { // all in one instant, so that due order is the order of delays
		e.Enqueue(t, shuffled...)
	} else {
		at := e.Now(t).Add(time.Hour)
		for i := range shuffled {
			shuffled[i].At, shuffled[i].Delay = at.Add(shuffled[i].Delay), 0
		}
		e.Enqueue(t, shuffled...)
	}
	e.Later(t, 2*time.Hour)
	var got []uuid.UUID
	for call := 0; len(got) < n && call < 10; call++ {
		before := e.Stats(t).Scheduled
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(900)})
		if promoted := before - e.Stats(t).Scheduled; promoted > store.MaxCall {
			t.Errorf("a claim promoted %d jobs", promoted)
		}
		got = append(got, jobIDs(out.Leases)...)
		if len(got) < n && out.Next != 0 {
			t.Errorf("%d are left, and the next look is after %v", n-len(got), out.Next)
		}
	}
	wantIDs(t, "claimed", got, want)
}

func timeInThePastIsNow(t *testing.T, e *Env) {
	for _, at := range []time.Time{e.Now(t), e.Now(t).Add(-time.Hour), time.Unix(-5, 0), time.UnixMilli(1)} {
		e.Want(t, store.Todo, e.Enqueue(t, store.NewJob{At: at})[0])
	}
	if n := len(e.Claim(t, 10)); n != 4 {
		t.Errorf("claimed %d jobs, want 4", n)
	}
}

// What a job has waited for is told by its first claim from when it was due, however late that comes, and by later ones from when
// it was todo again.
func aClaimSaysSinceWhenTheJobCouldRun(t *testing.T, e *Env) {
	since := func(what string, from, to time.Time) *store.Lease {
		t.Helper()
		l := e.claimOne(t)
		if to.IsZero() { // until now
			to = e.Now(t)
		}
		if l.Job.RunAt.Before(from) || l.Job.RunAt.After(to) {
			t.Errorf("%s could run since %v, want %v to %v", what, l.Job.RunAt, from, to)
		}
		return l
	}
	before := e.Now(t)
	e.one(t)
	after := e.Now(t)
	e.Later(t, time.Second)
	l := since("a job without a time", before, after)

	e.Finish(t, store.Finish{Verb: store.Retry, Delay: time.Second}, l)
	e.Later(t, time.Minute)
	before = e.Now(t)
	l = since("a retried job", before, time.Time{})

	before = e.Now(t)
	e.Finish(t, store.Finish{Verb: store.Bury}, l)
	must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.RequeueMode{}))
	after = e.Now(t)
	e.Later(t, time.Minute)
	l = since("a requeued job", before, after)
	e.Finish(t, store.Finish{Verb: store.Complete}, l)

	before = e.Now(t)
	for what, job := range map[string]store.NewJob{
		"a delayed job": {Delay: time.Minute}, "a job of a time": {At: before.Add(time.Minute)},
	} {
		before = e.Now(t)
		e.Enqueue(t, job)
		after = e.Now(t)
		e.Later(t, time.Hour)
		from, to := before.Add(time.Minute), after.Add(time.Minute)
		if !job.At.IsZero() {
			from, to = job.At, job.At
			if from.Before(before) { // it is past by the other's hour
				from, to = before, after
			}
		}
		l := since(what, from, to)
		e.Finish(t, store.Finish{Verb: store.Complete}, l)
	}
	before = e.Now(t)
	e.Enqueue(t, store.NewJob{At: before.Add(-time.Hour)})
	since("a job of a past time", before, e.Now(t))
}
