package storetest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Whether a tick is to be decided, and how.
func tickCases() []Case {
	return named(aTickIsNeverDispatchedEarly, aTickThatIsDecidedIsNotDecidedAgain, aTickOfManyThatWereSkippedIsNotDispatched, whatWasSkippedByAClockThatHasGoneBackIsDecidedAgain, aRequestThatComesTooLateDecidesNothing,
		aClockThatHasGoneBackSilencesNoEntry, anEntryThatBeginsAnewAfterAClockThatHasGoneBackBeginsNow,
		aTickIsSkippedWhileTheLastOnesJobHasNotEnded, anEndedJobOfOneTickSilencesNoOther)
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

// Each tick of a request has to be later than the latest that is decided, whether it has a record or not.
func aTickThatIsDecidedIsNotDecidedAgain(t *testing.T, e *Env) {
	_, tick := e.past(t, "a")
	e.decide(t, e.entry(t, "a"), store.Decision{Tick: tick, Skip: "why"})
	entry, older := e.entry(t, "a"), tick.Add(-time.Minute)
	a := e.decide(t, entry, store.Decision{Tick: older}, store.Decision{Tick: older.Add(time.Second), Skip: "missed"}, store.Decision{Tick: tick})
	if a.Verdict != store.Decided || string(a.Outcomes) != "xxx" || !a.Latest.Equal(tick) || !a.Last.IsZero() || e.Stats(t).Total != 0 {
		t.Errorf("%+v, %+v; want nothing done", a, e.Stats(t))
	}
	if d := e.record(t, "a", tick); d.Status != store.StatusSkipped || d.Reason != "why" {
		t.Errorf("%+v, want what was decided", d)
	}
	wantErr(t, "a tick before", errOf(e.Store.FindDispatch(t.Context(), "a", older)), store.ErrNotFound)
	// In one request, too, they only go forward.
	a = e.decide(t, entry, store.Decision{Tick: tick.Add(2 * time.Minute)}, store.Decision{Tick: tick.Add(time.Minute)})
	if string(a.Outcomes) != "dx" || !a.Latest.Equal(tick.Add(2*time.Minute)) || e.Stats(t).Total != 1 {
		t.Errorf("%+v, %+v; want the first alone", a, e.Stats(t))
	}
}

// Where the clock has gone back the records alone tell what was decided: also one that stands for many.
func aTickOfManyThatWereSkippedIsNotDispatched(t *testing.T, e *Env) {
	_, last := e.past(t, "a")
	first := last.Add(-30 * time.Minute)
	e.decide(t, e.entry(t, "a"), store.Decision{Tick: last, First: first, Skip: "missed"}, store.Decision{Tick: last.Add(10 * time.Minute)})
	e.Back(t, 48*time.Hour) // the latest tick is in the future now; what is on record was decided before
	inside := last.Add(-10 * time.Minute)
	if e.undispatched(t, "a", "no memory", inside) {
		t.Error("a tick that was skipped has failed")
	}
	a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: first.Add(-time.Minute)}, store.Decision{Tick: first}, store.Decision{Tick: inside},
		store.Decision{Tick: inside.Add(time.Minute), Skip: "again"}, store.Decision{Tick: last}, store.Decision{Tick: last.Add(time.Minute)})
	if string(a.Outcomes) != "dxxxxd" || e.Stats(t).Total != 3 {
		t.Errorf("%+v, %+v; want those before and after dispatched", a, e.Stats(t))
	}
	if d := e.record(t, "a", inside); d.Status != store.StatusSkipped || d.Reason != "missed" || !d.First.Equal(first) {
		t.Errorf("%+v, want the record of all", d)
	}
}

// What was missed by a clock that was days ahead was not missed.
func whatWasSkippedByAClockThatHasGoneBackIsDecidedAgain(t *testing.T, e *Env) {
	_, last := e.past(t, "a")
	first, own := last.Add(-30*time.Minute), last.Add(time.Minute)
	e.decide(t, e.entry(t, "a"), store.Decision{Tick: last, First: first, Skip: "missed"}, store.Decision{Tick: own, Skip: "missed"},
		store.Decision{Tick: own.Add(time.Minute)})
	e.Back(t, 48*time.Hour)
	e.decidedLater(t, "a", 48*time.Hour)
	inside := last.Add(-10 * time.Minute)
	if !e.undispatched(t, "a", "no memory", inside) || !e.undispatched(t, "a", "no memory", own) {
		t.Error("it has not failed, for it was skipped")
	}
	a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: inside}, store.Decision{Tick: last}, store.Decision{Tick: own}, store.Decision{Tick: own.Add(time.Minute)})
	if string(a.Outcomes) != "dddx" || e.Stats(t).Total != 4 {
		t.Errorf("%+v, %+v; want what was skipped dispatched, and what was dispatched not again", a, e.Stats(t))
	}
	for _, tick := range []time.Time{inside, last, own} {
		if d := e.record(t, "a", tick); d.Status != store.StatusDispatched || !d.FireAt.Equal(tick) {
			t.Errorf("%v: %+v, want it dispatched", tick, d)
		}
	}
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{})
	if err != nil || len(page.Dispatches) != 4 {
		t.Errorf("%+v, %v; want one record of each", page, err)
	}
}

// decidedLater moves the times at which an entry's ticks were decided, by its records, into the future.
func (e *Env) decidedLater(t testing.TB, key string, by time.Duration) {
	t.Helper()
	records := e.Key(instance, "cron_dispatch:"+key)
	all, err := e.Raw.ZRangeWithScores(t.Context(), records, 0, -1).Result()
	must(t, err)
	for _, z := range all {
		f := strings.SplitN(z.Member.(string), " ", 5)
		at, err := strconv.ParseInt(f[3], 10, 64)
		must(t, err)
		f[3] = strconv.FormatInt(at+by.Milliseconds(), 10)
		e.put(t, "ZREM", records, z.Member)
		e.put(t, "ZADD", records, strconv.FormatFloat(z.Score, 'f', -1, 64), strings.Join(f, " "))
	}
}

func aRequestThatComesTooLateDecidesNothing(t *testing.T, e *Env) {
	entry, tick := e.past(t, "a")
	lane, ticks := new(store.Lane), []store.EntryTicks{{Entry: entry, Decisions: []store.Decision{{Tick: tick}}, Till: e.Now(t).Add(-time.Second)}}
	ask := func() store.TickAnswer {
		got, _, err := e.Runtime.Dispatch(t.Context(), lane, instance, "node", ticks)
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	if a := ask(); a.Verdict != store.Behind || len(a.Outcomes) != 0 || !a.Latest.Equal(entry.Decided) || e.Stats(t).Total != 0 {
		t.Errorf("%+v, %+v; want it planned anew", a, e.Stats(t))
	}
	ticks[0].Till = e.Now(t).Add(time.Minute)
	if a := ask(); string(a.Outcomes) != "d" {
		t.Errorf("in time: %+v", a)
	}
	before := *lane
	ticks[0].Decisions[0].Tick = tick.Add(time.Minute)
	ticks[0].Entry = e.entry(t, "a")
	if a := ask(); string(a.Outcomes) != "d" {
		t.Errorf("the next: %+v", a)
	}
	*lane, ticks[0].Till = before, tick // and its reply was lost
	if a := ask(); a.Verdict != store.Decided || string(a.Outcomes) != "d" {
		t.Errorf("answered once it is %+v, want the same", a)
	}
}

func aClockThatHasGoneBackSilencesNoEntry(t *testing.T, e *Env) {
	_, tick := e.past(t, "a")
	e.dispatch(t, "node", "a", tick)
	e.Back(t, 90*time.Minute) // the tick was decided in a future that is to come soon
	if a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: e.Now(t)}); string(a.Outcomes) != "x" {
		t.Errorf("%+v, want it to wait", a)
	}
	e.Back(t, 48*time.Hour) // now it is not to come for two days
	now := e.Now(t)
	a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: tick}, store.Decision{Tick: now}) // one of them has a record
	if string(a.Outcomes) != "xd" || !a.Latest.Equal(now) || !a.Last.Equal(now) || e.Stats(t).Todo != 2 {
		t.Errorf("%+v, %+v; want the tick that has no record dispatched", a, e.Stats(t))
	}
	e.Later(t, time.Minute)
	if a = e.decide(t, e.entry(t, "a"), store.Decision{Tick: now}, store.Decision{Tick: e.Now(t)}); string(a.Outcomes) != "xd" {
		t.Errorf("then %+v", a)
	}
}

func anEntryThatBeginsAnewAfterAClockThatHasGoneBackBeginsNow(t *testing.T, e *Env) {
	ctx := t.Context()
	for what, anew := range map[string]func(){
		"enabled": func() {
			must(t, e.Store.EnableEntry(ctx, "a", false))
			must(t, e.Store.EnableEntry(ctx, "a", true))
		},
		"with another spec": func() { e.register(t, false, definition("a", func(d *store.Definition) { d.Spec = "@hourly" })) },
	} {
		e.register(t, false, definition("a"))
		e.Back(t, 48*time.Hour)
		now := e.Now(t)
		anew()
		if s := e.entry(t, "a"); s.Decided.Before(now) || s.Decided.Sub(now) > time.Minute {
			t.Errorf("%s it is decided until %v, want now, %v", what, s.Decided, now)
		}
	}
}
