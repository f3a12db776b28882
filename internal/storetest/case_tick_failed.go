package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// A tick that could not be dispatched is recorded as failed until it is decided.
func tickFailedCases() []Case {
	return named(aFailedTickIsUpgradedAndTheFirstSuccessStands, aFailedTickIsNotedThoughTheJobsAreSpoilt,
		nothingIsNotedOfATickThatIsNotToBeDecided, failuresAreBoundedAsAllRecordsAre)
}

func (e *Env) undispatched(t testing.TB, key, why string, tick time.Time) bool {
	t.Helper()
	first, now, err := e.Runtime.Undispatched(t.Context(), instance, "other", why, []store.EntryTicks{{Entry: e.entry(t, key), Decisions: []store.Decision{{Tick: tick}}}})
	if err != nil {
		t.Fatalf("noting a failed dispatch: %v", err)
	}
	if since := e.Now(t).Sub(now); since < 0 || since > time.Minute {
		t.Errorf("noted at %v, %v ago", now, since)
	}
	return first[0]
}

func aFailedTickIsUpgradedAndTheFirstSuccessStands(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	for i, why := range []string{"no memory", "no memory", "still none"} {
		if first := e.undispatched(t, "a", why, tick); first != (i == 0) {
			t.Errorf("failure %d is the first: %v", i, first)
		}
		if d := e.record(t, "a", tick); d.Status != store.StatusFailed || d.Reason != why || d.Node != "other" {
			t.Errorf("%+v", d)
		}
		if ok, err := e.Store.Dispatched(t.Context(), "a", tick); ok || err != nil {
			t.Errorf("dispatched: %v, %v", ok, err)
		}
	}
	if got := e.entry(t, "a"); !got.Decided.Equal(entry.Decided) {
		t.Errorf("a failure has decided the tick: %+v", got)
	}
	if a := e.decide(t, entry, store.Decision{Tick: tick}); string(a.Outcomes) != "d" {
		t.Fatalf("%+v", a)
	}
	if first := e.undispatched(t, "a", "too late", tick); first {
		t.Error("a tick that was dispatched has failed")
	}
	if d := e.record(t, "a", tick); d.Status != store.StatusDispatched || d.Node != "node" {
		t.Errorf("%+v, want it upgraded", d)
	}
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{})
	if err != nil || len(page.Dispatches) != 1 {
		t.Errorf("%+v, %v; want one record", page, err)
	}
	// One that is given up is skipped, and says why it had failed.
	second := tick.Add(time.Minute)
	e.undispatched(t, "a", "no memory", second)
	e.decide(t, e.entry(t, "a"), store.Decision{Tick: second, Skip: "missed"})
	if d := e.record(t, "a", second); d.Status != store.StatusSkipped || d.Reason != "missed; it had failed: no memory" || d.Node != "node" {
		t.Errorf("%+v, want it skipped", d)
	}
	if page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{}); err != nil || len(page.Dispatches) != 2 {
		t.Errorf("%+v, %v; want one record a tick", page, err)
	}
}

func aFailedTickIsNotedThoughTheJobsAreSpoilt(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	undo := e.spoil(t, e.Key(instance, "todo"), "list")
	_, _, err := e.Runtime.Dispatch(t.Context(), new(store.Lane), instance, "node", []store.EntryTicks{{Entry: entry, Decisions: []store.Decision{{Tick: tick}}}})
	e.wantKeyError(t, "Dispatch", err, e.Key(instance, "todo"), "list", "zset")
	e.undispatched(t, "a", err.Error(), tick)
	if d := e.record(t, "a", tick); d.Status != store.StatusFailed || !strings.Contains(d.Reason, "todo") {
		t.Errorf("%+v", d)
	}
	undo()
	if a := e.decide(t, entry, store.Decision{Tick: tick}); string(a.Outcomes) != "d" {
		t.Errorf("%+v", a)
	}
}

// What is not to be decided any more can't fail: its records would be there for ever.
func nothingIsNotedOfATickThatIsNotToBeDecided(t *testing.T, e *Env) {
	ctx := t.Context()
	entry, tick := e.past(t, "a")
	note := func(what string, tick time.Time) {
		t.Helper()
		before := e.Kept(t)
		first, _, err := e.Runtime.Undispatched(ctx, instance, "other", "no memory", []store.EntryTicks{{Entry: entry, Decisions: []store.Decision{{Tick: tick}}}})
		if err != nil || first[0] {
			t.Errorf("%s: noted %v, %v", what, first, err)
		}
		wantSame(t, what, before, e.Kept(t))
	}
	e.dispatch(t, "node", "a", tick)
	note("decided", tick.Add(-time.Second))
	must(t, e.Store.EnableEntry(ctx, "a", false))
	note("disabled", tick.Add(time.Second))
	must(t, e.Store.EnableEntry(ctx, "a", true))
	e.Later(t, time.Hour)
	e.register(t, false, definition("a", func(d *store.Definition) { d.CatchUp = 7 }))
	note("changed", e.Now(t))
	must(t, e.Store.RemoveEntry(ctx, "a"))
	note("removed", e.Now(t))
	if n := e.Raw.Exists(ctx, e.Key(instance, "cron_dispatch:a")).Val(); n != 0 {
		t.Error("there are records of an entry that was removed")
	}
}

// They are written when Redis has no memory left, and must not take more and more of it.
func failuresAreBoundedAsAllRecordsAre(t *testing.T, e *Env) {
	_, tick := e.past(t, "a", func(d *store.Definition) { d.RecordAge, d.RecordCount = 61*time.Minute, 3 })
	e.undispatched(t, "a", "no memory", tick.Add(-10*time.Minute))
	e.undispatched(t, "a", "no memory", tick.Add(-time.Second))
	wantErr(t, "a failure that is too old", errOf(e.Store.FindDispatch(t.Context(), "a", tick.Add(-10*time.Minute))), store.ErrNotFound)
	for i := range 10 {
		e.undispatched(t, "a", "no memory", tick.Add(time.Duration(i)*time.Minute))
	}
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{})
	if err != nil || len(page.Dispatches) != 3 || !page.Dispatches[0].FireAt.Equal(tick.Add(9*time.Minute)) {
		t.Errorf("%+v, %v; want the latest three", page, err)
	}
}
