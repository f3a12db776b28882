package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Entries of cron that are removed, or lost.
func cronGoneCases() []Case {
	return named(aRemovedEntryStopsUntilSomebodyStartsWithIt, aRemovalWhoseReplyWasLostLeavesNoName, whatWasLostIsRegisteredAgain,
		aPartThatWasLostIsRegisteredAgain, anEntryWithoutItsJobFailsUntilItIsRegisteredAgain, anInstanceThatEntriesTargetIsNotDeletedUnlessForced)
}

func aRemovedEntryStopsUntilSomebodyStartsWithIt(t *testing.T, e *Env) {
	ctx := t.Context()
	was := e.registered(t, "a")
	e.Later(t, time.Hour)
	tick := e.Now(t).Add(-time.Minute)
	e.dispatch(t, "node", "a", tick)
	must(t, e.Store.RemoveEntry(ctx, "a"))
	wantErr(t, "removed twice", e.Store.RemoveEntry(ctx, "a"), store.ErrNotFound)
	if a := e.decide(t, was, store.Decision{Tick: tick.Add(time.Second)}); a.Verdict != store.Absent {
		t.Errorf("it is answered %q", a.Verdict)
	}
	if all := e.entries(t); len(all) != 0 {
		t.Errorf("%+v, want none", all)
	}
	wantErr(t, "its record", errOf(e.Store.FindDispatch(ctx, "a", tick)), store.ErrNotFound)
	if got := e.register(t, true, definition("a")); got != "r" {
		t.Errorf("for who had registered it, it is %q, want removed", got)
	}
	if n := e.Raw.HExists(ctx, e.Prefix+":entries", "a").Val(); n {
		t.Error("it belongs to an instance still")
	}
	now := e.Now(t)
	if got := e.register(t, false, definition("a")); got != "n" {
		t.Errorf("for who starts, it is %q, want new", got)
	}
	if s := e.entry(t, "a"); s.Decided.Before(now) || !s.Enabled {
		t.Errorf("%+v, want it as if it had never been", s)
	}
	if got := e.register(t, true, definition("a")); got != "s" {
		t.Errorf("then, for who had registered it, it is %q", got)
	}
}

func whatWasLostIsRegisteredAgain(t *testing.T, e *Env) {
	was := e.registered(t, "a")
	changes := func() string {
		read, err := e.Runtime.Entries(t.Context(), instance, "", nil)
		must(t, err)
		return read.Changes
	}
	known := changes()
	for _, key := range e.keys(t) {
		if strings.Contains(key, "cron") || strings.HasSuffix(key, ":entries") {
			e.put(t, "DEL", key)
		}
	}
	e.Later(t, time.Minute)
	if a := e.decide(t, was, store.Decision{Tick: e.Now(t)}); a.Verdict != store.Absent {
		t.Errorf("it is answered %q", a.Verdict)
	}
	if changes() == known {
		t.Error("nothing seems to have changed")
	}
	for e.Now(t).UnixMilli() < was.Decided.UnixMilli()+1 { // on a real server no time has passed
	}
	if got := e.register(t, true, definition("a")); got != "n" || changes() == known {
		t.Errorf("it is %q, want new, after other changes than before", got)
	}
	if all := e.entries(t); len(all) != 1 {
		t.Errorf("%+v, want it back", all)
	}
}

func anInstanceThatEntriesTargetIsNotDeletedUnlessForced(t *testing.T, e *Env) {
	ctx := t.Context()
	e.registered(t, "a")
	e.Later(t, time.Hour)
	e.dispatch(t, "node", "a", e.Now(t))
	before := e.Content(t)
	wantErr(t, "an instance with an entry", e.Store.DeleteInstance(ctx, instance, false), store.ErrState)
	wantSame(t, "refused", before, e.Content(t))
	must(t, e.Store.DeleteInstance(ctx, instance, true))
	e.wantEmpty(t, instance)
	if all := e.entries(t); len(all) != 0 {
		t.Errorf("%+v, want none", all)
	}
	e.registered(t, "b")
	must(t, e.Store.RemoveEntry(ctx, "b"))
	must(t, e.Store.DeleteInstance(ctx, instance, false))
}

func aRemovalWhoseReplyWasLostLeavesNoName(t *testing.T, e *Env) {
	e.registered(t, "a")
	e.loseReply(t, func() error { return e.Store.RemoveEntry(t.Context(), "a") })
	wantErr(t, "removed again", e.Store.RemoveEntry(t.Context(), "a"), store.ErrNotFound)
	got, _, err := e.Runtime.Register(t.Context(), "other", []store.Definition{definition("a")}, false)
	if must(t, err); got[0] != store.Registered {
		t.Errorf("another instance is answered %q, want that it is registered", got[0])
	}
}

func aPartThatWasLostIsRegisteredAgain(t *testing.T, e *Env) {
	other := definition("a", func(d *store.Definition) { d.Spec = "@daily" })
	for what, c := range map[string]struct {
		lose []any
		with store.Definition
		want string
	}{
		"its definition":                      {[]any{"HDEL", "cron", "a"}, definition("a"), "c"},
		"its job":                             {[]any{"HDEL", "cron_jobs", "a"}, definition("a"), "c"},
		"all jobs":                            {[]any{"DEL", "cron_jobs"}, definition("a"), "c"},
		"garbage for its definition":          {[]any{"HSET", "cron", "a", "garbage"}, definition("a"), "c"},
		"another one than it was":             {[]any{"HSET", "cron", "a", "{}"}, definition("a"), "c"},
		"garbage for its job":                 {[]any{"HSET", "cron_jobs", "a", "garbage"}, definition("a"), "c"},
		"garbage for its job's deadline":      {[]any{"HSET", "cron_jobs", "a", "x 5"}, definition("a"), "c"},
		"garbage for another one's":           {[]any{"HSET", "cron_jobs", "a", "x 5"}, other, "t"},
		"what is known of its ticks":          {[]any{"HSET", "cron_ticks", "a", "1 x 0 0 0 "}, definition("a"), "n"},
		"its job, and another one stands now": {[]any{"HDEL", "cron_jobs", "a"}, other, "t"},
	} {
		e.register(t, false, definition("a"))
		e.Later(t, time.Hour)
		e.dispatch(t, "node", "a", e.Now(t))
		last := e.entry(t, "a").Last
		c.lose[1] = e.Key(instance, c.lose[1].(string))
		e.put(t, c.lose...)
		if got := e.register(t, true, c.with); got != c.want {
			t.Errorf("%s: it is %q, want %q", what, got, c.want)
		}
		s := e.entry(t, "a")
		if s.Missing || s.Spec != c.with.Spec || c.want != "n" && !s.Last.Equal(last) {
			t.Errorf("%s: %+v, want it back, and the last tick %v", what, s, last)
		}
		must(t, errOf(e.Store.RunEntry(t.Context(), "a")))
		if got := e.register(t, true, c.with); got != "s" {
			t.Errorf("%s: then it is %q", what, got)
		}
	}
}

func anEntryWithoutItsJobFailsUntilItIsRegisteredAgain(t *testing.T, e *Env) {
	_, tick := e.past(t, "a")
	e.dispatch(t, "node", "a", tick)
	next := tick.Add(time.Minute)
	cronJobs := e.Key(instance, "cron_jobs")
	for i, lose := range [][]any{{"HDEL", cronJobs, "a"}, {"HSET", cronJobs, "a", "garbage"}, {"HSET", cronJobs, "a", "garbage 5"}} {
		e.put(t, lose...)
		want := "f" // noted, the first time
		if i > 0 {
			want = ""
		}
		a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: next}, store.Decision{Tick: next.Add(time.Minute)})
		if a.Verdict != store.Unmade || string(a.Outcomes) != want || !a.Latest.Equal(tick) || e.Stats(t).Total != 1 {
			t.Errorf("%+v, %+v; want it refused", a, e.Stats(t))
		}
		if d := e.record(t, "a", next); d.Status != store.StatusFailed || d.Reason != store.ReasonUnmade || d.Node != "node" {
			t.Errorf("%+v, want it failed", d)
		}
		wantErr(t, "by hand", errOf(e.Store.RunEntry(t.Context(), "a")), store.ErrState)
	}
	page, err := e.Store.Dispatches(t.Context(), store.DispatchFilter{})
	if err != nil || len(page.Dispatches) != 2 {
		t.Errorf("%+v, %v; want two records", page, err)
	}
	// To skip it takes no job.
	if a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: next.Add(-time.Second), Skip: "why"}); a.Verdict != store.Decided {
		t.Errorf("%+v", a)
	}
	e.put(t, "HDEL", e.Key(instance, "cron_jobs"), "a")
	if got := e.register(t, true, definition("a")); got != "c" {
		t.Errorf("it is %q", got)
	}
	if a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: next}); string(a.Outcomes) != "d" {
		t.Fatalf("%+v", a)
	}
	if d := e.record(t, "a", next); d.Status != store.StatusDispatched || string(e.Job(t, d.Job).Payload) != `{"report":1}` {
		t.Errorf("%+v, %s", d, e.Job(t, d.Job).Payload)
	}
}
