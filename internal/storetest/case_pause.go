package storetest

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// A pause stops claims and nothing else.
func pauseCases() []Case {
	return named(aPausedInstanceGivesNothing, whatIsDoingGoesOnWhilePaused, aPauseIsOfOneInstance)
}

func aPausedInstanceGivesNothing(t *testing.T, e *Env) {
	ctx := t.Context()
	ids := e.Add(t, 2)
	due := e.Enqueue(t, store.NewJob{Delay: time.Second})
	for range 2 { // the second changes nothing
		must(t, e.Store.Pause(ctx, instance))
	}
	e.Later(t, time.Second)
	ids = append(ids, e.one(t))
	out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(5)})
	if len(out.Leases) != 0 || out.Next >= 0 {
		t.Errorf("paused, a claim got %d jobs and is to look again after %v; want none, never", len(out.Leases), out.Next)
	}
	if s := e.Stats(t); !s.Paused || s.Todo != 3 || s.Scheduled != 1 {
		t.Errorf("paused, the stats are %+v", s)
	}
	for range 2 {
		must(t, e.Store.Resume(ctx, instance))
	}
	if s := e.Stats(t); s.Paused {
		t.Error("resumed, the stats say paused")
	}
	wantIDs(t, "resumed, claimed", jobIDs(e.Claim(t, 5)), append(ids, due...))
}

func whatIsDoingGoesOnWhilePaused(t *testing.T, e *Env) {
	ctx := t.Context()
	e.Add(t, 3)
	held := e.Claim(t, 3)
	must(t, e.Store.Pause(ctx, instance))
	if got := e.beat(t, store.Beat{Lease: held[0]}); got[0] != store.Held {
		t.Errorf("a heartbeat got %v", got)
	}
	mine := held[1].Worker()
	if out := e.Exchange(t, e.Terms(), store.Exchange{Claims: append(workers(1), mine)}); len(out.Leases) != 1 || out.Leases[0].Worker() != mine {
		t.Errorf("paused, a claim got %d jobs; want the one that its worker holds", len(out.Leases))
	}
	e.Finish(t, store.Finish{Verb: store.Complete}, held[0])
	e.Finish(t, store.Finish{Verb: store.Release}, held[1])
	e.Later(t, lease+time.Millisecond)
	if m := e.Reap(t); len(m.Reaped) != 1 {
		t.Errorf("paused, a reap ended %d leases, want 1", len(m.Reaped))
	}
	if s := e.Stats(t); s.Done != 1 || s.Todo != 2 {
		t.Errorf("stats are %+v, want 1 done and 2 todo", s)
	}
}

func aPauseIsOfOneInstance(t *testing.T, e *Env) {
	e.one(t)
	must(t, e.Store.Pause(t.Context(), instance))
	e.EnqueueTo(t, "other", newJobs(1)...)
	terms := e.Terms()
	terms.Instance = "other"
	if got := e.Exchange(t, terms, store.Exchange{Claims: workers(1)}).Leases; len(got) != 1 {
		t.Errorf("claimed %d jobs of another instance, want 1", len(got))
	}
}
