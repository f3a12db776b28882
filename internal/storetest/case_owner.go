package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
)

// Which instance an entry belongs to stands apart from the entry, so two keys are written one after the other. Whatever others do in
// between, an entry has its name and a name its entry.
func ownerCases() []Case {
	return named(anEntryKeepsItsNameWhateverComesBetween, anEntryHasOneInstanceWhateverComesBetween)
}

// gap calls f once, before the n-th command that a client sends, and what f sends counts for nothing.
type gap struct {
	n int
	f func()
}

func (g *gap) DialHook(next redis.DialHook) redis.DialHook { return next }
func (g *gap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if g.n--; g.n == 0 {
			g.f()
		}
		return next(ctx, cmd)
	}
}
func (g *gap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// inEachGap does something again and again with something else before its first command, its second, and so on until it has no more.
func (e *Env) inEachGap(t *testing.T, setup func(), outer, inner func(), check func(n int)) {
	t.Helper()
	g := &gap{}
	e.Runtime.Client().AddHook(g)
	for n := 1; ; n++ {
		setup()
		came := false
		g.n, g.f = n, func() { came = true; inner() }
		outer()
		if g.n = 0; !came {
			if n < 3 {
				t.Errorf("only %d commands", n-1)
			}
			return
		}
		check(n)
	}
}

// wantNamed fails the test unless an entry is where it belongs to, or nowhere.
func (e *Env) wantNamed(t *testing.T, n int, what, key string, instances ...string) {
	t.Helper()
	owner := e.Raw.HGet(t.Context(), e.Prefix+":entries", key).Val()
	where := ""
	for _, i := range instances {
		for _, hash := range []string{"cron", "cron_jobs", "cron_ticks"} {
			if e.Raw.HExists(t.Context(), e.Key(i, hash), key).Val() {
				if where != "" && where != i {
					t.Errorf("%s, before command %d: it is in %s and in %s", what, n, where, i)
				}
				where = i
			}
		}
	}
	if owner != where {
		t.Errorf("%s, before command %d: it belongs to %q and is in %q", what, n, owner, where)
	}
}

func anEntryKeepsItsNameWhateverComesBetween(t *testing.T, e *Env) {
	ctx := t.Context()
	old, newer := definition("a"), definition("a", func(d *store.Definition) { d.Spec = "@daily" })
	remove := func() {
		if err := e.Store.RemoveEntry(ctx, "a"); err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
	}
	erase := func() { must(t, e.Store.DeleteInstance(ctx, instance, true)) }
	start := func() { e.register(t, false, newer) }
	again := func() { e.register(t, true, old) }
	anew := func() {
		remove()
		e.Raw.Del(ctx, e.Key(instance, "cron_removed:a"))
		e.register(t, false, old)
	}
	none := func() {
		anew()
		remove()
	}
	for what, c := range map[string]struct{ setup, outer, inner func() }{
		"registered while it is removed":                   {anew, remove, start},
		"removed while it is registered":                   {anew, start, remove},
		"removed while it is new":                          {none, start, remove},
		"registered while its instance is deleted":         {anew, erase, start},
		"its instance deleted while it is registered":      {anew, start, erase},
		"made up for while it is removed":                  {anew, remove, again},
		"removed while it is made up for":                  {anew, again, remove},
		"removed twice at once":                            {anew, remove, remove},
		"removed, registered and removed while registered": {anew, start, func() { remove(); start(); remove() }},
		"removed and registered while it is removed":       {anew, remove, func() { remove(); start() }},
	} {
		e.inEachGap(t, c.setup, c.outer, c.inner, func(n int) { e.wantNamed(t, n, what, "a", instance) })
	}
	// Of two that register it at once the later stands, and the other one sees that.
	e.inEachGap(t, anew, start, func() { e.register(t, false, definition("a", func(d *store.Definition) { d.Spec = "@hourly" })) }, func(n int) {
		if spec := e.entry(t, "a").Spec; spec != "@hourly" && spec != "@daily" {
			t.Errorf("before command %d: %q stands", n, spec)
		}
		e.wantNamed(t, n, "registered twice at once", "a", instance)
	})
}

func anEntryHasOneInstanceWhateverComesBetween(t *testing.T, e *Env) {
	ctx := t.Context()
	remove := func() { _ = e.Store.RemoveEntry(ctx, "a") }
	register := func(in string) store.Registration {
		result, about, err := e.Runtime.Register(ctx, in, []store.Definition{definition("a")}, false)
		must(t, err)
		if result[0] == store.Elsewhere && about[0] == in {
			t.Errorf("%s is told that it belongs to itself", in)
		}
		return result[0]
	}
	here, there := func() { register(instance) }, func() { register("other") }
	moved := func() { remove(); register("other") }
	nothing := func() { remove(); remove() }
	for what, c := range map[string]struct{ setup, outer, inner func() }{
		"another instance registers a new one":         {nothing, here, there},
		"another instance gets it while it is removed": {func() { nothing(); here() }, remove, moved},
		"it moves while it is registered":              {func() { nothing(); here() }, here, moved},
		"it moves while its instance is deleted":       {func() { nothing(); here() }, func() { _ = e.Store.DeleteInstance(ctx, instance, true) }, moved},
	} {
		e.inEachGap(t, c.setup, c.outer, c.inner, func(n int) { e.wantNamed(t, n, what, "a", instance, "other") })
	}
}
