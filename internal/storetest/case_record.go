package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The records of ticks.
func recordCases() []Case {
	return named(aSkippedTickHasItsReasonAndMayStandForMany, aTickAmongManyIsFoundWhateverStandsBetween,
		aTickWithoutARecordIsLookedForAmongAThousand, recordsAreBoundedByAgeAndCount, anUpgradedRecordPushesNoOtherOut,
		recordsAreListedByEntryStatusNodeAndTime, manyEntriesWithFewRecordsAreOnePage)
}

func (e *Env) record(t testing.TB, key string, tick time.Time) store.Dispatch {
	t.Helper()
	d, err := e.Store.FindDispatch(t.Context(), key, tick)
	if err != nil {
		t.Fatalf("finding the record of %v: %v", tick, err)
	}
	return d
}

func aSkippedTickHasItsReasonAndMayStandForMany(t *testing.T, e *Env) {
	ctx := t.Context()
	entry, last := e.past(t, "a")
	first := last.Add(-30 * time.Minute)
	a := e.decide(t, entry, store.Decision{Tick: last, First: first, Skip: "missed"}, store.Decision{Tick: last.Add(time.Minute), Skip: "missed, too"})
	if a.Verdict != store.Decided || string(a.Outcomes) != "ss" || !a.Last.IsZero() || e.Stats(t).Total != 0 {
		t.Fatalf("%+v, %+v", a, e.Stats(t))
	}
	for _, tick := range []time.Time{first, first.Add(time.Minute), last} {
		if d := e.record(t, "a", tick); d.Status != store.StatusSkipped || d.Reason != "missed" || !d.First.Equal(first) || !d.FireAt.Equal(last) || d.Job != uuid.Nil {
			t.Errorf("%v: %+v", tick, d)
		}
		if ok, err := e.Store.Dispatched(ctx, "a", tick); ok || err != nil {
			t.Errorf("%v: dispatched %v, %v", tick, ok, err)
		}
	}
	if d := e.record(t, "a", last.Add(time.Minute)); d.Reason != "missed, too" || !d.First.Equal(d.FireAt) {
		t.Errorf("%+v", d)
	}
	for _, tick := range []time.Time{first.Add(-time.Minute), last.Add(30 * time.Second), last.Add(2 * time.Minute)} {
		wantErr(t, "a tick that nothing stands for", errOf(e.Store.FindDispatch(ctx, "a", tick)), store.ErrNotFound)
	}
}

func aTickWithoutARecordIsLookedForAmongAThousand(t *testing.T, e *Env) {
	_, tick := e.past(t, "a")
	cmd := []any{"ZADD", e.Key(instance, "cron_dispatch:a")}
	for i := range 3000 {
		ms := tick.UnixMilli() + int64(i) + 1
		cmd = append(cmd, ms, fmt.Sprintf("d %d %d %d 0 0123456789abcdef", ms, ms, ms))
	}
	e.put(t, cmd...)
	before := e.Fault.Seen()
	wantErr(t, "a tick without a record", errOf(e.Store.FindDispatch(t.Context(), "a", tick)), store.ErrNotFound)
	if n := e.Fault.Seen() - before; n > 4 {
		t.Errorf("it takes %d commands, want one for each 500 of a thousand", n)
	}
}

func recordsAreBoundedByAgeAndCount(t *testing.T, e *Env) {
	_, tick := e.past(t, "a", func(d *store.Definition) { d.RecordAge, d.RecordCount = 90*time.Minute, 5 })
	old := e.Now(t).Add(-100 * time.Minute)
	a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: old, Skip: "old"}, store.Decision{Tick: tick, Skip: "young"})
	if string(a.Outcomes) != "ss" {
		t.Fatalf("%+v", a)
	}
	if d := e.record(t, "a", old); d.Reason != "old" { // whatever becomes of a tick, there is a record
		t.Errorf("%+v", d)
	}
	if a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: tick.Add(time.Millisecond), Skip: "younger"}); string(a.Outcomes) != "s" {
		t.Fatalf("%+v", a)
	}
	wantErr(t, "a record that is too old", errOf(e.Store.FindDispatch(t.Context(), "a", old)), store.ErrNotFound)
	if a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: old, Skip: "again"}); string(a.Outcomes) != "x" {
		t.Errorf("%+v", a)
	}
	for i := range 8 {
		e.dispatch(t, "node", "a", tick.Add(time.Duration(i+1)*time.Second))
	}
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{Entry: "a"})
	if err != nil || len(page.Dispatches) != 5 || !page.Dispatches[4].FireAt.Equal(tick.Add(4*time.Second)) {
		t.Errorf("%d records, %v, want the latest 5: %+v", len(page.Dispatches), err, page)
	}
}

func recordsAreListedByEntryStatusNodeAndTime(t *testing.T, e *Env) {
	ctx := t.Context()
	e.registered(t, "a")
	e.registered(t, "b")
	e.Later(t, 2*time.Hour)
	start := e.Now(t).Add(-time.Hour)
	for i := range 20 {
		tick := start.Add(time.Duration(i) * time.Minute)
		e.dispatch(t, fmt.Sprint("node", i%2), "a", tick)
		e.decide(t, e.entry(t, "b"), store.Decision{Tick: tick, Skip: "why"})
	}
	for what, c := range map[string]struct {
		f    store.DispatchFilter
		want int
	}{
		"all":       {store.DispatchFilter{}, 40},
		"an entry":  {store.DispatchFilter{Entry: "a"}, 20},
		"a status":  {store.DispatchFilter{Status: store.StatusSkipped}, 20},
		"a node":    {store.DispatchFilter{Node: "node1"}, 10},
		"a time":    {store.DispatchFilter{From: start.Add(3 * time.Minute), To: start.Add(7 * time.Minute)}, 10},
		"an end":    {store.DispatchFilter{Entry: "b", To: start}, 1},
		"all these": {store.DispatchFilter{Entry: "a", Status: store.StatusDispatched, Node: "node0", From: start.Add(5 * time.Minute)}, 7},
		"none":      {store.DispatchFilter{Entry: "c"}, 0},
	} {
		for _, limit := range []int{0, 1, 7} {
			var all []store.Dispatch
			f := c.f
			f.Limit = limit
			for range 100 {
				page, err := e.Store.Dispatches(ctx, f)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, page.Dispatches...)
				if f.Cursor = page.Next; f.Cursor == "" {
					break
				}
			}
			sorted := slices.IsSortedFunc(all, func(a, b store.Dispatch) int {
				if a.Entry != b.Entry {
					return strings.Compare(a.Entry, b.Entry)
				}
				return b.FireAt.Compare(a.FireAt)
			})
			if len(all) != c.want || !sorted {
				t.Errorf("%s, %d a page: %d records (sorted: %v), want %d", what, limit, len(all), sorted, c.want)
			}
		}
	}
}

func manyEntriesWithFewRecordsAreOnePage(t *testing.T, e *Env) {
	var all []store.Definition
	for i := range 50 {
		all = append(all, definition(fmt.Sprintf("e/%02d", i)))
	}
	e.register(t, false, all...)
	e.Later(t, time.Hour)
	for i := 40; i < 50; i++ {
		e.undispatched(t, all[i].Key, "no memory", e.Now(t).Add(-time.Minute))
	}
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{Status: store.StatusFailed})
	if err != nil || len(page.Dispatches) != 10 || page.Next != "" {
		t.Errorf("%d records, next %q, %v; want all 10", len(page.Dispatches), page.Next, err)
	}
}

func aTickAmongManyIsFoundWhateverStandsBetween(t *testing.T, e *Env) {
	_, first := e.past(t, "a")
	e.undispatched(t, "a", "no memory", first.Add(time.Minute))
	for range 120 {
		must(t, errOf(e.Store.RunEntry(t.Context(), "a")))
	}
	e.Later(t, time.Minute)
	last := e.Now(t)
	e.undispatched(t, "a", "no memory", last)
	e.decide(t, e.entry(t, "a"), store.Decision{Tick: last, First: first, Skip: "missed"})
	for _, tick := range []time.Time{first, first.Add(2 * time.Minute), last} {
		if d := e.record(t, "a", tick); d.Status != store.StatusSkipped || !d.First.Equal(first) || !d.FireAt.Equal(last) {
			t.Errorf("%v: %+v, want the record of all of them", tick, d)
		}
	}
	if d := e.record(t, "a", first.Add(time.Minute)); d.Status != store.StatusFailed || !d.FireAt.Equal(first.Add(time.Minute)) {
		t.Errorf("%+v, want its own record", d)
	}
	if d := e.record(t, "a", last); !strings.Contains(d.Reason, "no memory") {
		t.Errorf("%+v, want that it had failed", d)
	}
}

func anUpgradedRecordPushesNoOtherOut(t *testing.T, e *Env) {
	_, tick := e.past(t, "a", func(d *store.Definition) { d.RecordCount = 5 })
	at := func(i int) time.Time { return tick.Add(time.Duration(i) * time.Minute) }
	for i := range 4 {
		e.dispatch(t, "node", "a", at(i))
	}
	e.undispatched(t, "a", "no memory", at(4))
	e.dispatch(t, "node", "a", at(4)) // takes the failure's place
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{})
	if err != nil || len(page.Dispatches) != 5 || !page.Dispatches[4].FireAt.Equal(tick) {
		t.Errorf("%d records, %v; want all 5: %+v", len(page.Dispatches), err, page)
	}
	e.dispatch(t, "node", "a", at(5))
	if _, err := e.Store.FindDispatch(t.Context(), "a", tick); err == nil {
		t.Error("the sixth has pushed none out")
	}
}
