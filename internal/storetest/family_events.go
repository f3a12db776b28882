package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// The instances of parents and of children.
const parentsIn, childrenIn = "order", "parcel"

// FamilyKeys returns a key of the parents' instance under a prefix, and one of the children's: so that they can be put in different slots.
func FamilyKeys(prefix string) (parents, children string) {
	return prefix + ":{" + parentsIn + "}:jobs", prefix + ":{" + childrenIn + "}:jobs"
}

// The steps that a parent may have: those with a child, and those without.

var asyncNames, localNames = []string{"a", "b", "c"}, []string{"x", "y"}

// familyEvent is a command in the life of families. may reports whether there is anything to do it to.
type familyEvent struct {
	may func() bool
	do  func(*rapid.T)
}

func (f *families) events() map[string]familyEvent {
	always := func() bool { return true }
	jobs := func() bool { return len(f.ids) > 0 }
	held := func() bool { return len(f.held) > 0 }
	kids := func() bool { return len(f.kids) > 0 }
	both := func(do func(*rapid.T, string)) func(*rapid.T) {
		return func(t *rapid.T) {
			for _, instance := range rapid.SampledFrom([][]string{{parentsIn}, {childrenIn}, {parentsIn, childrenIn}, {childrenIn, parentsIn}}).Draw(t, "of") {
				do(t, instance)
			}
		}
	}
	after := func(d time.Duration, do func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			f.later(t, d)
			do(t)
		}
	}
	return map[string]familyEvent{
		"enqueue parent": {func() bool { return len(f.ids) < 6 }, f.enqueueParent},
		"enqueue again":  {jobs, f.enqueueAgain},
		"claim parent":   {jobs, func(t *rapid.T) { f.held = append(f.held, f.claim(t, parentsIn)...) }},
		"claim child":    {jobs, func(t *rapid.T) { f.kids = append(f.kids, f.claim(t, childrenIn)...) }},
		"live":           {always, f.live},
		"commit":         {held, f.commit},
		"dispatch":       {held, f.dispatchOne},
		"enqueue child":  {func() bool { return len(f.unsent) > 0 }, f.enqueueChild},
		"park":           {held, f.park},
		"sleep":          {held, f.nap},
		"end parent":     {held, f.endParent},
		"end child":      {kids, f.endChild},
		"tell":           {func() bool { return len(f.untold) > 0 }, f.tell},
		"cancel":         {jobs, func(t *rapid.T) { f.admin(t, f.rig.Store.Cancel) }},
		"delete":         {jobs, func(t *rapid.T) { f.admin(t, f.rig.Store.Delete) }},
		"purge":          {jobs, f.purge},
		"requeue":        {jobs, f.requeue},
		"reap":           {jobs, both(f.reap)},
		"reap late":      {jobs, after(21*time.Second, both(f.reap))},
		"trim":           {jobs, both(f.trim)},
		"sweep":          {jobs, both(f.sweep)},
		"sweep late":     {jobs, after(11*time.Second, both(f.sweep))},
		"time passes": {always, func(t *rapid.T) {
			f.later(t, rapid.SampledFrom([]time.Duration{time.Second, 11 * time.Second, 21 * time.Second, 11 * time.Minute}).Draw(t, "for"))
		}},
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

func (f *families) terms(instance string) store.Terms {
	kept := store.Retention{Age: 240 * time.Hour, Count: 1000}
	return store.Terms{Instance: instance, Process: f.process, Lease: 20 * time.Second, Done: kept, Dead: kept, MaxCrashes: 3}
}

func (f *families) enqueueParent(t *rapid.T) {
	id := uuid.New()
	_, err := f.rt.Enqueue(f.ctx, new(store.Lane), parentsIn, []store.NewJob{{ID: id, Payload: []byte(`{}`)}})
	f.fail(t, err)
	f.ids = append(f.ids, id)
	f.parents[id] = &parentModel{ended: map[string]store.Step{}, open: map[string]uuid.UUID{}}
}

// enqueueAgain enqueues another job under the id of a parent that was removed.
func (f *families) enqueueAgain(t *rapid.T) {
	id, _ := draw(t, f.ids)
	if _, err := f.rig.Store.Get(f.ctx, id); !errors.Is(err, store.ErrNotFound) {
		return
	}
	time.Sleep(2 * time.Millisecond) // by the server's clock one is told from the other
	_, err := f.rt.Enqueue(f.ctx, new(store.Lane), parentsIn, []store.NewJob{{ID: id, Payload: []byte(`{}`)}})
	f.fail(t, err)
	t.Logf("%s is enqueued again", name4(id))
	f.parents[id] = &parentModel{ended: map[string]store.Step{}, open: map[string]uuid.UUID{}}
}

// claim takes one job, if there is one.
func (f *families) claim(t *rapid.T, instance string) []*store.Lease {
	got, err := f.rt.Exchange(f.ctx, new(store.Lane), f.terms(instance), store.Exchange{Claims: []uuid.UUID{uuid.New()}})
	f.fail(t, err)
	for _, l := range got.Leases {
		t.Logf("claimed %s of %s, steps %+v", name4(l.Job.ID), instance, l.Steps)
		f.latest[l.Job.ID] = l
		if p := f.parents[l.Job.ID]; p != nil {
			p.unpark()
		}
	}
	return got.Leases
}

func (f *families) finish(t *rapid.T, l *store.Lease, fin store.Finish) store.State {
	fin.Lease = l
	got, err := f.rt.Exchange(f.ctx, new(store.Lane), f.terms(l.Job.Instance), store.Exchange{Finishes: []store.Finish{fin}})
	f.fail(t, err)
	t.Logf("%s ends with %c: %q", name4(l.Job.ID), fin.Verb, got.Ended[0])
	return got.Ended[0]
}

// name4 is enough of an id to tell it from others in a log.
func name4(id uuid.UUID) string { return id.String()[:4] }

func draw[T any](t *rapid.T, from []T) (T, int) {
	i := rapid.IntRange(0, len(from)-1).Draw(t, "which")
	return from[i], i
}

// take draws one and takes it out.
func take[T any](t *rapid.T, from *[]T) T {
	one, i := draw(t, *from)
	*from = slices.Delete(*from, i, i+1)
	return one
}

// commit keeps the result of a step, or its failure for good.
func (f *families) commit(t *rapid.T) {
	l, _ := draw(t, f.held)
	w := local(rapid.SampledFrom(localNames).Draw(t, "step"), fmt.Sprintf("%q", uuid.New()))
	if rapid.IntRange(0, 3).Draw(t, "fails") == 3 {
		w.Value, w.Error = nil, "for good"
	}
	f.write(t, l, w)
}

// write returns what stands there then; false if the lease is lost.
func (f *families) write(t *rapid.T, l *store.Lease, w store.StepWrite) (store.Step, bool) {
	got, err := f.rt.Commit(f.ctx, l, limits, w)
	if errors.Is(err, store.ErrLeaseLost) {
		return store.Step{}, false
	}
	f.fail(t, err)
	t.Logf("step of %s: %s %s %s, child %s", name4(l.Job.ID), w.Name, w.Kind, got.Known[0].State, name4(got.Known[0].Child))
	return got.Known[0], true
}

func (f *families) dispatchOne(t *rapid.T) {
	l, _ := draw(t, f.held)
	w := child(l, rapid.SampledFrom(asyncNames).Draw(t, "step"))
	w.Instance = childrenIn
	switch rapid.IntRange(0, 9).Draw(t, "special") {
	case 8:
		w.Child.Delay = 30 * time.Second
	case 9:
		w.Child.Deadline = f.now(t).Add(15*time.Second - f.passed)
	}
	if s, ok := f.write(t, l, w); ok && s.State == store.StepDispatched && s.Child == w.Child.ID && !f.born[s.Child] {
		f.born[s.Child] = true
		f.children = append(f.children, s.Child)
		f.unsent = append(f.unsent, w.Child)
		f.parents[l.Job.ID].open[w.Name] = s.Child
	}
}

func (f *families) enqueueChild(t *rapid.T) {
	n, i := draw(t, f.unsent)
	errs, err := f.rt.Enqueue(f.ctx, new(store.Lane), childrenIn, []store.NewJob{n})
	f.fail(t, err)
	t.Logf("child %s: %v", name4(n.ID), errs[0])
	if rapid.Bool().Draw(t, "only once") {
		f.unsent = slices.Delete(f.unsent, i, i+1)
	}
}

func (f *families) park(t *rapid.T) {
	l := take(t, &f.held)
	p := f.parents[l.Job.ID]
	w := store.Wait{Steps: slices.Sorted(maps.Keys(p.open)), Any: rapid.Bool().Draw(t, "any")}
	if f.finish(t, l, store.Finish{Verb: store.Park, Wait: w}) == store.Parked {
		p.waits, p.any = w.Steps, w.Any
	}
}

// nap parks a parent until a time.
func (f *families) nap(t *rapid.T) {
	l := take(t, &f.held)
	p := f.parents[l.Job.ID]
	if _, ok := f.write(t, l, store.StepWrite{Name: "nap", Kind: store.SleepStep, Sleep: 15 * time.Second}); !ok {
		return
	}
	until := f.now(t).Add(15 * time.Second).Truncate(time.Millisecond)
	if f.finish(t, l, store.Finish{Verb: store.Park, Wait: store.Wait{Until: until.Add(-f.passed), Steps: []string{"nap"}}}) == store.Parked {
		p.until = until
	}
}

func (f *families) endParent(t *rapid.T) {
	l := take(t, &f.held)
	f.finish(t, l, store.Finish{Verb: rapid.SampledFrom([]store.Verb{store.Complete, store.Bury, store.Release}).Draw(t, "verb")})
}

// endChild runs a child as a worker does: it is vetted first.
func (f *families) endChild(t *rapid.T) {
	f.run(t, take(t, &f.kids), rapid.SampledFrom([]store.Verb{store.Complete, store.Bury, store.Release}).Draw(t, "verb"))
}

func (f *families) run(t *rapid.T, l *store.Lease, verb store.Verb) {
	wanted, err := f.rt.Wanted(f.ctx, &l.Job)
	f.fail(t, err)
	p := f.parents[l.Job.Parent.ID]
	if s, ok := p.ended[l.Job.Parent.Step]; ok && s.Child == l.Job.ID && wanted {
		t.Fatalf("the body of child %s would run although its outcome is stored: %+v", l.Job.ID, s)
	}
	if f.done[l.Job.ID] && wanted && f.latest[l.Job.ID] == l { // who lost the lease will be told so by its next heartbeat
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
	t.Logf("outcome of %s: %c", name4(o.Child), o.Fate)
	f.fail(t, f.rt.Relay(f.ctx, []store.Outcome{o}))
}
