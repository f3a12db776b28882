package storetest

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Entries of cron: who has them, what they are, and that they can be switched off and removed.
func cronCases() []Case {
	return named(anEntryIsListedWithItsNextAndLastTick, anEntryIsOverdueWhileItsTickIsOnNoRecord, ticksBeforeAnEntryIsRegisteredAreNobodys, theNewestRegistrationWins,
		theSameRegistrationChangesNothing, anEntryOfAnotherInstanceIsRefusedUntilItIsRemoved, aDisabledEntryFiresNothingAndMissesNothing,
		disablingOutlivesANewRegistration)
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
	first := now.Add(-50 * time.Hour).Truncate(24 * time.Hour).Add(24 * time.Hour)
	if d, want := overdue(), now.Sub(first); d < want-time.Minute || d > want+time.Minute {
		t.Errorf("overdue by %v, want %v: since the first of its ticks", d, want)
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
