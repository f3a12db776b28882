package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// undispatched notes that a tick could not be dispatched: mostly the next one.
func (c *cronMachine) undispatched(t *rapid.T) {
	key := drawKey(t)
	e, there := c.model[key]
	if !there {
		t.Skip("no such entry")
	}
	tick := c.decidedUntil(t, e.high).Add(c.every * time.Duration(rapid.IntRange(-1, 1).Draw(t, "tick")))
	c.step(t, "fail "+key, func() string {
		failed := store.EntryTicks{Entry: store.EntryState{Definition: store.Definition{Key: key}, Fingerprint: e.def.Fingerprint()}, Decisions: []store.Decision{{Tick: tick}}}
		_, _, err := c.rt.Undispatched(c.ctx, instance, "node", "no memory", []store.EntryTicks{failed})
		return nameOf(t, err)
	}, func(cronModel, int64) string { return "ok" })
}

func (c *cronMachine) byHand(t *rapid.T) {
	c.admin(t, "by hand", func(key string) error { return errOf(c.rig.Store.RunEntry(c.ctx, key)) }, func(cronModel, string, int64) {})
}

func (c *cronMachine) enable(t *rapid.T) {
	on := rapid.IntRange(0, 2).Draw(t, "on") > 0
	c.admin(t, fmt.Sprint("enable ", on), func(key string) error { return c.rig.Store.EnableEntry(c.ctx, key, on) }, func(m cronModel, key string, now int64) {
		e := m[key]
		if on && !e.on {
			e.high = nobodys(e.high, now)
		}
		e.on = on
		m[key] = e
	})
}

func (c *cronMachine) remove(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "really") > 0 {
		t.Skip("more rarely than the others")
	}
	c.admin(t, "remove", func(key string) error { return c.rig.Store.RemoveEntry(c.ctx, key) }, func(m cronModel, key string, _ int64) {
		delete(m, key)
		delete(c.status, key) // its records went with it: who registers it anew begins anew
		maps.DeleteFunc(c.fired, func(_ uuid.UUID, entry string) bool { return entry == key })
		c.removed[key] = true
	})
}

// admin does something to an entry, if it is there.
func (c *cronMachine) admin(t *rapid.T, what string, call func(string) error, expect func(m cronModel, key string, now int64)) {
	key := drawKey(t)
	c.step(t, what+" "+key, func() string { return nameOf(t, call(key)) }, func(m cronModel, now int64) string {
		if _, there := m[key]; !there {
			return "not found"
		}
		expect(m, key, now)
		return "ok"
	})
}

// job does something to the job of a tick, which changes nothing of the ticks.
func (c *cronMachine) job(t *rapid.T) {
	if len(c.fired) == 0 {
		t.Skip("no tick was dispatched")
	}
	id := rapid.SampledFrom(slices.SortedFunc(maps.Keys(c.fired), func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })).Draw(t, "job")
	do := rapid.SampledFrom([]func(context.Context, uuid.UUID) error{c.rig.Store.Cancel, c.rig.Store.Delete, func(ctx context.Context, id uuid.UUID) error {
		return c.rig.Store.Requeue(ctx, id, store.RequeueMode{})
	}}).Draw(t, "what")
	c.step(t, "a job of a tick", func() string { _ = do(c.ctx, id); return "" }, func(cronModel, int64) string { return "" })
}

// check looks at all records: each is there that was, one a tick, and what is decided stays so.
func (c *cronMachine) check(t *rapid.T) {
	page, err := c.rig.Store.Dispatches(c.ctx, store.DispatchFilter{Limit: store.MaxCall})
	if err != nil || page.Next != "" {
		t.Fatalf("listing dispatches: %v, next %q", err, page.Next)
	}
	now := map[string]map[int64]string{}
	for _, d := range page.Dispatches {
		tick := msOf(d.FireAt)
		if d.ByHand {
			continue
		}
		if now[d.Entry] == nil {
			now[d.Entry] = map[int64]string{}
		}
		if other, twice := now[d.Entry][tick]; twice {
			t.Fatalf("tick %d of %s has two records, %s and %s", tick, d.Entry, other, d.Status)
		}
		now[d.Entry][tick] = d.Status
		was := c.status[d.Entry][tick]
		if e := c.model[d.Entry]; d.Status == store.StatusSkipped && !slices.Contains(e.skipped, ticks{msOf(d.First), tick}) ||
			d.Status != store.StatusSkipped && was == "" && e.skips(tick) {
			t.Fatalf("tick %d of %s is %s, from %d on; skipped were %v", tick, d.Entry, d.Status, msOf(d.First), e.skipped)
		}
		if d.Status == store.StatusDispatched && was != d.Status {
			id := c.rt.JobOfTick(instance, d.Entry, d.FireAt)
			if _, before := c.fired[id]; d.Job != id || before {
				t.Fatalf("tick %d of %s is dispatched, by job %s of %s; before: %v", tick, d.Entry, d.Job, id, before)
			}
			c.fired[id] = d.Entry
			if j, err := c.rig.Store.Get(c.ctx, id); err != nil || j.Tick.Entry != d.Entry || msOf(j.Tick.At) != tick {
				t.Fatalf("tick %d of %s has the job %+v, %v", tick, d.Entry, j, err)
			}
		}
	}
	for entry, ticks := range c.status {
		for tick, was := range ticks {
			if is := now[entry][tick]; is != was && was != store.StatusFailed || is == "" {
				t.Fatalf("the record of tick %d of %s was %s and is %q", tick, entry, was, is)
			}
		}
	}
	c.status = now
}
