package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A job that was not claimed by its deadline is dead.
func deadlineCases() []Case {
	return named(aClaimMakesAJobPastItsDeadlineDead, aScheduledJobPastItsDeadlineIsDead, aReapFindsWhatWaitsPastItsDeadline,
		thousandsPastTheirDeadlineAreFoundInBoundedCalls, aDoingJobHasNoDeadline, aJobGivenBackKeepsItsDeadline,
		requeueDropsTheDeadline, aDeadlineIsKeptToTheMillisecond, anAwaitedJobPastItsDeadlineIsAnnounced)
}

const soon = time.Minute

// by returns a job with a deadline in so much time.
func (e *Env) by(t testing.TB, d time.Duration) store.NewJob {
	t.Helper()
	return store.NewJob{ID: uuid.New(), Payload: []byte(`{}`), Deadline: e.Now(t).Add(d)}
}

// wantExpired fails the test unless the job died of its deadline, and no more than the given attempts were charged.
func (e *Env) wantExpired(t testing.TB, id uuid.UUID, attempts int) {
	t.Helper()
	j := e.Job(t, id)
	if j.State != store.Dead || !strings.Contains(j.LastError, "deadline") || j.Attempt != attempts || j.Crashes != 0 {
		t.Errorf("it is %s (%q) after %d attempts and %d crashes; want dead by its deadline after %d", j.State, j.LastError, j.Attempt, j.Crashes, attempts)
	}
	if j.FinishedAt.IsZero() || j.FinishedAt.Before(j.EnqueuedAt) {
		t.Errorf("it ended at %v", j.FinishedAt)
	}
}

func aClaimMakesAJobPastItsDeadlineDead(t *testing.T, e *Env) {
	late := e.Enqueue(t, e.by(t, soon), e.by(t, soon))
	good := e.Enqueue(t, store.NewJob{}, e.by(t, 10*soon), store.NewJob{})
	e.Later(t, soon+time.Second)
	var expired, claimed []uuid.UUID
	for range 10 { // for one worker at a time
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(1)})
		expired, claimed = append(expired, out.Expired...), append(claimed, jobIDs(out.Leases)...)
		if len(claimed) < len(good) && out.Next != 0 {
			t.Errorf("%d jobs are left, and the next look is after %v", len(good)-len(claimed), out.Next)
		}
	}
	wantIDs(t, "expired", expired, late)
	wantIDs(t, "claimed", claimed, good)
	for _, id := range late {
		e.wantExpired(t, id, 0)
	}
	if m := e.Reap(t); len(m.Expired) != 0 || m.Missing != 0 {
		t.Errorf("a reap after that says %+v", m)
	}
}

func aScheduledJobPastItsDeadlineIsDead(t *testing.T, e *Env) {
	late := e.by(t, soon)
	late.Delay = 2 * soon
	e.Enqueue(t, late)
	e.Later(t, 3*soon)
	out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(5)})
	wantIDs(t, "expired", out.Expired, []uuid.UUID{late.ID})
	e.wantExpired(t, late.ID, 0)
}

func aReapFindsWhatWaitsPastItsDeadline(t *testing.T, e *Env) {
	parked, suspected, retried := e.by(t, 10*soon), e.by(t, 10*soon), e.by(t, 10*soon)
	e.Enqueue(t, parked)
	e.park(t, parked.ID)
	e.Enqueue(t, suspected)
	e.crash(t)
	e.crash(t)
	e.Enqueue(t, retried)
	must(t, e.Store.Pause(t.Context(), instance))
	scheduled := e.by(t, 10*soon)
	scheduled.Delay = 20 * soon
	ids := append(e.Enqueue(t, e.by(t, 10*soon), scheduled), parked.ID, suspected.ID, retried.ID)
	kept := e.Enqueue(t, store.NewJob{}, e.by(t, 30*soon))
	if m := e.Reap(t); len(m.Expired) != 0 {
		t.Errorf("%d expired before their time", len(m.Expired))
	}
	e.Later(t, 10*soon+time.Second)
	m := e.Reap(t)
	if len(m.Expired) != len(ids) || m.Missing != 0 || len(m.Reaped) != 0 {
		t.Errorf("a reap says %+v, want %d expired", m, len(ids))
	}
	for _, id := range ids {
		if !slices.Contains(m.Expired, id) {
			t.Errorf("job %s did not expire", id)
		}
		e.Want(t, store.Dead, id)
	}
	e.wantExpired(t, ids[0], 0)
	e.Want(t, store.Todo, kept...)
	if s := e.Stats(t); s.Dead != int64(len(ids)) || s.Total != int64(len(ids)+len(kept)) {
		t.Errorf("stats are %+v", s)
	}
}

func thousandsPastTheirDeadlineAreFoundInBoundedCalls(t *testing.T, e *Env) {
	const n = 2_500
	at := e.Now(t).Add(soon)
	jobs := newJobs(n)
	for i := range jobs {
		jobs[i].Deadline = at
	}
	e.Enqueue(t, jobs...)
	left := e.one(t)
	e.Later(t, soon+10*time.Second)
	got := map[uuid.UUID]bool{}
	for call := 1; ; call++ {
		m := e.Reap(t)
		for _, id := range m.Expired {
			got[id] = true
		}
		if len(m.Expired) > reapStep || m.Missing != 0 || call > n/reapStep+1 {
			t.Fatalf("call %d brought %d, %d are missing", call, len(m.Expired), m.Missing)
		}
		if m.Next != 0 {
			break
		}
	}
	if s := e.Stats(t); len(got) != n || s.Dead != n || s.Todo != 1 {
		t.Errorf("%d expired, stats are %+v; want %d", len(got), s, n)
	}
	e.Want(t, store.Todo, left)
}

func aDoingJobHasNoDeadline(t *testing.T, e *Env) {
	e.Enqueue(t, e.by(t, soon))
	l := e.claimOne(t)
	if at := l.Job.Deadline; at.IsZero() {
		t.Error("the claim does not tell the deadline")
	}
	for range 5 {
		e.Later(t, lease-time.Second)
		if v := e.beat(t, store.Beat{Lease: l})[0]; v != store.Held {
			t.Fatalf("a heartbeat got %v", v)
		}
		if m := e.Reap(t); len(m.Expired)+len(m.Reaped) != 0 {
			t.Errorf("a reap says %+v", m)
		}
	}
	e.end(t, l, store.Complete)
	e.Want(t, store.Done, l.Job.ID)
}

func aJobGivenBackKeepsItsDeadline(t *testing.T, e *Env) {
	for _, past := range []bool{false, true} { // whether it has passed when the job is given back
		for _, found := range []string{"claim", "reap"} {
			for _, way := range []string{"release", "retry", "snooze", "reap"} {
				id := e.Enqueue(t, e.by(t, soon))[0]
				l := e.claimOne(t)
				attempts := 0
				if past {
					e.Later(t, soon-lease/2)
					e.beat(t, store.Beat{Lease: l})
					e.Later(t, lease-time.Second)
				}
				switch way {
				case "release":
					e.end(t, l, store.Release)
				case "retry":
					attempts = 1
					e.end(t, l, store.Retry)
				case "snooze":
					e.end(t, l, store.Snooze)
				case "reap":
					e.Later(t, lease+time.Second)
					e.Reap(t)
				}
				e.Later(t, soon)
				if found == "claim" {
					e.Claim(t, 1)
				} else {
					e.Reap(t)
				}
				j := e.Job(t, id)
				if j.State != store.Dead || !strings.Contains(j.LastError, "deadline") || j.Attempt != attempts {
					t.Errorf("given back by %s (past: %v), found by %s: it is %s (%q) after %d attempts", way, past, found, j.State, j.LastError, j.Attempt)
				}
				e.Check(t)
				must(t, e.Store.DeleteInstance(t.Context(), instance, true))
			}
		}
	}
}

func requeueDropsTheDeadline(t *testing.T, e *Env) {
	id := e.Enqueue(t, e.by(t, soon))[0]
	e.Later(t, soon+time.Second)
	e.Reap(t)
	must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
	if m := e.Reap(t); len(m.Expired) != 0 {
		t.Error("it expired again")
	}
	e.Want(t, store.Todo, id)
	e.end(t, e.claimOne(t), store.Release)
	if m := e.Reap(t); len(m.Expired) != 0 {
		t.Error("it expired after its release")
	}
	e.end(t, e.claimOne(t), store.Complete)
	e.Want(t, store.Done, id)
}

func aDeadlineIsKeptToTheMillisecond(t *testing.T, e *Env) {
	if e.Fake {
		id := e.Enqueue(t, e.by(t, soon))[0]
		e.Later(t, soon-time.Millisecond)
		if m := e.Reap(t); len(m.Expired) != 0 {
			t.Error("it expired a millisecond early")
		}
		e.end(t, e.claimOne(t), store.Release)
		e.Later(t, time.Millisecond)
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(1)})
		wantIDs(t, "expired", out.Expired, []uuid.UUID{id})
	}
	past := e.Enqueue(t, e.by(t, -time.Hour))[0] // accepted, and never run
	if n := len(e.Claim(t, 1)); n != 0 {
		t.Errorf("claimed %d jobs past their deadline", n)
	}
	e.wantExpired(t, past, 0)
}

func anAwaitedJobPastItsDeadlineIsAnnounced(t *testing.T, e *Env) {
	for _, found := range []string{"claim", "reap"} {
		id := e.Enqueue(t, e.by(t, time.Second))[0]
		a := e.listen(t, e.Runtime.EndedChannel(id))
		must(t, errOf(e.Runtime.Await(t.Context(), instance, id)))
		e.Later(t, 2*time.Second)
		if found == "claim" {
			e.Claim(t, 1)
		} else {
			e.Reap(t)
		}
		if m := a.hear(t, store.Ended); m.Job != id {
			t.Errorf("%s: heard of %s", found, m.Job)
		}
	}
}
