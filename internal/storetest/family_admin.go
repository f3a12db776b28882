package storetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// What administration and maintenance do to families.

func (f *families) admin(t *rapid.T, do func(context.Context, uuid.UUID) error) {
	id, _ := draw(t, slices.Concat(f.ids, f.children))
	f.asked[id] = true
	t.Logf("%s: %v", name4(id), do(f.ctx, id)) // it may have ended, or be gone, or be doing
}

// purge removes all jobs in a state.
func (f *families) purge(t *rapid.T) {
	_, err := f.rig.Store.Purge(f.ctx, store.Filter{
		Instance: rapid.SampledFrom([]string{parentsIn, childrenIn}).Draw(t, "of"),
		State:    rapid.SampledFrom([]store.State{store.Scheduled, store.Todo, store.Parked, store.Done, store.Dead, store.Cancelled}).Draw(t, "state"),
	})
	f.fail(t, err)
}

// requeue keeps of the steps what was committed: all, none, or what was begun before a step.
func (f *families) requeue(t *rapid.T) {
	id, _ := draw(t, f.ids)
	p := f.parents[id]
	from := rapid.SampledFrom([]string{"b", "x"}).Draw(t, "from")
	first := p.ended[from].Number
	kept := func(store.Step) bool { return false }
	var m store.RequeueMode
	switch rapid.IntRange(0, 2).Draw(t, "mode") {
	case 0:
		m, kept = store.Resume, func(store.Step) bool { return true }
	case 1:
		m = store.Fresh
	case 2:
		m, kept = store.FromStep(from), func(s store.Step) bool { return s.Number < first }
	}
	err := f.rig.Store.Requeue(f.ctx, id, m)
	t.Logf("requeue of %s: %v", name4(id), err)
	if err != nil {
		return
	}
	p.unpark()
	p.open = map[string]uuid.UUID{}
	maps.DeleteFunc(p.ended, func(_ string, s store.Step) bool { return s.State != store.StepCompleted || !kept(s) })
}

func (f *families) reap(t *rapid.T, instance string) {
	got, err := f.rt.Reap(f.ctx, f.terms(instance))
	f.fail(t, err)
	t.Logf("reap of %s: %+v", instance, got)
}

// trim removes what has ended, whatever has not been told yet.
func (f *families) trim(t *rapid.T, instance string) {
	terms := f.terms(instance)
	terms.Done, terms.Dead = store.Retention{}, store.Retention{Age: time.Millisecond}
	_, err := f.rt.Reap(f.ctx, terms)
	f.fail(t, err)
}

func (f *families) sweep(t *rapid.T, instance string) {
	there := map[uuid.UUID]bool{}
	for _, id := range f.children {
		j, err := f.rig.Store.Get(f.ctx, id)
		if !errors.Is(err, store.ErrNotFound) {
			f.fail(t, err)
		}
		there[id] = err == nil && !j.State.Terminal()
	}
	at := f.now(t)
	got, err := f.rt.Sweep(f.ctx, instance)
	f.fail(t, err)
	f.fail(t, got.Err)
	t.Logf("sweep of %s: %+v", instance, got)
	for _, s := range got.Again {
		if there[s.Child] {
			t.Fatalf("child %s was dispatched again while it merely waits", s.Child)
		}
	}
	for id, p := range f.parents {
		if j, err := f.rig.Store.Get(f.ctx, id); err == nil && instance == parentsIn && j.State == store.Parked && !p.until.IsZero() && p.until.Before(at) {
			t.Fatalf("parent %s was to wake at %v, and after a sweep at %v it sleeps", id, p.until, at)
		}
	}
}
