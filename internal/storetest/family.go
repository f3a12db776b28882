package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// CheckFamilies does random sequences of all that happens in the lives of parents and children (family_events.go), each command of which
// may be the last before a crash: what should follow then simply does not. After each it looks at every parent, by what must be so in
// plain words; and in the end the sweepers and honest workers bring all to an end.
func CheckFamilies(t *rapid.T, rig ModelRig) {
	f := newFamilies(rig)
	actions := map[string]func(*rapid.T){"": f.check}
	for name, e := range f.events() {
		actions[name] = func(t *rapid.T) {
			if !e.may() {
				t.Skip("there is nothing to do it to")
			}
			e.do(t)
		}
	}
	t.Repeat(actions)
	f.settle(t)
}

// FamilyPair is two events, one after the other, and what has happened before: the life of one family up to some point.
type FamilyPair struct{ Before, First, Second string }

// FamilyPairs are all pairs of events, at each of the points.
func FamilyPairs() []FamilyPair {
	var all []FamilyPair
	names := slices.Sorted(maps.Keys(newFamilies(ModelRig{}).events()))
	for point := range familyPoints {
		for _, first := range names {
			for _, second := range names {
				all = append(all, FamilyPair{point, first, second})
			}
		}
	}
	slices.SortFunc(all, func(a, b FamilyPair) int {
		return slices.Compare([]string{a.First, a.Second, a.Before}, []string{b.First, b.Second, b.Before})
	})
	return all
}

// FamilyPoints is how many points there are.
var FamilyPoints = len(familyPoints)

// Points in the life of a family, by what leads to them.
var familyPoints = map[string][]string{
	"the parent waits":               {"enqueue parent"},
	"the parent runs":                {"enqueue parent", "claim parent"},
	"a child has a record":           {"enqueue parent", "claim parent", "dispatch"},
	"a child waits":                  {"enqueue parent", "claim parent", "dispatch", "enqueue child"},
	"a child runs":                   {"enqueue parent", "claim parent", "dispatch", "enqueue child", "claim child"},
	"a child has ended":              {"enqueue parent", "claim parent", "dispatch", "enqueue child", "claim child", "end child"},
	"parked, a child has a record":   {"enqueue parent", "claim parent", "dispatch", "park"},
	"parked, a child waits":          {"enqueue parent", "claim parent", "dispatch", "park", "enqueue child"},
	"parked, a child runs":           {"enqueue parent", "claim parent", "dispatch", "park", "enqueue child", "claim child"},
	"parked, a child has ended":      {"enqueue parent", "claim parent", "dispatch", "park", "enqueue child", "claim child", "end child"},
	"an outcome has arrived":         {"enqueue parent", "claim parent", "dispatch", "park", "enqueue child", "claim child", "end child", "tell"},
	"the parent has ended before it": {"enqueue parent", "claim parent", "dispatch", "enqueue child", "claim child", "end parent"},
}

// CheckFamilyPair does two events, where they can be done, and lets all come to its end. It looks at the family after each.
func CheckFamilyPair(t *rapid.T, rig ModelRig, p FamilyPair) {
	f := newFamilies(rig)
	events := f.events()
	for _, name := range append(slices.Clone(familyPoints[p.Before]), p.First, p.Second) {
		if e := events[name]; e.may() {
			e.do(t)
			f.check(t)
		}
	}
	f.settle(t)
}

// families is a store with parents and children, and what is known of them.
type families struct {
	rig     ModelRig
	rt      *store.Runtime
	ctx     context.Context
	process uuid.UUID
	passed  time.Duration // by moving what the server has noted

	parents  map[uuid.UUID]*parentModel
	ids      []uuid.UUID                // of parents, in the order in which they were made
	latest   map[uuid.UUID]*store.Lease // of each job
	held     []*store.Lease
	kids     []*store.Lease
	unsent   []store.NewJob  // children that have a record and are not enqueued
	untold   []store.Outcome // of children that ended in the hands of a worker that has not told
	born     map[uuid.UUID]bool
	done     map[uuid.UUID]bool // children whose body has run to its end
	asked    map[uuid.UUID]bool // jobs that somebody has cancelled
	children []uuid.UUID
}

func newFamilies(rig ModelRig) *families {
	f := &families{rig: rig, ctx: context.Background(), process: uuid.New(), parents: map[uuid.UUID]*parentModel{},
		latest: map[uuid.UUID]*store.Lease{}, born: map[uuid.UUID]bool{}, done: map[uuid.UUID]bool{}, asked: map[uuid.UUID]bool{}}
	if rig.Store != nil {
		f.rt = rig.Store.Runtime()
	}
	return f
}

// parentModel is what is known of a parent.
type parentModel struct {
	waits []string              // while it is parked, for steps
	any   bool                  // it waits for one of them
	until time.Time             // while it is parked, for a time
	ended map[string]store.Step // the outcomes that were seen
	open  map[string]uuid.UUID  // dispatched, and no outcome seen
}

func (p *parentModel) unpark() { p.waits, p.any, p.until = nil, false, time.Time{} }

func (f *families) fail(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// later lets time pass.
func (f *families) later(t *rapid.T, d time.Duration) {
	if f.rig.Fake {
		time.Sleep(d)
		return
	}
	f.passed += d
	f.fail(t, shift(f.ctx, f.rig.Client, f.rig.Prefix, d))
}

// now is the server's clock, and what has passed otherwise.
func (f *families) now(t *rapid.T) time.Time {
	now, err := f.rig.Client.Time(f.ctx).Result()
	f.fail(t, err)
	return now.Add(f.passed)
}

// check looks at every parent.
func (f *families) check(t *rapid.T) {
	for id, p := range f.parents {
		at := f.now(t)
		j, err := f.rig.Store.Get(f.ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue // it was deleted
		}
		f.fail(t, err)
		page, err := f.rig.Store.Steps(f.ctx, id, "")
		f.fail(t, err)
		now := map[string]store.Step{}
		for _, s := range page.Steps {
			now[s.Name] = s
		}
		for name, was := range p.ended {
			if is := now[name]; is.State != was.State || string(is.Result) != string(was.Result) || is.Fate != was.Fate || is.Child != was.Child {
				t.Fatalf("step %s of %s was %+v and is %+v", name, id, was, is)
			}
		}
		f.checkWait(t, j, p, now, at)
		f.checkOpen(t, j, now)
		for name, s := range now {
			if s.State != store.StepDispatched {
				p.ended[name] = s
				delete(p.open, name)
			}
		}
	}
}

// checkOpen fails if a child was cancelled though its parent, which has not ended, waits for it, and nobody asked for that.
func (f *families) checkOpen(t *rapid.T, j store.Job, now map[string]store.Step) {
	for name, s := range now {
		if s.State != store.StepDispatched || j.State.Terminal() || f.asked[s.Child] {
			continue
		}
		if c, err := f.rig.Store.Get(f.ctx, s.Child); err == nil && c.State == store.Cancelled {
			t.Fatalf("child %s of step %s of %s was cancelled, and nobody asked for that", s.Child, name, j.ID)
		}
	}
}

// checkWait fails if a parent is parked, though what it waits for is there, or the other way round. at: a time before it was looked at.
func (f *families) checkWait(t *rapid.T, j store.Job, p *parentModel, now map[string]store.Step, at time.Time) {
	left, ready := 0, false
	for _, name := range p.waits {
		switch s := now[name]; {
		case s.State == store.StepDispatched:
			left++
		case p.any || s.State == store.StepFailed:
			ready = true
		}
	}
	switch {
	case j.State == store.Parked && p.until.IsZero() && (ready || left == 0):
		t.Fatalf("parent %s is parked, though what it waits for is there: %v of %+v", j.ID, p.waits, now)
	case j.State == store.Todo && p.waits != nil && left > 0 && !ready:
		t.Fatalf("parent %s is todo, though it waits for %d of %v", j.ID, left, p.waits)
	case j.State == store.Todo && f.now(t).Before(p.until):
		t.Fatalf("parent %s is todo at %v, though it sleeps until %v", j.ID, at, p.until)
	}
}

// settle lets the sweepers and honest workers bring everything to its end.
func (f *families) settle(t *rapid.T) {
	f.unsent, f.untold = nil, nil // whoever had these in mind is dead
	left := "something"
	for round := 0; round < 100 && left != ""; round++ {
		f.later(t, 11*time.Minute)
		for _, instance := range []string{parentsIn, childrenIn} {
			f.reap(t, instance)
			f.sweep(t, instance)
		}
		for _, l := range f.claim(t, childrenIn) {
			f.run(t, l, store.Complete)
		}
		for _, l := range f.claim(t, parentsIn) {
			f.finish(t, l, store.Finish{Verb: store.Complete})
		}
		f.check(t)
		left = f.left(t)
	}
	if left != "" {
		t.Fatalf("in the end there is still %s", left)
	}
}

// left names something that has not come to its end, "" if all has.
func (f *families) left(t *rapid.T) string {
	all, err := f.rig.Store.Stats(f.ctx)
	f.fail(t, err)
	for _, s := range all {
		if n := s.Todo + s.Scheduled + s.Doing + s.Parked; n > 0 {
			return fmt.Sprintf("%+v", s)
		}
	}
	for _, key := range []string{parentsIn + "}:children", parentsIn + "}:chores", childrenIn + "}:chores", childrenIn + "}:outbox"} {
		n, err := f.rig.Client.Exists(f.ctx, f.rig.Prefix+":{"+key).Result()
		f.fail(t, err)
		if n > 0 {
			return key
		}
	}
	return ""
}
