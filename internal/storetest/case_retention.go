package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What is kept of the jobs that have ended, and for whom.
func retentionCases() []Case {
	return named(theLatestAreKeptWhenThereAreTooMany, whatIsTooOldIsTrimmed, aZeroBoundIsUnset, nothingIsKeptWhenBothAreZero,
		deadJobsHaveTheirOwnBounds, manyExpiredAtOnceAreTrimmedInBoundedCalls)
}

// finishAll ends leases in one call under other terms than usual.
func (e *Env) finishAll(t *testing.T, terms store.Terms, v store.Verb, leases ...*store.Lease) store.Exchanged {
	t.Helper()
	var x store.Exchange
	for _, l := range leases {
		x.Finishes = append(x.Finishes, store.Finish{Lease: l, Verb: v, Error: "e", Result: []byte(`1`), Progress: []byte(`2`)})
	}
	return e.Exchange(t, terms, x)
}

func theLatestAreKeptWhenThereAreTooMany(t *testing.T, e *Env) {
	terms := e.Terms()
	terms.Done.Count, terms.Dead.Count = 3, 2
	trimmed := map[store.State]int{}
	for verb, c := range map[store.Verb]struct {
		state store.State
		keep  int
	}{store.Complete: {store.Done, 3}, store.Cancel: {store.Cancelled, 3}, store.Bury: {store.Dead, 2}} {
		var ids []uuid.UUID
		for range 5 {
			l := e.hold(t)
			ids = append(ids, l.Job.ID)
			trimmed[c.state] += e.finishAll(t, terms, verb, l).Trimmed
			e.Later(t, time.Millisecond)
		}
		slices.Reverse(ids)
		wantIDs(t, string(c.state), e.Listed(t, c.state), ids[:c.keep])
		for _, id := range ids[c.keep:] {
			e.WantGone(t, id)
		}
		if trimmed[c.state] != 5-c.keep {
			t.Errorf("%d trimmed jobs were reported, want %d", trimmed[c.state], 5-c.keep)
		}
	}
	e.Add(t, 10)
	if out := e.finishAll(t, terms, store.Complete, e.Claim(t, 10)...); out.Trimmed != 10 {
		t.Errorf("10 at once: %d trimmed jobs were reported, want 10", out.Trimmed)
	}
	if s := e.Stats(t); s.Done != 3 {
		t.Errorf("10 at once: %d are kept, want 3", s.Done)
	}
}

func whatIsTooOldIsTrimmed(t *testing.T, e *Env) {
	terms := e.Terms()
	terms.Done.Age, terms.Dead.Age = time.Hour, 2*time.Hour
	reap := func() map[store.State]int { return e.reap(t, terms).Trimmed }
	e.Add(t, 3)
	held := e.Claim(t, 3)
	e.finishAll(t, terms, store.Complete, held[0])
	e.finishAll(t, terms, store.Cancel, held[1])
	e.finishAll(t, terms, store.Bury, held[2])
	waiting := e.one(t)
	e.Later(t, time.Hour-time.Minute)
	if got := reap(); len(got) != 0 {
		t.Errorf("before the time: trimmed %v", got)
	}
	e.Later(t, time.Minute)
	if got := reap(); got[store.Done] != 1 || got[store.Cancelled] != 1 || len(got) != 2 {
		t.Errorf("after an hour: trimmed %v, want one done and one cancelled", got)
	}
	e.Later(t, time.Hour)
	if got := reap(); got[store.Dead] != 1 || len(got) != 1 {
		t.Errorf("after two hours: trimmed %v, want one dead", got)
	}
	for _, l := range held {
		e.WantGone(t, l.Job.ID)
	}
	e.Want(t, store.Todo, waiting)
}

func aZeroBoundIsUnset(t *testing.T, e *Env) {
	for _, kept := range []store.Retention{{Age: time.Hour}, {Count: 2}} {
		terms := e.Terms()
		terms.Done = kept
		e.Add(t, 4)
		e.finishAll(t, terms, store.Complete, e.Claim(t, 4)...)
		e.Later(t, time.Minute)
		e.reap(t, terms)
		want := int64(4)
		if kept.Count > 0 {
			want = 2
			e.Later(t, 1000*time.Hour)
			e.reap(t, terms)
		}
		if s := e.Stats(t); s.Done != want {
			t.Errorf("with %+v %d are kept, want %d", kept, s.Done, want)
		}
		for _, id := range e.Listed(t, store.Done) {
			must(t, e.Store.Delete(t.Context(), id))
		}
	}
}

func nothingIsKeptWhenBothAreZero(t *testing.T, e *Env) {
	terms := e.Terms()
	terms.Done = store.Retention{}
	for _, v := range []store.Verb{store.Complete, store.Cancel, store.Bury} {
		l := e.hold(t)
		if got := e.finishAll(t, terms, v, l).Ended[0]; !got.Terminal() {
			t.Errorf("%q led to %q", v, got)
		}
		if v == store.Bury {
			e.Want(t, store.Dead, l.Job.ID) // what failed is not thrown away
			must(t, e.Store.Delete(t.Context(), l.Job.ID))
		} else {
			e.WantGone(t, l.Job.ID)
		}
	}
	// What was cancelled while it waited goes with the next maintenance.
	id := e.one(t)
	must(t, e.Store.Cancel(t.Context(), id))
	if m := e.reap(t, terms); m.Trimmed[store.Cancelled] != 1 {
		t.Errorf("a reap trimmed %v, want one cancelled", m.Trimmed)
	}
	if s := e.Stats(t); s.Total != 0 {
		t.Errorf("%d jobs are left", s.Total)
	}
}

func deadJobsHaveTheirOwnBounds(t *testing.T, e *Env) {
	terms := e.Terms()
	terms.Done, terms.Dead = store.Retention{Count: 1}, store.Retention{}
	l := e.hold(t)
	if out := e.finishAll(t, terms, store.Bury, l); out.Ended[0] != store.Dead || out.Trimmed != 1 {
		t.Errorf("got %+v, want dead and trimmed", out)
	}
	e.WantGone(t, l.Job.ID)
	id := e.one(t)
	e.crash(t)
	e.crash(t)
	e.claimOne(t)
	e.Later(t, lease+time.Millisecond)
	if m := e.reap(t, terms); m.Trimmed[store.Dead] != 1 || m.Reaped[0].State != store.Dead {
		t.Errorf("got %+v, want dead and trimmed", m)
	}
	e.WantGone(t, id)
}

// longDone makes n copies of the one job that there is, done two days ago: faster than to run them all.
func (e *Env) longDone(t *testing.T, n int) {
	t.Helper()
	ctx, end := t.Context(), e.Now(t).Add(-48*time.Hour).UnixMilli()
	copied := map[string]string{}
	for _, key := range []string{"jobs", "runs"} {
		all := e.Raw.HGetAll(ctx, e.Key(instance, key)).Val()
		delete(all, "")
		for _, v := range all {
			copied[key] = v
		}
	}
	for range n / store.MaxCall {
		ended := []any{"ZADD", e.Key(instance, "done")}
		fields := map[string][]any{}
		for range store.MaxCall {
			id := uuid.New()
			ended = append(ended, end, id[:])
			for key, v := range copied {
				fields[key] = append(fields[key], id[:], v)
			}
		}
		for key, f := range fields {
			e.put(t, append([]any{"HSET", e.Key(instance, key)}, f...)...)
		}
		e.put(t, ended...)
	}
}

// People report of systems like this: what expires at once by the thousand is trimmed half-way.
func manyExpiredAtOnceAreTrimmedInBoundedCalls(t *testing.T, e *Env) {
	n := e.size(5_000, 100_000)
	recent := e.hold(t)
	e.end(t, recent, store.Complete)
	e.longDone(t, n)
	if s := e.Stats(t); s.Done != int64(n)+1 {
		t.Fatalf("%d are done, want %d", s.Done, n+1)
	}
	total := 0
	for call := 1; ; call++ {
		m := e.Reap(t)
		if got := m.Trimmed[store.Done]; got > reapStep {
			t.Errorf("a call trimmed %d", got)
		}
		total += m.Trimmed[store.Done]
		if m.Next != 0 {
			break
		}
		if call > n/reapStep+1 {
			t.Fatalf("not over after %d calls", call)
		}
	}
	if s := e.Stats(t); total != n || s.Total != 1 {
		t.Errorf("trimmed %d, %d are left; want %d and 1", total, s.Total, n)
	}
}
