package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Entries of cron: who has them, what they are, and that they can be switched off and removed.
func cronCases() []Case {
	return named(anEntryIsListedWithItsNextAndLastTick, anEntryIsOverdueWhileItsTickIsOnNoRecord, ticksBeforeAnEntryIsRegisteredAreNobodys, theNewestRegistrationWins,
		theSameRegistrationChangesNothing, anEntryOfAnotherInstanceIsRefusedUntilItIsRemoved, aDisabledEntryFiresNothingAndMissesNothing,
		disablingOutlivesANewRegistration, aRemovedEntryStopsUntilSomebodyStartsWithIt, whatWasLostIsRegisteredAgain,
		anInstanceThatEntriesTargetIsNotDeletedUnlessForced, badEntriesAreRefused, cronKeysOfTheWrongTypeAreNamed,
		aRemovalWhoseReplyWasLostLeavesNoName)
}

// definition is an entry that fires each minute.
func definition(key string, edit ...func(*store.Definition)) store.Definition {
	d := store.Definition{Key: key, Spec: "* * * * *", Zone: "Europe/Paris", CatchUp: 1, Window: 24 * time.Hour,
		Job: store.NewJob{Payload: []byte(`{"report":1}`)}}
	for _, f := range edit {
		f(&d)
	}
	return d
}

// registered registers an entry and returns it as it is read then.
func (e *Env) registered(t testing.TB, key string, edit ...func(*store.Definition)) store.EntryState {
	t.Helper()
	e.register(t, false, definition(key, edit...))
	return e.entry(t, key)
}

func (e *Env) register(t testing.TB, missing bool, all ...store.Definition) string {
	t.Helper()
	result, _, err := e.Runtime.Register(t.Context(), instance, all, missing)
	if err != nil {
		t.Fatalf("registering: %v", err)
	}
	return string(result)
}

func (e *Env) entry(t testing.TB, key string) store.EntryState {
	t.Helper()
	read, err := e.Runtime.Entries(t.Context(), instance, "", []string{key})
	if err != nil || len(read.Entries) != 1 {
		t.Fatalf("reading an entry: %+v, %v", read, err)
	}
	return read.Entries[0]
}

func (e *Env) entries(t testing.TB) []store.Entry {
	t.Helper()
	all, err := e.Store.Entries(t.Context())
	if err != nil {
		t.Fatalf("listing entries: %v", err)
	}
	return all
}

func anEntryIsListedWithItsNextAndLastTick(t *testing.T, e *Env) {
	e.registered(t, "b", func(d *store.Definition) { d.Spec, d.Zone = "0 3 * * *", "" })
	e.registered(t, "a")
	all, now := e.entries(t), e.Now(t)
	if len(all) != 2 || all[0].Key != "a" || all[1].Key != "b" {
		t.Fatalf("%+v, want a and b", all)
	}
	for i, most := range []time.Duration{time.Minute, 24 * time.Hour} {
		one := all[i]
		if !one.Enabled || one.Instance != instance || !one.Last.IsZero() || !one.Next.After(now.Add(-time.Second)) || one.Next.After(now.Add(most)) {
			t.Errorf("%+v at %v", one, now)
		}
	}
	if all[0].Zone != "Europe/Paris" || all[0].Next.Location().String() != "Europe/Paris" || all[1].Spec != "0 3 * * *" {
		t.Errorf("%+v", all)
	}
	e.Later(t, time.Hour)
	tick := e.Now(t).Truncate(time.Minute)
	e.dispatch(t, "node", "a", tick)
	if last := e.entries(t)[0].Last; !last.Equal(tick) {
		t.Errorf("the last tick is %v, want %v", last, tick)
	}
}

func anEntryIsOverdueWhileItsTickIsOnNoRecord(t *testing.T, e *Env) {
	e.registered(t, "a", func(d *store.Definition) { d.Spec, d.Zone = "@every 24h", "" })
	overdue := func() time.Duration { return e.entries(t)[0].Overdue }
	if d := overdue(); d != 0 {
		t.Errorf("overdue by %v before its first tick", d)
	}
	e.Later(t, 50*time.Hour)
	now := e.Now(t)
	tick := now.Truncate(24 * time.Hour)
	if d, want := overdue(), now.Sub(tick.Add(-24*time.Hour)); d < want || d > want+time.Minute {
		t.Errorf("overdue by %v, want %v: since the first of two ticks", d, want)
	}
	if err := e.Store.EnableEntry(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	if d := overdue(); d != 0 {
		t.Errorf("overdue by %v while it is disabled", d)
	}
	if err := e.Store.EnableEntry(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	if d := overdue(); d != 0 {
		t.Errorf("overdue by %v though nobody misses what came while it was disabled", d)
	}
	e.Later(t, 24*time.Hour)
	if d := overdue(); d <= 0 || d > 24*time.Hour {
		t.Errorf("overdue by %v a day later", d)
	}
	e.dispatch(t, "node", "a", e.Now(t).Truncate(24*time.Hour))
	if d := overdue(); d != 0 {
		t.Errorf("overdue by %v though its tick is dispatched", d)
	}
}

func ticksBeforeAnEntryIsRegisteredAreNobodys(t *testing.T, e *Env) {
	e.Later(t, time.Hour)
	before := e.Now(t)
	if s := e.registered(t, "a"); s.Decided.Before(before) {
		t.Errorf("decided until %v, want its registration at %v", s.Decided, before)
	}
}

func theNewestRegistrationWins(t *testing.T, e *Env) {
	first := e.registered(t, "a")
	e.Later(t, time.Hour)
	tick := e.Now(t).Add(-time.Minute)
	// Another payload, or other policies: its ticks stay those that they were.
	if got := e.register(t, false, definition("a", func(d *store.Definition) { d.CatchUp, d.Job.Payload = 7, []byte("2") })); got != "c" {
		t.Errorf("it is %q, want changed", got)
	}
	if s := e.entry(t, "a"); s.CatchUp != 7 || s.Fingerprint == first.Fingerprint || !s.Decided.Before(tick) {
		t.Errorf("%+v", s)
	}
	if a := e.decide(t, first, store.Decision{Tick: tick}); a.Verdict != store.Altered {
		t.Errorf("the old definition is answered %q", a.Verdict)
	}
	// Another spec, or another zone: what was to come by then is nobody's.
	for _, edit := range []func(*store.Definition){
		func(d *store.Definition) { d.Spec = "*/2 * * * *" },
		func(d *store.Definition) { d.Spec, d.Zone = "*/2 * * * *", "Asia/Tokyo" },
	} {
		e.Later(t, time.Hour)
		now := e.Now(t)
		if got := e.register(t, false, definition("a", edit)); got != "t" {
			t.Errorf("it is %q, want changed in its times", got)
		}
		if s := e.entry(t, "a"); s.Decided.Before(now) {
			t.Errorf("decided until %v, want %v", s.Decided, now)
		}
	}
	// Who only makes up for what was lost replaces nothing.
	if got := e.register(t, true, definition("a")); got != "k" || e.entry(t, "a").Zone != "Asia/Tokyo" {
		t.Errorf("it is %q, and %+v", got, e.entry(t, "a"))
	}
}

func theSameRegistrationChangesNothing(t *testing.T, e *Env) {
	e.registered(t, "a")
	e.Later(t, time.Hour)
	before := e.Content(t)
	if got := e.register(t, false, definition("a")) + e.register(t, true, definition("a")); got != "ss" {
		t.Errorf("it is %q, want unchanged", got)
	}
	wantSame(t, "registered again", before, e.Content(t))
	read, err := e.Runtime.Entries(t.Context(), instance, "", []string{"a"})
	must(t, err)
	again, err := e.Runtime.Entries(t.Context(), instance, read.Changes, []string{"a"})
	if must(t, err); len(again.Entries) != 0 || again.Changes != read.Changes {
		t.Errorf("nothing has changed, and it reads %+v", again)
	}
	must(t, e.Store.EnableEntry(t.Context(), "a", false))
	if again, err = e.Runtime.Entries(t.Context(), instance, read.Changes, []string{"a"}); err != nil || len(again.Entries) != 1 || again.Changes == read.Changes {
		t.Errorf("it was disabled, and it reads %+v, %v", again, err)
	}
}

func anEntryOfAnotherInstanceIsRefusedUntilItIsRemoved(t *testing.T, e *Env) {
	ctx := t.Context()
	e.registered(t, "a")
	result, holders, err := e.Runtime.Register(ctx, "another", []store.Definition{definition("a"), definition("b")}, false)
	if err != nil || string(result) != "xn" || holders[0] != instance || holders[1] != "another" {
		t.Errorf("%q, %v, %v; want a to be elsewhere", result, holders, err)
	}
	must(t, e.Store.RemoveEntry(ctx, "a"))
	if result, _, err = e.Runtime.Register(ctx, "another", []store.Definition{definition("a")}, false); err != nil || string(result) != "n" {
		t.Errorf("%q, %v; want it to be new", result, err)
	}
	if all := e.entries(t); len(all) != 2 || all[0].Instance != "another" {
		t.Errorf("%+v", all)
	}
}

func aDisabledEntryFiresNothingAndMissesNothing(t *testing.T, e *Env) {
	ctx := t.Context()
	e.registered(t, "a")
	must(t, e.Store.EnableEntry(ctx, "a", false))
	e.Later(t, time.Hour)
	tick := e.Now(t).Add(-time.Minute)
	if a := e.decide(t, e.entry(t, "a"), store.Decision{Tick: tick}); a.Verdict != store.Disabled || e.Stats(t).Total != 0 {
		t.Errorf("it is answered %q, %+v", a.Verdict, e.Stats(t))
	}
	if all := e.entries(t); all[0].Enabled || !all[0].Next.IsZero() {
		t.Errorf("%+v, want it disabled and without a next tick", all)
	}
	now := e.Now(t)
	must(t, e.Store.EnableEntry(ctx, "a", true))
	if s := e.entry(t, "a"); !s.Enabled || s.Decided.Before(now) {
		t.Errorf("%+v, want what was before to be nobody's", s)
	}
	before := e.entry(t, "a")
	must(t, e.Store.EnableEntry(ctx, "a", true)) // that it is already
	if after := e.entry(t, "a"); !after.Decided.Equal(before.Decided) {
		t.Errorf("enabled twice it is %+v, it was %+v", after, before)
	}
	wantErr(t, "an unknown entry", e.Store.EnableEntry(ctx, "b", true), store.ErrNotFound)
}

func disablingOutlivesANewRegistration(t *testing.T, e *Env) {
	e.registered(t, "a")
	must(t, e.Store.EnableEntry(t.Context(), "a", false))
	e.register(t, false, definition("a"))
	e.register(t, false, definition("a", func(d *store.Definition) { d.Spec = "@daily" }))
	if s := e.entry(t, "a"); s.Enabled || s.Spec != "@daily" {
		t.Errorf("%+v, want it to be disabled still", s)
	}
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
	_, err := e.Store.FindDispatch(ctx, "a", tick)
	wantErr(t, "its record", err, store.ErrNotFound)
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
	for _, key := range e.keys(t) {
		if strings.Contains(key, "{"+instance+"}") && !strings.Contains(key, ":lane:") {
			t.Errorf("%s is left", key)
		}
	}
	if all := e.entries(t); len(all) != 0 {
		t.Errorf("%+v, want none", all)
	}
	e.registered(t, "b")
	must(t, e.Store.RemoveEntry(ctx, "b"))
	must(t, e.Store.DeleteInstance(ctx, instance, false))
}

func aRemovalWhoseReplyWasLostLeavesNoName(t *testing.T, e *Env) {
	e.registered(t, "a")
	e.Fault.LoseReplyNth(1, onlyScripts)
	if err := e.Store.RemoveEntry(t.Context(), "a"); err == nil {
		t.Fatal("the reply was not lost")
	}
	wantErr(t, "removed again", e.Store.RemoveEntry(t.Context(), "a"), store.ErrNotFound)
	got, _, err := e.Runtime.Register(t.Context(), "other", []store.Definition{definition("a")}, false)
	if must(t, err); got[0] != store.Registered {
		t.Errorf("another instance is answered %q, want that it is registered", got[0])
	}
}

func badEntriesAreRefused(t *testing.T, e *Env) {
	ctx := t.Context()
	for what, d := range map[string]store.Definition{
		"a bad key":     definition("no good"),
		"no key":        definition(""),
		"a bad payload": definition("a", func(d *store.Definition) { d.Job.Payload = []byte("{") }),
		"a priority":    definition("a", func(d *store.Definition) { d.Job.Priority = 11 }),
	} {
		_, _, err := e.Runtime.Register(ctx, instance, []store.Definition{d}, false)
		wantErr(t, what, err, store.ErrInvalid)
	}
	_, _, err := e.Runtime.Register(ctx, "no good", []store.Definition{definition("a")}, false)
	wantErr(t, "a bad instance", err, store.ErrInvalid)
	_, _, err = e.Runtime.Register(ctx, instance, make([]store.Definition, store.MaxCall+1), false)
	wantErr(t, "too many", err, store.ErrInvalid)
	wantErr(t, "a bad key", e.Store.EnableEntry(ctx, "no good", true), store.ErrInvalid)
	wantErr(t, "a bad key", e.Store.RemoveEntry(ctx, ""), store.ErrInvalid)
	wantErr(t, "an unknown entry", e.Store.RemoveEntry(ctx, "a"), store.ErrNotFound)
	_, err = e.Store.RunEntry(ctx, "a")
	wantErr(t, "an unknown entry", err, store.ErrNotFound)
	_, err = e.Store.Dispatches(ctx, store.DispatchFilter{Cursor: "x y"})
	wantErr(t, "a bad cursor", err, store.ErrInvalid)
	_, err = e.Store.Dispatches(ctx, store.DispatchFilter{Limit: -1})
	wantErr(t, "a bad limit", err, store.ErrInvalid)
}

func cronKeysOfTheWrongTypeAreNamed(t *testing.T, e *Env) {
	ctx := t.Context()
	state := e.registered(t, "a")
	e.Later(t, time.Hour)
	e.dispatch(t, "node", "a", e.Now(t).Add(-time.Minute))
	state = e.entry(t, "a")
	before := e.Content(t)
	calls := map[string]func() error{
		"Register": func() error {
			_, _, err := e.Runtime.Register(ctx, instance, []store.Definition{definition("a"), definition("b")}, false)
			return err
		},
		"Entries": func() error { _, err := e.Runtime.Entries(ctx, instance, "", []string{"a"}); return err },
		"Dispatch": func() error {
			_, _, err := e.Runtime.Dispatch(ctx, new(store.Lane), instance, "node",
				[]store.EntryTicks{{Entry: state, Decisions: []store.Decision{{Tick: e.Now(t)}}}})
			return err
		},
		"Undispatched": func() error {
			_, _, err := e.Runtime.Undispatched(ctx, instance, "node", "why", map[string]time.Time{"a": e.Now(t)})
			return err
		},
		"RunEntry":       func() error { _, err := e.Store.RunEntry(ctx, "a"); return err },
		"EnableEntry":    func() error { return e.Store.EnableEntry(ctx, "a", false) },
		"RemoveEntry":    func() error { return e.Store.RemoveEntry(ctx, "a") },
		"List":           func() error { _, err := e.Store.Entries(ctx); return err },
		"FindDispatch":   func() error { _, err := e.Store.FindDispatch(ctx, "a", e.Now(t)); return err },
		"Dispatches":     func() error { _, err := e.Store.Dispatches(ctx, store.DispatchFilter{}); return err },
		"DeleteInstance": func() error { return e.Store.DeleteInstance(ctx, instance, true) },
	}
	uses := map[string][]string{
		"{mail}:cron":            {"Register", "Entries", "List", "RemoveEntry", "DeleteInstance", "RunEntry"},
		"{mail}:cron_jobs":       {"Register", "Dispatch", "RunEntry", "RemoveEntry", "DeleteInstance"},
		"{mail}:cron_ticks":      {"Register", "Entries", "Dispatch", "RunEntry", "EnableEntry", "RemoveEntry", "List", "DeleteInstance"},
		"{mail}:cron_dispatch:a": {"Dispatch", "Undispatched", "RunEntry", "RemoveEntry", "FindDispatch", "Dispatches", "DeleteInstance"},
		"{mail}:cron_removed:a":  {"Register", "RemoveEntry"},
		"entries":                {"Register", "EnableEntry", "RemoveEntry", "RunEntry", "List", "FindDispatch", "Dispatches"},
	}
	for name, ops := range uses {
		right := Cron[strings.TrimSuffix(strings.TrimPrefix(name, "{mail}:"), ":a")] + Global[name]
		for _, kind := range kinds {
			if kind == right {
				continue
			}
			key := e.Prefix + ":" + name
			undo := e.spoil(t, key, kind)
			spoilt := e.Kept(t)
			for _, op := range ops {
				e.wantKeyError(t, op, calls[op](), key, kind, right)
			}
			after := e.Kept(t)
			delete(after, e.Prefix+":entries b") // which instance it belongs to was noted before the rest could not be
			wantSame(t, name+" as a "+kind, spoilt, after)
			undo()
			e.put(t, "HDEL", e.Prefix+":entries", "b")
		}
	}
	wantSame(t, "all put right again", before, e.Content(t))
}
