package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// Ticks of cron: each decided once, with its record.
func dispatchCases() []Case {
	return named(aTickIsDispatchedOnceWhoeverAsks, aLostReplyOfADispatchCostsNothing, theClientsOwnRetryOfADispatchHappensOnce,
		aJobOfATickKnowsItsTickAndHasItsOptions, aTickThatIsHeldBackKeepsItsIdentity, aDispatchByHandIsNoTick,
		aDispatchIsBoundedInBytesButGoesOn, aDispatchOfManyEntriesIsOneCall)
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
	wantErr(t, "another tick", errOf(e.Store.FindDispatch(t.Context(), "a", tick.Add(time.Second))), store.ErrNotFound)
	wantErr(t, "another entry", errOf(e.Store.FindDispatch(t.Context(), "b", tick)), store.ErrNotFound)
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
	struck := e.Fault.CutReplyNth(1, onlyScripts)
	if a := e.decide(t, entry, store.Decision{Tick: tick}); string(a.Outcomes) != "d" {
		t.Errorf("%+v", a)
	}
	<-struck
	struck = e.Fault.CutReplyNth(1, redistest.Mentions("cron_dispatch:a"))
	must(t, errOf(e.Store.RunEntry(t.Context(), "a")))
	<-struck
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{})
	if s := e.Stats(t); err != nil || s.Total != 2 || len(page.Dispatches) != 2 {
		t.Errorf("%d jobs, %+v, %v; want the tick's and the one by hand", s.Total, page, err)
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
	e.Later(t, time.Hour+time.Minute)
	if l := e.claimOne(t); !l.Job.RunAt.Equal(due) {
		t.Errorf("it could run since %v, want %v: until then it was held back", l.Job.RunAt, due)
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
	wantErr(t, "as a tick", errOf(e.Store.FindDispatch(ctx, "a", at)), store.ErrNotFound)
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
