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

// CheckFamilies does random sequences of all that happens in the lives of parents and children, each command of which may be the last
// before a crash: what should follow then simply does not. After each it looks at every parent, by what must be so in plain words; and in the end
// the sweepers and honest workers bring all to an end.
func CheckFamilies(t *rapid.T, rig ModelRig) {
	f := &families{rig: rig, rt: rig.Store.Runtime(), ctx: context.Background(), process: uuid.New(), parents: map[uuid.UUID]*parentModel{},
		born: map[uuid.UUID]bool{}, done: map[uuid.UUID]bool{}}
	t.Repeat(f.actions())
	f.settle(t)
}

// The instances of parents and of children, and the steps that a parent may have.
const parentsIn, childrenIn = "order", "part"

var stepNames = []string{"a", "b", "c"}

type families struct {
	rig     ModelRig
	rt      *store.Runtime
	ctx     context.Context
	process uuid.UUID

	parents  map[uuid.UUID]*parentModel
	ids      []uuid.UUID // of parents, in the order in which they were made
	held     []*store.Lease
	kids     []*store.Lease
	unsent   []store.NewJob  // children that have a record and are not enqueued
	untold   []store.Outcome // of children that ended in the hands of a worker that has not told
	born     map[uuid.UUID]bool
	done     map[uuid.UUID]bool // children whose body has run to its end
	children []uuid.UUID
}

// parentModel is what is known of a parent.
type parentModel struct {
	waits []string              // while it is parked
	ended map[string]store.Step // the outcomes that were seen
	open  map[string]uuid.UUID  // dispatched, and no outcome seen
	gen   int
}

func (f *families) terms(instance string) store.Terms {
	kept := store.Retention{Age: 240 * time.Hour, Count: 1000}
	return store.Terms{Instance: instance, Process: f.process, Lease: 20 * time.Second, Done: kept, Dead: kept, MaxCrashes: 3}
}

func (f *families) fail(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *families) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":               f.check,
		"enqueue parent": f.enqueueParent,
		"claim parent":   func(t *rapid.T) { f.held = append(f.held, f.claim(t, parentsIn)...) },
		"claim child":    func(t *rapid.T) { f.kids = append(f.kids, f.claim(t, childrenIn)...) },
		"live":           f.live,
		"dispatch":       f.dispatchOne,
		"enqueue child":  f.enqueueChild,
		"park":           f.park,
		"end parent":     f.endParent,
		"end child":      f.endChild,
		"tell":           f.tell,
		"cancel":         func(t *rapid.T) { f.admin(t, f.rig.Store.Cancel) },
		"delete":         func(t *rapid.T) { f.admin(t, f.rig.Store.Delete) },
		"requeue":        f.requeue,
		"reap":           func(t *rapid.T) { f.reap(t, rapid.SampledFrom([]string{parentsIn, childrenIn}).Draw(t, "instance")) },
		"trim":           f.trim,
		"sweep":          func(t *rapid.T) { f.sweep(t, rapid.SampledFrom([]string{parentsIn, childrenIn}).Draw(t, "instance")) },
		"sleep": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, 11 * time.Second, 21 * time.Second, 11 * time.Minute}).Draw(t, "for"))
		},
	}
}

// live does what mostly comes next, without a crash: so that there are families at all.
func (f *families) live(t *rapid.T) {
	switch {
	case len(f.kids) > 0:
		f.endChild(t)
	case len(f.unsent) > 0:
		f.enqueueChild(t)
		f.kids = append(f.kids, f.claim(t, childrenIn)...)
	case len(f.held) > 0:
		f.dispatchOne(t)
	case len(f.ids) == 0:
		f.enqueueParent(t)
	default:
		f.held = append(f.held, f.claim(t, parentsIn)...)
	}
}

func (f *families) enqueueParent(t *rapid.T) {
	if len(f.ids) > 5 {
		t.Skip("enough")
	}
	id := uuid.New()
	_, err := f.rt.Enqueue(f.ctx, new(store.Lane), parentsIn, []store.NewJob{{ID: id, Payload: []byte(`{}`)}})
	f.fail(t, err)
	f.ids = append(f.ids, id)
	f.parents[id] = &parentModel{ended: map[string]store.Step{}, open: map[string]uuid.UUID{}}
}

// claim takes one job, if there is one.
func (f *families) claim(t *rapid.T, instance string) []*store.Lease {
	got, err := f.rt.Exchange(f.ctx, new(store.Lane), f.terms(instance), store.Exchange{Claims: []uuid.UUID{uuid.New()}})
	f.fail(t, err)
	for _, l := range got.Leases {
		if p := f.parents[l.Job.ID]; p != nil {
			p.waits, p.gen = nil, l.Steps.Generation
		}
	}
	return got.Leases
}

func (f *families) finish(t *rapid.T, l *store.Lease, fin store.Finish) store.State {
	fin.Lease = l
	got, err := f.rt.Exchange(f.ctx, new(store.Lane), f.terms(l.Job.Instance), store.Exchange{Finishes: []store.Finish{fin}})
	f.fail(t, err)
	return got.Ended[0]
}

func draw[T any](t *rapid.T, from []T) (T, int) {
	if len(from) == 0 {
		t.Skip("there is none")
	}
	i := rapid.IntRange(0, len(from)-1).Draw(t, "which")
	return from[i], i
}

func (f *families) dispatchOne(t *rapid.T) {
	l, _ := draw(t, f.held)
	w := child(l, rapid.SampledFrom(stepNames).Draw(t, "step"))
	w.Instance = childrenIn
	got, err := f.rt.Commit(f.ctx, l, limits, w)
	if err != nil {
		return // its lease is lost
	}
	if s := got.Known[0]; s.State == store.StepDispatched && s.Child == w.Child.ID && !f.born[s.Child] {
		f.born[s.Child] = true
		f.children = append(f.children, s.Child)
		f.unsent = append(f.unsent, w.Child)
		f.parents[l.Job.ID].open[w.Name] = s.Child
	}
}

func (f *families) enqueueChild(t *rapid.T) {
	n, i := draw(t, f.unsent)
	_, err := f.rt.Enqueue(f.ctx, new(store.Lane), childrenIn, []store.NewJob{n})
	f.fail(t, err)
	if rapid.Bool().Draw(t, "only once") {
		f.unsent = slices.Delete(f.unsent, i, i+1)
	}
}

func (f *families) park(t *rapid.T) {
	l, i := draw(t, f.held)
	f.held = slices.Delete(f.held, i, i+1)
	p := f.parents[l.Job.ID]
	names := slices.Sorted(maps.Keys(p.open))
	if f.finish(t, l, store.Finish{Verb: store.Park, Wait: store.Wait{Steps: names}}) == store.Parked {
		p.waits = names
	}
}

func (f *families) endParent(t *rapid.T) {
	l, i := draw(t, f.held)
	f.held = slices.Delete(f.held, i, i+1)
	f.finish(t, l, store.Finish{Verb: rapid.SampledFrom([]store.Verb{store.Complete, store.Bury, store.Release}).Draw(t, "verb")})
}

// endChild runs a child as a worker does: it is vetted first.
func (f *families) endChild(t *rapid.T) {
	l, i := draw(t, f.kids)
	f.kids = slices.Delete(f.kids, i, i+1)
	f.run(t, l, rapid.SampledFrom([]store.Verb{store.Complete, store.Bury, store.Release}).Draw(t, "verb"))
}

func (f *families) run(t *rapid.T, l *store.Lease, verb store.Verb) {
	wanted, err := f.rt.Wanted(f.ctx, &l.Job)
	f.fail(t, err)
	p := f.parents[l.Job.Parent.ID]
	if s, ok := p.ended[l.Job.Parent.Step]; ok && s.Child == l.Job.ID && wanted {
		t.Fatalf("the body of child %s would run although its outcome is stored: %+v", l.Job.ID, s)
	}
	if f.done[l.Job.ID] && wanted {
		t.Fatalf("the body of child %s would run again, though it has run to its end", l.Job.ID)
	}
	if !wanted {
		verb = store.Cancel
	}
	result := fmt.Appendf(nil, "%q", l.Job.Parent.Step)
	if s := f.finish(t, l, store.Finish{Verb: verb, Result: result, Error: "why"}); s.Terminal() {
		f.done[l.Job.ID] = f.done[l.Job.ID] || s == store.Done
		f.untold = append(f.untold, store.OutcomeOf(&l.Job, s, result, "why"))
	}
}

func (f *families) tell(t *rapid.T) {
	o, i := draw(t, f.untold)
	if rapid.Bool().Draw(t, "only once") {
		f.untold = slices.Delete(f.untold, i, i+1)
	}
	f.fail(t, f.rt.Relay(f.ctx, []store.Outcome{o}))
}

func (f *families) admin(t *rapid.T, do func(context.Context, uuid.UUID) error) {
	id, _ := draw(t, slices.Concat(f.ids, f.children))
	_ = do(f.ctx, id) // it may have ended, or be gone, or be doing
}

func (f *families) requeue(t *rapid.T) {
	id, _ := draw(t, f.ids)
	m := rapid.SampledFrom([]store.RequeueMode{store.Resume, store.Fresh, store.FromStep("b")}).Draw(t, "mode")
	if f.rig.Store.Requeue(f.ctx, id, m) != nil {
		return
	}
	p := f.parents[id]
	p.waits, p.ended, p.open = nil, map[string]store.Step{}, map[string]uuid.UUID{}
}

func (f *families) reap(t *rapid.T, instance string) {
	_, err := f.rt.Reap(f.ctx, f.terms(instance))
	f.fail(t, err)
}

// trim removes what has ended, whatever has not been told yet.
func (f *families) trim(t *rapid.T) {
	terms := f.terms(rapid.SampledFrom([]string{parentsIn, childrenIn}).Draw(t, "instance"))
	terms.Done, terms.Dead = store.Retention{}, store.Retention{Age: time.Millisecond}
	_, err := f.rt.Reap(f.ctx, terms)
	f.fail(t, err)
}

func (f *families) sweep(t *rapid.T, instance string) {
	there := map[uuid.UUID]bool{}
	for _, id := range f.children {
		j, err := f.rig.Store.Get(f.ctx, id)
		there[id] = err == nil && !j.State.Terminal()
	}
	got, err := f.rt.Sweep(f.ctx, instance)
	f.fail(t, err)
	f.fail(t, got.Err)
	for _, s := range got.Again {
		if there[s.Child] {
			t.Fatalf("child %s was dispatched again while it merely waits", s.Child)
		}
	}
}

// check looks at every parent.
func (f *families) check(t *rapid.T) {
	for id, p := range f.parents {
		j, err := f.rig.Store.Get(f.ctx, id)
		if err != nil {
			continue // it was deleted
		}
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
		ready := len(p.waits) == 0
		left := 0
		for name, s := range now {
			if s.State != store.StepDispatched {
				p.ended[name] = s
				delete(p.open, name)
				ready = ready || s.State == store.StepFailed && slices.Contains(p.waits, name)
			} else if slices.Contains(p.waits, name) {
				left++
			}
		}
		if j.State == store.Parked && (ready || left == 0) {
			t.Fatalf("parent %s is parked, though what it waits for is there: %v of %+v", id, p.waits, now)
		}
		if j.State == store.Todo && p.waits != nil && left > 0 && !ready {
			t.Fatalf("parent %s is todo, though it waits for %d of %v", id, left, p.waits)
		}
	}
}

// settle lets the sweepers and honest workers bring everything to its end.
func (f *families) settle(t *rapid.T) {
	f.unsent, f.untold = nil, nil // whoever had these in mind is dead
	left := "something"
	for round := 0; round < 100 && left != ""; round++ {
		time.Sleep(11 * time.Minute)
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
