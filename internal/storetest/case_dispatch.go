package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Ticks of cron: each decided once, with its record.
func dispatchCases() []Case {
	return named(aTickIsDispatchedOnceWhoeverAsks, aLostReplyOfADispatchCostsNothing, theClientsOwnRetryOfADispatchHappensOnce,
		aTickIsNeverDispatchedEarly, aJobOfATickKnowsItsTickAndHasItsOptions, aTickThatIsHeldBackKeepsItsIdentity,
		aSkippedTickHasItsReasonAndMayStandForMany, aFailedTickIsUpgradedAndTheFirstSuccessStands,
		aFailedTickIsNotedThoughTheJobsAreSpoilt, aTickIsSkippedWhileTheLastOnesJobHasNotEnded, anEndedJobOfOneTickSilencesNoOther,
		recordsAreBoundedByAgeAndCount, recordsAreListedByEntryStatusNodeAndTime, aDispatchByHandIsNoTick,
		aDispatchIsBoundedInBytesButGoesOn, aClockThatHasGoneBackSilencesNoEntry, aDispatchOfManyEntriesIsOneCall)
}

// decide asks for decisions on a fresh lane, as a node that is called node.
func (e *Env) decide(t testing.TB, entry store.EntryState, all ...store.Decision) store.TickAnswer {
	t.Helper()
	got, _, err := e.Runtime.Dispatch(t.Context(), new(store.Lane), instance, "node", []store.EntryTicks{{Entry: entry, Decisions: all}})
	if err != nil || len(got) != 1 {
		t.Fatalf("dispatching: %+v, %v", got, err)
	}
	return got[0]
}

// dispatch dispatches a tick of an entry, and returns the id of its job.
func (e *Env) dispatch(t testing.TB, node, key string, tick time.Time) uuid.UUID {
	t.Helper()
	entry := e.entry(t, key)
	got, _, err := e.Runtime.Dispatch(t.Context(), new(store.Lane), instance, node,
		[]store.EntryTicks{{Entry: entry, Decisions: []store.Decision{{Tick: tick, Previous: entry.Last}}}})
	if err != nil || got[0].Verdict != store.Decided || string(got[0].Outcomes) != "d" {
		t.Fatalf("dispatching %s at %v: %+v, %v", key, tick, got, err)
	}
	return e.Runtime.JobOfTick(instance, key, tick)
}

// past registers an entry of which no tick of the last two hours is decided, and returns a moment an hour ago.
func (e *Env) past(t testing.TB, key string, edit ...func(*store.Definition)) (store.EntryState, time.Time) {
	t.Helper()
	e.registered(t, key, edit...)
	e.Later(t, 2*time.Hour)
	return e.entry(t, key), e.Now(t).Add(-time.Hour)
}

func (e *Env) record(t testing.TB, key string, tick time.Time) store.Dispatch {
	t.Helper()
	d, err := e.Store.FindDispatch(t.Context(), key, tick)
	if err != nil {
		t.Fatalf("finding the record of %v: %v", tick, err)
	}
	return d
}

func aTickIsDispatchedOnceWhoeverAsks(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	if ok, err := e.Store.Dispatched(t.Context(), "a", tick); ok || err != nil {
		t.Errorf("dispatched before: %v, %v", ok, err)
	}
	before := e.Now(t)
	for i := range 5 {
		a := e.decide(t, entry, store.Decision{Tick: tick})
		if i == 0 && (a.Verdict != store.Decided || !a.Last.Equal(tick)) || i > 0 && (a.Verdict != store.Behind || len(a.Outcomes) != 0) || !a.Latest.Equal(tick) {
			t.Errorf("answer %d is %+v", i, a)
		}
	}
	id := e.Runtime.JobOfTick(instance, "a", tick)
	d := e.record(t, "a", tick)
	if d.Status != store.StatusDispatched || d.Job != id || d.Node != "node" || !d.FireAt.Equal(tick) || !d.First.Equal(tick) || d.ByHand ||
		d.DispatchedAt.Before(before) || d.Entry != "a" || d.Instance != instance {
		t.Errorf("%+v", d)
	}
	if ok, err := e.Store.Dispatched(t.Context(), "a", tick); !ok || err != nil {
		t.Errorf("dispatched: %v, %v", ok, err)
	}
	if ids := e.Listed(t, store.Todo); len(ids) != 1 || ids[0] != id || id.Version() != 8 {
		t.Errorf("jobs %v, want %s", ids, id)
	}
	_, err := e.Store.FindDispatch(t.Context(), "a", tick.Add(time.Second))
	wantErr(t, "another tick", err, store.ErrNotFound)
	_, err = e.Store.FindDispatch(t.Context(), "b", tick)
	wantErr(t, "another entry", err, store.ErrNotFound)
}

func aLostReplyOfADispatchCostsNothing(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	var lane store.Lane
	var got []store.TickAnswer
	ticks := []store.EntryTicks{{Entry: entry, Decisions: []store.Decision{{Tick: tick, Skip: "why"}, {Tick: tick.Add(time.Minute)}}}}
	e.lost(t, func() (err error) {
		got, _, err = e.Runtime.Dispatch(t.Context(), &lane, instance, "node", ticks)
		return err
	})
	if got[0].Verdict != store.Decided || string(got[0].Outcomes) != "sd" || e.Stats(t).Todo != 1 {
		t.Errorf("%+v, %+v; want the first answer, and one job", got, e.Stats(t))
	}
	if d := e.record(t, "a", tick); !d.DispatchedAt.Equal(got[0].DecidedAt) {
		t.Errorf("the answer is of %v, the record of %v", got[0].DecidedAt, d.DispatchedAt)
	}
}

func theClientsOwnRetryOfADispatchHappensOnce(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	e.Fault.LoseReplyNth(1, onlyScripts)
	if _, err := e.Store.RunEntry(t.Context(), "a"); err == nil {
		t.Error("a lost reply is no error")
	}
	if a := e.decide(t, entry, store.Decision{Tick: tick}); a.Verdict != store.Decided {
		t.Errorf("%+v", a)
	}
}

func aTickIsNeverDispatchedEarly(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	future := e.Now(t).Add(time.Minute)
	before := e.Kept(t)
	if a := e.decide(t, entry, store.Decision{Tick: future}); a.Verdict != store.Early || len(a.Outcomes) != 0 {
		t.Errorf("%+v, want early", a)
	}
	wantSame(t, "early", before, e.Kept(t))
	a := e.decide(t, entry, store.Decision{Tick: tick}, store.Decision{Tick: future})
	if a.Verdict != store.Early || string(a.Outcomes) != "d" || !a.Latest.Equal(tick) || e.Stats(t).Total != 1 {
		t.Errorf("%+v, want the first alone", a)
	}
}

func aJobOfATickKnowsItsTickAndHasItsOptions(t *testing.T, e *Env) {
	by := e.Now(t).Add(100 * time.Hour)
	entry, tick := e.past(t, "a", func(d *store.Definition) {
		d.Job.Priority, d.Job.MaxAttempts, d.Job.Metadata, d.Job.Deadline = 9, 4, map[string]string{"k": "v"}, by
	})
	second := tick.Add(time.Minute)
	e.one(t) // of the default priority
	own := map[string]string{"own": "è", "k": "not in its place"}
	if a := e.decide(t, entry, store.Decision{Tick: tick}, store.Decision{Tick: second, Previous: tick, Metadata: own}); string(a.Outcomes) != "dd" {
		t.Fatalf("%+v", a)
	}
	for i, l := range e.Claim(t, 2) { // before the other
		j := l.Job
		want, before, alone := tick, time.Time{}, ""
		if i == 1 {
			want, before, alone = second, tick, "è"
		}
		if j.Metadata["own"] != alone {
			t.Errorf("job %d has the metadata %v, want %q of its own", i, j.Metadata, alone)
		}
		if j.Tick.Entry != "a" || j.Tick.Zone != "Europe/Paris" || !j.Tick.At.Equal(want) || !j.Tick.Previous.Equal(before) {
			t.Errorf("job %d is of %+v, want %v after %v", i, j.Tick, want, before)
		}
		if j.Priority != 9 || j.MaxAttempts != 4 || j.Metadata["k"] != "v" || !j.Deadline.Equal(by) || string(j.Payload) != `{"report":1}` {
			t.Errorf("%+v", j)
		}
		e.end(t, l, store.Complete)
	}
	if l := e.claimOne(t); l.Job.Tick != (store.Tick{}) {
		t.Errorf("another job is of %+v", l.Job.Tick)
	}
}

func aTickThatIsHeldBackKeepsItsIdentity(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	due := e.Now(t).Add(time.Hour)
	e.decide(t, entry, store.Decision{Tick: tick, Due: due})
	j := e.Job(t, e.Runtime.JobOfTick(instance, "a", tick))
	if j.State != store.Scheduled || !j.RunAt.Equal(due) || !j.Tick.At.Equal(tick) {
		t.Errorf("%s at %v of %+v", j.State, j.RunAt, j.Tick)
	}
	if d := e.record(t, "a", tick); d.Status != store.StatusDispatched {
		t.Errorf("%+v", d)
	}
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
		_, err := e.Store.FindDispatch(ctx, "a", tick)
		wantErr(t, "a tick that nothing stands for", err, store.ErrNotFound)
	}
}

func (e *Env) undispatched(t testing.TB, key, why string, tick time.Time) bool {
	t.Helper()
	first, now, err := e.Runtime.Undispatched(t.Context(), instance, "other", why, map[string]time.Time{key: tick})
	if err != nil {
		t.Fatalf("noting a failed dispatch: %v", err)
	}
	if since := e.Now(t).Sub(now); since < 0 || since > time.Minute {
		t.Errorf("noted at %v, %v ago", now, since)
	}
	return first[key]
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
	// One that is given up stays a failure.
	second := tick.Add(time.Minute)
	e.undispatched(t, "a", "no memory", second)
	e.decide(t, e.entry(t, "a"), store.Decision{Tick: second, Skip: "missed"})
	if d := e.record(t, "a", second); d.Status != store.StatusFailed {
		t.Errorf("%+v, want it failed", d)
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

func aTickIsSkippedWhileTheLastOnesJobHasNotEnded(t *testing.T, e *Env) {
	_, tick := e.past(t, "a", func(d *store.Definition) { d.SkipOverlap = true })
	next := func() (store.TickAnswer, time.Time) {
		tick = tick.Add(time.Minute)
		return e.decide(t, e.entry(t, "a"), store.Decision{Tick: tick}), tick
	}
	expect := func(what, outcome string) {
		t.Helper()
		a, tick := next()
		if string(a.Outcomes) != outcome {
			t.Errorf("%s: %q, want %q", what, a.Outcomes, outcome)
		}
		if d := e.record(t, "a", tick); outcome == "o" && (d.Status != store.StatusSkipped || !strings.Contains(d.Reason, "has not ended")) {
			t.Errorf("%s: %+v", what, d)
		}
	}
	expect("the first", "d")
	expect("todo", "o")
	l := e.claimOne(t)
	expect("doing", "o")
	e.Finish(t, store.Finish{Verb: store.Retry, Delay: time.Millisecond}, l)
	expect("scheduled", "o")
	e.Later(t, 5*time.Millisecond)
	l = e.claimOne(t)
	e.end(t, l, store.Bury)
	expect("dead", "d")
	e.park(t, e.Listed(t, store.Todo)[0])
	expect("parked", "o")
	must(t, e.Store.Delete(t.Context(), e.Listed(t, store.Parked)[0]))
	a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: tick.Add(time.Second)}, store.Decision{Tick: tick.Add(2 * time.Second)})
	if string(a.Outcomes) != "do" {
		t.Errorf("two at once: %q", a.Outcomes)
	}
}

func anEndedJobOfOneTickSilencesNoOther(t *testing.T, e *Env) {
	_, tick := e.past(t, "a")
	for _, v := range []store.Verb{store.Bury, store.Cancel, store.Complete} {
		tick = tick.Add(time.Minute)
		e.dispatch(t, "node", "a", tick)
		e.end(t, e.claimOne(t), v)
	}
	if s := e.Stats(t); s.Dead != 1 || s.Cancelled != 1 || s.Done != 1 {
		t.Errorf("%+v", s)
	}
}

func recordsAreBoundedByAgeAndCount(t *testing.T, e *Env) {
	_, tick := e.past(t, "a", func(d *store.Definition) { d.RecordAge, d.RecordCount = 90*time.Minute, 5 })
	old := e.Now(t).Add(-100 * time.Minute)
	a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: old, Skip: "old"}, store.Decision{Tick: tick, Skip: "young"})
	if string(a.Outcomes) != "ss" {
		t.Fatalf("%+v", a)
	}
	_, err := e.Store.FindDispatch(t.Context(), "a", old)
	wantErr(t, "a record that is too old", err, store.ErrNotFound)
	if a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: old, Skip: "again"}); a.Verdict != store.Decided && a.Verdict != store.Behind {
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

func aDispatchByHandIsNoTick(t *testing.T, e *Env) {
	ctx := t.Context()
	entry, _ := e.past(t, "a")
	must(t, e.Store.EnableEntry(ctx, "a", false))
	id, err := e.Store.RunEntry(ctx, "a")
	must(t, err)
	if j := e.Job(t, id); j.State != store.Todo || j.Tick != (store.Tick{}) || string(j.Payload) != `{"report":1}` {
		t.Errorf("%+v", j)
	}
	page, err := e.Store.Dispatches(ctx, store.DispatchFilter{})
	if err != nil || len(page.Dispatches) != 1 || !page.Dispatches[0].ByHand || page.Dispatches[0].Job != id || page.Dispatches[0].Status != store.StatusDispatched {
		t.Fatalf("%+v, %v", page, err)
	}
	at := page.Dispatches[0].FireAt
	_, err = e.Store.FindDispatch(ctx, "a", at)
	wantErr(t, "as a tick", err, store.ErrNotFound)
	if after := e.entry(t, "a"); !after.Decided.Equal(entry.Decided) || !after.Last.IsZero() {
		t.Errorf("%+v, it was %+v", after, entry)
	}
	must(t, e.Store.EnableEntry(ctx, "a", true))
	e.Later(t, time.Minute)
	e.dispatch(t, "node", "a", e.Now(t))
	if s := e.Stats(t); s.Todo != 2 {
		t.Errorf("%+v", s)
	}
}

func aDispatchIsBoundedInBytesButGoesOn(t *testing.T, e *Env) {
	_, tick := e.past(t, "a", func(d *store.Definition) {
		d.Job.Payload = append(append([]byte(`"`), bytes.Repeat([]byte("x"), 400_000)...), '"')
	})
	var all []store.Decision
	for i := range 5 {
		all = append(all, store.Decision{Tick: tick.Add(time.Duration(i) * time.Minute)})
	}
	for calls, done := 0, 0; done < 5; calls++ {
		a := e.decide(t, e.entry(t, "a"), all[done:]...)
		if a.Verdict != store.Decided || len(a.Outcomes) == 0 || len(a.Outcomes) > 2 || calls > 5 {
			t.Fatalf("call %d: %+v", calls, a)
		}
		done += len(a.Outcomes)
		if !a.Latest.Equal(all[done-1].Tick) {
			t.Errorf("decided until %v, want %v", a.Latest, all[done-1].Tick)
		}
	}
	if s := e.Stats(t); s.Todo != 5 {
		t.Errorf("%+v", s)
	}
}

func aClockThatHasGoneBackSilencesNoEntry(t *testing.T, e *Env) {
	_, tick := e.past(t, "a")
	e.dispatch(t, "node", "a", tick)
	e.Back(t, 48*time.Hour) // the tick was decided in a future that is not to come for two days
	entry := e.entry(t, "a")
	if a := e.decide(t, entry, store.Decision{Tick: e.Now(t)}); a.Verdict != store.Behind || a.Latest.After(e.Now(t)) {
		t.Errorf("%+v, want it to be decided until now", a)
	}
	e.Later(t, time.Minute)
	a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: tick}, store.Decision{Tick: e.Now(t)}) // one of them has a record
	if string(a.Outcomes) != "xd" || e.Stats(t).Todo != 2 {
		t.Errorf("%+v, %+v", a, e.Stats(t))
	}
}

func aDispatchOfManyEntriesIsOneCall(t *testing.T, e *Env) {
	n := e.size(50, 500)
	var all []store.Definition
	var keys []string
	for i := range n {
		all, keys = append(all, definition(fmt.Sprintf("e/%03d", i))), append(keys, fmt.Sprintf("e/%03d", i))
	}
	if got := e.register(t, false, all...); got != strings.Repeat("n", n) {
		t.Fatalf("%q", got)
	}
	must(t, e.Store.EnableEntry(t.Context(), keys[3], false))
	e.Later(t, time.Hour)
	read, err := e.Runtime.Entries(t.Context(), instance, "", keys)
	must(t, err)
	var ticks []store.EntryTicks
	for _, s := range read.Entries {
		ticks = append(ticks, store.EntryTicks{Entry: s, Decisions: []store.Decision{{Tick: read.Now.Add(-time.Minute)}}})
	}
	got, _, err := e.Runtime.Dispatch(t.Context(), new(store.Lane), instance, "node", ticks)
	must(t, err)
	for i, a := range got {
		if want := store.Decided; i == 3 && a.Verdict != store.Disabled || i != 3 && (a.Verdict != want || string(a.Outcomes) != "d") {
			t.Errorf("entry %d: %+v", i, a)
		}
	}
	if s := e.Stats(t); s.Todo != int64(n-1) {
		t.Errorf("%+v", s)
	}
}
