package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Changes of many jobs at once, in bounded batches.
func bulkCases() []Case {
	return named(requeueAllTakesWhatTheErrorSelects, bulkChangesAreOfTheStateAsked, bulkChangesAreByAge, bulkChangesAreByInstance,
		cancelAllEndsWhatWaitsAndTellsWhatRuns, cancelAllCountsWhatRunsOnce, cancelAllReachesWhatAHeartbeatMoves,
		requeueAllGoesOnPastWhatDiesAgain, purgeLeavesNoTrace, badBulkFiltersAreRefused)
}

// dead returns n dead jobs, with one of the errors each in turn.
func (e *Env) dead(t *testing.T, n int, reasons ...string) []uuid.UUID {
	t.Helper()
	ids := e.Add(t, n)
	for left := n; left > 0; left -= store.MaxCall {
		var x store.Exchange
		for i, l := range e.Claim(t, min(left, store.MaxCall)) {
			x.Finishes = append(x.Finishes, store.Finish{Lease: l, Verb: store.Bury, Error: reasons[i%len(reasons)]})
		}
		e.Exchange(t, e.Terms(), x)
	}
	return ids
}

func wantN(t testing.TB, what string, n, want int, err error) {
	t.Helper()
	if n != want || err != nil {
		t.Errorf("%s: %d, %v; want %d", what, n, err, want)
	}
}

func requeueAllTakesWhatTheErrorSelects(t *testing.T, e *Env) {
	const n = 2_500
	e.dead(t, n, "timeout: a", "refused", "refused", "refused", "x timeout%d [")
	for text, want := range map[string]int{"timeout%d [": n / 5, "timeouts": 0} {
		got, err := e.Store.RequeueAll(t.Context(), store.Filter{Instance: instance, Error: text})
		wantN(t, text, got, want, err)
	}
	s := e.spy()
	got, err := e.Store.RequeueAll(t.Context(), store.Filter{Instance: instance, State: store.Dead, Error: "refused"})
	wantN(t, "refused", got, n*3/5, err)
	if s.widest > 300 || s.scripts > 120 {
		t.Errorf("it took %d scripts of up to %d arguments", s.scripts, s.widest)
	}
	if st := e.Stats(t); st.Todo != n*4/5 || st.Dead != n/5 {
		t.Errorf("stats are %+v", st)
	}
	page, err := e.Store.List(t.Context(), store.Filter{State: store.Dead, Limit: store.MaxCall})
	must(t, err)
	for _, j := range page.Jobs {
		if j.LastError != "timeout: a" {
			t.Fatalf("%q was not to be left", j.LastError)
		}
	}
	for _, l := range e.Claim(t, 3) {
		if l.Job.Attempt != 1 || l.Job.LastError != "" {
			t.Errorf("requeued it has attempt %d, %q", l.Job.Attempt, l.Job.LastError)
		}
	}
}

func bulkChangesAreOfTheStateAsked(t *testing.T, e *Env) {
	ctx := t.Context()
	ids := e.inEachState(t)
	n, err := e.Store.RequeueAll(ctx, store.Filter{State: store.Cancelled})
	wantN(t, "requeue of cancelled", n, 1, err)
	n, err = e.Store.RequeueAll(ctx, store.Filter{})
	wantN(t, "requeue", n, 1, err)
	e.Want(t, store.Todo, ids[store.Cancelled], ids[store.Dead], ids[store.Todo])
	e.Want(t, store.Done, ids[store.Done])
	n, err = e.Store.CancelAll(ctx, store.Filter{State: store.Scheduled})
	wantN(t, "cancel of scheduled", n, 1, err)
	e.Want(t, store.Cancelled, ids[store.Scheduled])
	n, err = e.Store.Purge(ctx, store.Filter{State: store.Todo})
	wantN(t, "purge of todo", n, 3, err)
	n, err = e.Store.Purge(ctx, store.Filter{State: store.Parked})
	wantN(t, "purge of parked", n, 1, err)
	n, err = e.Store.Purge(ctx, store.Filter{})
	wantN(t, "purge", n, 2, err)
	e.Want(t, store.Doing, ids[store.Doing])
	if s := e.Stats(t); s.Total != 1 || s.Doing != 1 {
		t.Errorf("stats are %+v", s)
	}
}

func bulkChangesAreByAge(t *testing.T, e *Env) {
	ctx := t.Context()
	old := e.dead(t, 3, "e")
	e.Later(t, time.Hour)
	young := e.dead(t, 2, "e")
	e.Later(t, time.Hour)
	f := store.Filter{State: store.Dead, OlderThan: 90 * time.Minute}
	page, err := e.Store.List(ctx, f)
	must(t, err)
	if len(page.Jobs) != 3 {
		t.Errorf("listed %d, want 3", len(page.Jobs))
	}
	n, err := e.Store.RequeueAll(ctx, f)
	wantN(t, "requeue", n, 3, err)
	e.Want(t, store.Todo, old...)
	e.Want(t, store.Dead, young...)
	f.OlderThan = time.Minute
	n, err = e.Store.Purge(ctx, f)
	wantN(t, "purge", n, 2, err)
	if e.Fake { // a place tells since when, and it can't be moved
		e.Later(t, time.Hour)
		e.Add(t, 4)
		e.Later(t, time.Minute)
		n, err = e.Store.CancelAll(ctx, store.Filter{State: store.Todo, OlderThan: 30 * time.Minute})
		wantN(t, "cancel", n, 3, err)
		e.Want(t, store.Cancelled, old...)
	}
}

func bulkChangesAreByInstance(t *testing.T, e *Env) {
	ctx := t.Context()
	e.Add(t, 3)
	other := e.EnqueueTo(t, "other", newJobs(3)...)
	n, err := e.Store.CancelAll(ctx, store.Filter{Instance: instance})
	wantN(t, "cancel", n, 3, err)
	e.Want(t, store.Todo, other...)
	n, err = e.Store.CancelAll(ctx, store.Filter{})
	wantN(t, "cancel", n, 3, err)
	n, err = e.Store.RequeueAll(ctx, store.Filter{Instance: "other", State: store.Cancelled})
	wantN(t, "requeue", n, 3, err)
	n, err = e.Store.Purge(ctx, store.Filter{})
	wantN(t, "purge", n, 3, err)
	e.Want(t, store.Todo, other...)
}

func cancelAllEndsWhatWaitsAndTellsWhatRuns(t *testing.T, e *Env) {
	const n = 2_500
	suspects := e.suspected(t, 2)
	held := e.claimOne(t)
	ids := e.inEachState(t)
	waiting := e.Add(t, n)
	s := e.spy()
	got, err := e.Store.CancelAll(t.Context(), store.Filter{})
	wantN(t, "cancelled", got, n+6, err) // todo, a suspect, scheduled, parked, two doing
	if s.widest > 300 {
		t.Errorf("a script of %d arguments", s.widest)
	}
	e.Want(t, store.Cancelled, waiting[0], waiting[n-1], ids[store.Scheduled], ids[store.Parked])
	e.Want(t, store.Done, ids[store.Done])
	e.Want(t, store.Dead, ids[store.Dead])
	e.Want(t, store.Doing, ids[store.Doing], held.Job.ID)
	if v := e.beat(t, store.Beat{Lease: held})[0]; v != store.CancelRequested {
		t.Errorf("what runs is told %v", v)
	}
	e.end(t, held, store.Retry)
	e.Want(t, store.Cancelled, held.Job.ID)
	e.Want(t, store.Cancelled, suspects...)
}

// A job that is doing stays where it is found.
func cancelAllCountsWhatRunsOnce(t *testing.T, e *Env) {
	const n = 450
	e.Add(t, n)
	e.Claim(t, n)
	for range 2 { // and asking again changes nothing
		e.Later(t, time.Millisecond)
		got, err := e.Store.CancelAll(t.Context(), store.Filter{State: store.Doing})
		wantN(t, "requested", got, n, err)
	}
	if s := e.Stats(t); s.Doing != n || s.Total != n {
		t.Errorf("stats are %+v", s)
	}
}

// A heartbeat puts the job where the page ended behind all others.
func cancelAllReachesWhatAHeartbeatMoves(t *testing.T, e *Env) {
	const n = 250 // a page has 200
	e.Add(t, n)
	leases := e.Claim(t, n)
	e.Later(t, time.Second)
	var beats []store.Beat
	for _, id := range e.Listed(t, store.Doing)[100:200] {
		beats = append(beats, store.Beat{Lease: leases[slices.IndexFunc(leases, func(l *store.Lease) bool { return l.Job.ID == id })]})
	}
	e.spy().pagesEnd(func() { e.beat(t, beats...) })
	got, err := e.Store.CancelAll(t.Context(), store.Filter{State: store.Doing})
	wantN(t, "requested", got, n, err)
	if asked := e.Raw.ZCard(t.Context(), e.Key(instance, "cancels")).Val(); asked != n {
		t.Errorf("%d are to be cancelled, want all %d", asked, n)
	}
}

func requeueAllGoesOnPastWhatDiesAgain(t *testing.T, e *Env) {
	const n = 250
	e.dead(t, n, "e")
	e.Later(t, time.Second)
	e.spy().pagesEnd(func() {
		time.Sleep(2 * time.Millisecond) // by the server's clock one is told from the other
		var x store.Exchange
		for _, l := range e.Claim(t, n) {
			x.Finishes = append(x.Finishes, store.Finish{Lease: l, Verb: store.Bury})
		}
		e.Exchange(t, e.Terms(), x)
	})
	got, err := e.Store.RequeueAll(t.Context(), store.Filter{})
	wantN(t, "requeued", got, n, err)
}

func purgeLeavesNoTrace(t *testing.T, e *Env) {
	const n = 2_500
	e.dead(t, n, "one", "two")
	late := unique(store.UniqueDone, "k")
	late.Deadline = e.Now(t).Add(time.Hour)
	kept := e.Enqueue(t, late)[0]
	got, err := e.Store.Purge(t.Context(), store.Filter{Error: "one"})
	wantN(t, "by error", got, n/2, err)
	got, err = e.Store.Purge(t.Context(), store.Filter{State: store.Dead})
	wantN(t, "the rest", got, n/2, err)
	if s := e.Stats(t); s.Total != 1 {
		t.Errorf("stats are %+v", s)
	}
	must(t, e.Store.Delete(t.Context(), kept))
	for _, key := range []string{"jobs", "errors", "dead", "todo", "progress", "results", "deadlines", "owners", "locks"} {
		if n := e.Raw.Exists(t.Context(), e.Key(instance, key)).Val(); n != 0 {
			t.Errorf("%s is left", key)
		}
	}
}

func badBulkFiltersAreRefused(t *testing.T, e *Env) {
	ctx := t.Context()
	e.inEachState(t)
	e.untouched(t, func() {
		for _, s := range []store.State{store.Scheduled, store.Todo, store.Doing, store.Parked, "running"} {
			wantErr(t, "requeue of "+string(s), errOf(e.Store.RequeueAll(ctx, store.Filter{State: s})), store.ErrInvalid)
		}
		for _, s := range []store.State{store.Done, store.Dead, store.Cancelled, "running"} {
			wantErr(t, "cancel of "+string(s), errOf(e.Store.CancelAll(ctx, store.Filter{State: s})), store.ErrInvalid)
		}
		for _, f := range []store.Filter{{State: store.Doing}, {State: "running"}, {Cursor: "x"}, {Limit: 5}, {Limit: -1}, {Instance: "a b"},
			{State: store.Dead, OlderThan: -1}, {State: store.Scheduled, OlderThan: time.Hour}} {
			wantErr(t, "purge", errOf(e.Store.Purge(ctx, f)), store.ErrInvalid)
		}
		wantErr(t, "deletion", e.Store.DeleteInstance(ctx, "", true), store.ErrInvalid)
		wantErr(t, "deletion", e.Store.DeleteInstance(ctx, "a{b", true), store.ErrInvalid)
	})
}
