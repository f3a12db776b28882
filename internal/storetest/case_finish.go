package storetest

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What an exchange and a snapshot say, and where each way to finish leads.
func finishCases() []Case {
	return named(aSnapshotTellsAJobsLife, aFinishLeadsWhereItsVerbSays, aLongErrorIsCutAtARune, onlyACompletedJobHasAResult,
		aWorkerFinishesAndClaimsInOneCall, aReleasedJobMayBeClaimedInTheSameCall, eachFinishHasItsOwnVerdict,
		theNextAttemptIsToldWhatTheLastOneLeft)
}

func aSnapshotTellsAJobsLife(t *testing.T, e *Env) {
	start := e.Now(t)
	id := e.Enqueue(t, store.NewJob{Payload: []byte(`{"a":1}`), Priority: 7})[0]
	j := e.Job(t, id)
	if j.ID != id || j.Instance != instance || j.State != store.Todo || j.Priority != 7 || string(j.Payload) != `{"a":1}` ||
		j.Attempt != 0 || j.Crashes != 0 || j.Result != nil || j.Progress != nil || j.LastError != "" || j.Worker != uuid.Nil {
		t.Errorf("enqueued: %+v", j)
	}
	within := func(what string, at time.Time) {
		t.Helper()
		if now := e.Now(t); at.Before(start) || at.After(now) {
			t.Errorf("%s at %v, want it between %v and %v", what, at, start, now)
		}
	}
	within("enqueued", j.EnqueuedAt)
	within("todo", j.RunAt)
	if !j.StartedAt.IsZero() || !j.FinishedAt.IsZero() || !j.LeaseUntil.IsZero() {
		t.Errorf("times of what has not happened: %+v", j)
	}

	l := e.claimOne(t)
	j = e.Job(t, id)
	within("started", j.StartedAt)
	within("leased", j.LeaseUntil.Add(-lease))
	if j.State != store.Doing || j.Attempt != 1 || j.Worker != l.Worker() || j.Worker == uuid.Nil {
		t.Errorf("claimed: %+v", j)
	}
	if g := l.Job; g.ID != id || g.State != store.Doing || g.Priority != 7 || string(g.Payload) != `{"a":1}` || g.Attempt != 1 ||
		!g.StartedAt.Equal(j.StartedAt) || !g.EnqueuedAt.Equal(j.EnqueuedAt) {
		t.Errorf("the lease says %+v, the store %+v", g, j)
	}

	e.Finish(t, store.Finish{Verb: store.Complete, Result: []byte(`[2]`), Progress: []byte(`"all"`)}, l)
	j = e.Job(t, id)
	within("finished", j.FinishedAt)
	if j.State != store.Done || string(j.Result) != `[2]` || string(j.Progress) != `"all"` || j.Worker != l.Worker() || !j.LeaseUntil.IsZero() {
		t.Errorf("done: %+v", j)
	}
}

func aFinishLeadsWhereItsVerbSays(t *testing.T, e *Env) {
	for _, c := range []struct {
		verb  store.Verb
		state store.State
		delay time.Duration
	}{
		{store.Complete, store.Done, 0}, {store.Retry, store.Scheduled, time.Minute}, {store.Snooze, store.Scheduled, time.Hour},
		{store.Release, store.Todo, 0}, {store.Bury, store.Dead, 0}, {store.Cancel, store.Cancelled, 0},
	} {
		l := e.hold(t)
		before := e.Now(t)
		if got := e.Finish(t, store.Finish{Verb: c.verb, Error: "why", Delay: c.delay}, l)[0]; got != c.state {
			t.Errorf("%q led to %q, want %s", c.verb, got, c.state)
		}
		j := e.Job(t, l.Job.ID)
		if j.State != c.state || (j.LastError == "why") != (c.verb != store.Complete) {
			t.Errorf("after %q: %s, %q", c.verb, j.State, j.LastError)
		}
		if c.state == store.Scheduled && (j.RunAt.Before(before.Add(c.delay)) || j.RunAt.After(e.Now(t).Add(c.delay))) {
			t.Errorf("after %q it is due at %v, want %v after %v", c.verb, j.RunAt, c.delay, before)
		}
		if !j.State.Terminal() {
			must(t, e.Store.Delete(t.Context(), j.ID))
		}
	}
}

func aLongErrorIsCutAtARune(t *testing.T, e *Env) {
	l := e.hold(t)
	e.Finish(t, store.Finish{Verb: store.Bury, Error: "x" + strings.Repeat("ä", 5000)}, l)
	got := e.Job(t, l.Job.ID).LastError
	if len(got) > store.MaxError || len(got) < store.MaxError-3 || !utf8.ValidString(got) {
		t.Errorf("kept %d bytes, valid: %v; want at most %d, of whole runes", len(got), utf8.ValidString(got), store.MaxError)
	}
}

func onlyACompletedJobHasAResult(t *testing.T, e *Env) {
	for _, v := range allVerbs {
		l := e.hold(t)
		e.Finish(t, store.Finish{Verb: v, Result: []byte(`1`), Delay: time.Hour}, l)
		if got := e.Job(t, l.Job.ID).Result; (got != nil) != (v == store.Complete) {
			t.Errorf("after %q the result is %q", v, got)
		}
		if v == store.Release {
			must(t, e.Store.Delete(t.Context(), l.Job.ID))
		}
	}
}

func aWorkerFinishesAndClaimsInOneCall(t *testing.T, e *Env) {
	ids := e.Add(t, 2)
	worker := workers(1)
	l := e.Exchange(t, e.Terms(), store.Exchange{Claims: worker}).Leases[0]
	x := store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Complete}}, Claims: worker}
	out := e.Exchange(t, e.Terms(), x)
	if out.Ended[0] != store.Done || len(out.Leases) != 1 || out.Leases[0].Job.ID != ids[1] || out.Leases[0].Worker() != worker[0] {
		t.Fatalf("got %+v, want the first done and the second claimed", out)
	}
	e.Check(t)
	x.Finishes[0].Lease = out.Leases[0]
	out = e.Exchange(t, e.Terms(), x)
	if out.Ended[0] != store.Done || len(out.Leases) != 0 {
		t.Errorf("got %+v, want the second done and nothing to claim", out)
	}
}

func aReleasedJobMayBeClaimedInTheSameCall(t *testing.T, e *Env) {
	for _, v := range []store.Verb{store.Release, store.Retry, store.Snooze} {
		l := e.hold(t)
		other := workers(1)
		out := e.Exchange(t, e.Terms(), store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: v}}, Claims: other})
		if len(out.Leases) != 1 || out.Leases[0].Job.ID != l.Job.ID || out.Leases[0].Worker() != other[0] {
			t.Fatalf("after %q: got %+v, want the same job for the other worker", v, out)
		}
		e.Check(t)
		e.Want(t, store.Doing, l.Job.ID)
		e.end(t, out.Leases[0], store.Complete)
	}
}

func eachFinishHasItsOwnVerdict(t *testing.T, e *Env) {
	e.Add(t, 4)
	held := e.Claim(t, 4)
	e.end(t, held[1], store.Complete)
	must(t, e.Store.Cancel(t.Context(), held[3].Job.ID))
	out := e.Exchange(t, e.Terms(), store.Exchange{Finishes: []store.Finish{
		{Lease: held[0], Verb: store.Complete}, {Lease: held[1], Verb: store.Complete},
		{Lease: held[2], Verb: store.Bury}, {Lease: held[3], Verb: store.Retry},
	}})
	for i, want := range []store.State{store.Done, "", store.Dead, store.Cancelled} {
		if out.Ended[i] != want {
			t.Errorf("finish %d led to %q, want %q", i, out.Ended[i], want)
		}
	}
}

func theNextAttemptIsToldWhatTheLastOneLeft(t *testing.T, e *Env) {
	e.Add(t, 2)
	held := e.Claim(t, 2)
	e.Finish(t, store.Finish{Verb: store.Retry, Error: "no luck", Progress: []byte(`{"at":7}`)}, held[1])
	e.Finish(t, store.Finish{Verb: store.Release}, held[0])
	again := e.Claim(t, 2)
	if len(again) != 2 {
		t.Fatalf("claimed %d jobs, want 2", len(again))
	}
	for _, l := range again {
		if j := l.Job; j.ID == held[1].Job.ID {
			if j.LastError != "no luck" || string(j.Progress) != `{"at":7}` {
				t.Errorf("the next attempt is told %q and %s", j.LastError, j.Progress)
			}
		} else if j.LastError != "" || j.Progress != nil {
			t.Errorf("the other is told %q and %s", j.LastError, j.Progress)
		}
	}
}
