package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Bad entries of cron, and bad keys.
func cronBadCases() []Case {
	return named(badEntriesAreRefused, cronKeysOfTheWrongTypeAreNamed, aForeignKeyOfOneInstanceHidesNoEntryOfAnother,
		aForeignKeyOfAnEntrysRecordsSpoilsNoOther,
		aForeignKeyOfAnEntryThatWasRemovedSpoilsNoOther)
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
	wantErr(t, "an unknown entry", errOf(e.Store.RunEntry(ctx, "a")), store.ErrNotFound)
	wantErr(t, "a bad cursor", errOf(e.Store.Dispatches(ctx, store.DispatchFilter{Cursor: "x y"})), store.ErrInvalid)
	wantErr(t, "a bad limit", errOf(e.Store.Dispatches(ctx, store.DispatchFilter{Limit: -1})), store.ErrInvalid)
}

func cronKeysOfTheWrongTypeAreNamed(t *testing.T, e *Env) {
	ctx := t.Context()
	e.registered(t, "a")
	e.Later(t, time.Hour)
	e.dispatch(t, "node", "a", e.Now(t).Add(-time.Minute))
	state := e.entry(t, "a")
	before := e.Kept(t)
	calls := map[string]func() error{
		"Register": func() error {
			_, _, err := e.Runtime.Register(ctx, instance, []store.Definition{definition("a"), definition("b")}, false)
			return err
		},
		"Entries": func() error { return errOf(e.Runtime.Entries(ctx, instance, "", []string{"a"})) },
		"Dispatch": func() error {
			got, _, err := e.Runtime.Dispatch(ctx, new(store.Lane), instance, "node",
				[]store.EntryTicks{{Entry: state, Decisions: []store.Decision{{Tick: e.Now(t)}}}})
			if err == nil {
				err = got[0].Err // of its records: they spoil no other entry
			}
			return err
		},
		"Undispatched": func() error {
			_, _, err := e.Runtime.Undispatched(ctx, instance, "node", "why", []store.EntryTicks{{Entry: state, Decisions: []store.Decision{{Tick: e.Now(t)}}}})
			return err
		},
		"RunEntry":       func() error { return errOf(e.Store.RunEntry(ctx, "a")) },
		"EnableEntry":    func() error { return e.Store.EnableEntry(ctx, "a", false) },
		"RemoveEntry":    func() error { return e.Store.RemoveEntry(ctx, "a") },
		"List":           func() error { return errOf(e.Store.Entries(ctx)) },
		"FindDispatch":   func() error { return errOf(e.Store.FindDispatch(ctx, "a", e.Now(t))) },
		"Dispatches":     func() error { return errOf(e.Store.Dispatches(ctx, store.DispatchFilter{})) },
		"DeleteInstance": func() error { return e.Store.DeleteInstance(ctx, instance, true) },
	}
	uses := map[string][]string{
		"{mail}:cron":            {"Register", "Entries", "List", "RemoveEntry", "DeleteInstance", "RunEntry"},
		"{mail}:cron_jobs":       {"Register", "Dispatch", "RunEntry", "RemoveEntry", "DeleteInstance"},
		"{mail}:cron_ticks":      {"Register", "Entries", "Dispatch", "RunEntry", "EnableEntry", "RemoveEntry", "List", "DeleteInstance"},
		"{mail}:cron_dispatch:a": {"Dispatch", "Undispatched", "RunEntry", "RemoveEntry", "FindDispatch", "Dispatches", "DeleteInstance"},
		"{mail}:cron_removed:a":  {"RemoveEntry"},
		"entries":                {"Register", "EnableEntry", "RemoveEntry", "RunEntry", "List", "FindDispatch", "Dispatches"},
	}
	for name, ops := range uses {
		right := Cron[strings.TrimSuffix(strings.TrimPrefix(name, "{mail}:"), ":a")] + Global[name]
		key := e.Prefix + ":" + name
		e.spoilInTurn(t, key, right, e.Kept, func(kind string) {
			for _, op := range ops {
				e.wantKeyError(t, op, calls[op](), key, kind, right)
			}
			if name != "entries" { // which instance it belongs to was noted before the rest could not be
				e.put(t, "HDEL", e.Prefix+":entries", "b")
			}
		})
	}
	wantSame(t, "all put right again", before, e.Kept(t))
}

func aForeignKeyOfAnEntrysRecordsSpoilsNoOther(t *testing.T, e *Env) {
	ctx := t.Context()
	e.registered(t, "a")
	e.registered(t, "b")
	e.registered(t, "c")
	e.Later(t, time.Hour)
	tick, key := e.Now(t).Add(-time.Minute), e.Key(instance, "cron_dispatch:b")
	ticks := func() (all []store.EntryTicks) {
		for _, k := range []string{"a", "b", "c"} {
			all = append(all, store.EntryTicks{Entry: e.entry(t, k), Decisions: []store.Decision{{Tick: tick}}})
		}
		return all
	}
	undo := e.spoil(t, key, "list")
	first, _, err := e.Runtime.Undispatched(ctx, instance, "node", "no memory", ticks())
	e.wantKeyError(t, "Undispatched", err, key, "list", "zset")
	if !first[0] || first[1] || !first[2] || e.record(t, "c", tick).Status != store.StatusFailed {
		t.Errorf("%v, %+v; want the others noted", first, e.record(t, "c", tick))
	}
	got, _, err := e.Runtime.Dispatch(ctx, new(store.Lane), instance, "node", ticks())
	must(t, err)
	if string(got[0].Outcomes) != "d" || got[1].Verdict != store.Spoilt || len(got[1].Outcomes) != 0 || string(got[2].Outcomes) != "d" || e.Stats(t).Todo != 2 {
		t.Errorf("%+v, %+v; want the others dispatched", got, e.Stats(t))
	}
	e.wantKeyError(t, "Dispatch", got[1].Err, key, "list", "zset")
	_, err = e.Store.RunEntry(ctx, "b")
	e.wantKeyError(t, "RunEntry", err, key, "list", "zset")
	page, err := e.Store.Dispatches(ctx, store.DispatchFilter{})
	e.wantKeyError(t, "Dispatches", err, key, "list", "zset")
	if len(page.Dispatches) != 2 || page.Dispatches[1].Entry != "c" || page.Next != "" {
		t.Errorf("%+v, want the records of the others", page)
	}
	if kind := e.Raw.Type(ctx, key).Val(); kind != "list" {
		t.Errorf("the foreign key is a %s now", kind)
	}
	undo()
	if a := e.decide(t, e.entry(t, "b"), store.Decision{Tick: tick}); string(a.Outcomes) != "d" {
		t.Errorf("%+v, want it to go on", a)
	}
}

func aForeignKeyOfAnEntryThatWasRemovedSpoilsNoOther(t *testing.T, e *Env) {
	key := e.Key(instance, "cron_removed:b")
	undo := e.spoil(t, key, "hash")
	all := []store.Definition{definition("a"), definition("b"), definition("c")}
	result, about, err := e.Runtime.Register(t.Context(), instance, all, false)
	must(t, err)
	if string(result) != "nfn" || !strings.Contains(about[1], key) || !strings.Contains(about[1], "hash") || !e.entry(t, "b").Missing {
		t.Errorf("%q, %q; want b refused for its key", result, about)
	}
	undo()
	if got := e.register(t, false, all...); got != "sns" {
		t.Errorf("it is %q, want b to be new", got)
	}
}

func aForeignKeyOfOneInstanceHidesNoEntryOfAnother(t *testing.T, e *Env) {
	e.registered(t, "a")
	_, _, err := e.Runtime.Register(t.Context(), "other", []store.Definition{definition("b")}, false)
	must(t, err)
	key := e.Key(instance, "cron_ticks")
	undo := e.spoil(t, key, "set")
	all, err := e.Store.Entries(t.Context())
	e.wantKeyError(t, "Entries", err, key, "set", "hash")
	if len(all) != 1 || all[0].Key != "b" {
		t.Errorf("%+v, want the other one", all)
	}
	undo()
}
