package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The sets in which jobs are found by their states were changed behind our back. People report of systems like this: a job without
// its lease entry is never recovered; a recoverer loops for ever on a dangling entry.
func indexCases() []Case {
	return named(anyIndexEntryLostLeavesAJobThatEndsOrIsReported, anyIndexEntryLostLeavesAFamilyThatEndsOrIsReported, aDanglingLeaseIsGoneInOnePass)
}

// Each entry of each key, in each phase of a job's life: then the job is finished and claimed and reaped as usual, and has
// either ended, or maintenance says that something is wrong.
func anyIndexEntryLostLeavesAJobThatEndsOrIsReported(t *testing.T, e *Env) {
	phases := map[string]func() *store.Lease{
		"todo":      func() *store.Lease { e.one(t); return nil },
		"scheduled": func() *store.Lease { e.Enqueue(t, store.NewJob{Delay: time.Second}); return nil },
		"doing":     func() *store.Lease { return e.hold(t) },
		"cancelled while doing": func() *store.Lease {
			l := e.hold(t)
			e.cancel(t, l.Job.ID)
			return l
		},
		"todo again": func() *store.Lease {
			l := e.hold(t)
			e.Finish(t, store.Finish{Verb: store.Release, Error: "e", Progress: []byte(`1`)}, l)
			return nil
		},
		"asleep": func() *store.Lease { e.sleepFor(t, e.hold(t), "nap", time.Second); return nil },
	}
	for phase, begin := range phases {
		for _, finishes := range []bool{true, false} {
			var l *store.Lease
			e.loseEach(t, func() { l = begin() }, func(key string) {
				if l == nil && finishes {
					return // nobody to finish it
				}
				if finishes {
					e.Finish(t, store.Finish{Verb: store.Complete}, l)
				}
				ended, reported := e.tended(t)
				if !ended && !reported {
					t.Errorf("%s, finishes %v: without its entry in %s the job neither ended nor was it reported: %+v", phase, finishes, key, e.Stats(t))
				}
				if holders, err := e.Store.Workers(t.Context(), instance); err != nil || ended && len(holders) != 0 {
					t.Errorf("%s, finishes %v: without its entry in %s the job has ended, and %d workers hold it", phase, finishes, key, len(holders))
				}
			})
		}
	}
}

// tended reaps, sweeps and runs what there is for some lease lengths, and says whether all has ended and whether a reap reported that
// something is wrong.
func (e *Env) tended(t *testing.T) (ended, reported bool) {
	t.Helper()
	for range 5 {
		reported = e.Reap(t).Missing != 0 || reported
		e.sweep(t, instance)
		e.Finish(t, store.Finish{Verb: store.Complete}, e.Claim(t, 1)...)
		if s := e.Stats(t); s.Total > 0 && s.Total == s.Done+s.Dead+s.Cancelled {
			return true, reported
		}
		e.Later(t, lease+time.Second)
	}
	return false, reported
}

// The same of parents, of children, and of what keeps them together, in both of their instances.
func anyIndexEntryLostLeavesAFamilyThatEndsOrIsReported(t *testing.T, e *Env) {
	e.Tampered = true
	dispatched := func() {
		l := e.hold(t)
		e.spawn(t, l, nil, "a")
		e.parkFor(t, l, "a")
	}
	phases := map[string]func(){
		"dispatched": dispatched,
		"never enqueued": func() {
			l := e.hold(t)
			e.forsake(t, l, nil, "a")
			e.parkFor(t, l, "a")
		},
		"ended untold": func() {
			dispatched()
			e.endChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete, Result: []byte(`1`)})
		},
		"held": func() {
			dispatched()
			e.claimChildren(t, 1)
		},
		"not waited for yet": func() {
			e.spawn(t, e.hold(t), nil, "a")
		},
	}
	for phase, begin := range phases {
		e.loseEach(t, begin, func(key string) {
			if phase == "never enqueued" && strings.HasSuffix(key, ":chores") {
				return // a crash, and then the loss of the one entry that makes up for it: two faults
			}
			if ended, reported := e.familyTended(t); !ended && !reported {
				t.Errorf("%s: without its entry in %s a family neither ended nor was it reported: %+v", phase, key, e.Stats(t))
			}
		})
	}
}

// familyTended is the same of parents, whose one step is a child, and of these.
func (e *Env) familyTended(t *testing.T) (ended, reported bool) {
	t.Helper()
	for range 8 {
		children := e.reap(t, e.childTerms())
		reported = e.Reap(t).Missing != 0 || children.Missing != 0 || reported
		e.sweep(t, childInstance)
		e.sweep(t, instance)
		for _, l := range e.Claim(t, 1) {
			e.work(t, l)
		}
		for _, k := range e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(1)}).Leases {
			e.workChild(t, k)
		}
		all, err := e.Store.Stats(t.Context())
		must(t, err)
		ended = e.Stats(t).Total > 0
		for _, s := range all {
			ended = ended && s.Total == s.Done+s.Dead+s.Cancelled
		}
		if ended {
			return true, reported
		}
		e.Later(t, 11*time.Minute)
	}
	return false, reported
}

// work does what a worker does with a parent: its child's record is written, or stands; it waits for that, or is done.
func (e *Env) work(t *testing.T, l *store.Lease) {
	t.Helper()
	w := child(l, "a")
	if e.commit(t, l, w)[0].State != store.StepDispatched {
		e.Finish(t, store.Finish{Verb: store.Complete}, l)
		return
	}
	must(t, errOf(e.Runtime.Enqueue(t.Context(), new(store.Lane), childInstance, []store.NewJob{w.Child})))
	e.parkFor(t, l, "a")
}

// workChild does what a worker does with a child.
func (e *Env) workChild(t *testing.T, k *store.Lease) {
	t.Helper()
	verb := store.Complete
	if k.Job.Parent.ID != uuid.Nil {
		wanted, err := e.Runtime.Wanted(t.Context(), &k.Job)
		if must(t, err); !wanted {
			verb = store.Cancel
		}
	}
	e.endChild(t, k, store.Finish{Verb: verb, Result: []byte(`1`)})
	if j := e.Job(t, k.Job.ID); k.Job.Parent.ID != uuid.Nil {
		must(t, e.Runtime.Relay(t.Context(), []store.Outcome{store.OutcomeOf(&k.Job, j.State, j.Result, j.LastError)}))
	}
}

// loseEach goes through the keys of all instances that are there once begin was called. Each time it begins anew, loses what that key holds, and calls f.
func (e *Env) loseEach(t *testing.T, begin func(), f func(key string)) {
	t.Helper()
	begin()
	keys := e.instanceKeys(t)
	e.wipe(t)
	for _, key := range keys {
		begin()
		name := key.(string)
		for _, other := range e.instanceKeys(t) { // the steps' keys have another name each time
			if head, _, ok := strings.Cut(name, "step_result:"); ok && strings.HasPrefix(other.(string), head+"step_result:") {
				name = other.(string)
			}
		}
		e.put(t, "DEL", name)
		f(strings.TrimPrefix(name, e.Prefix))
		e.wipe(t)
	}
}

// instanceKeys are the keys of all instances, but for lanes.
func (e *Env) instanceKeys(t *testing.T) (keys []any) {
	t.Helper()
	for _, key := range e.keys(t) {
		if strings.Contains(key, "}:") && !strings.Contains(key, "}:lane:") {
			keys = append(keys, key)
		}
	}
	return keys
}

// wipe removes what all instances have.
func (e *Env) wipe(t *testing.T) {
	t.Helper()
	for _, key := range e.instanceKeys(t) { // one by one: they may be at different nodes
		e.put(t, "DEL", key)
	}
}

func aDanglingLeaseIsGoneInOnePass(t *testing.T, e *Env) {
	l := e.hold(t)
	ghost := uuid.New()
	e.put(t, "ZADD", e.Key(instance, "doing"), 1, ghost[:]) // of a worker that holds nothing
	if m := e.Reap(t); len(m.Reaped) != 0 || m.Missing != 0 || m.Next == 0 {
		t.Errorf("with a ghost: %+v", m)
	}
	if s := e.Stats(t); s.Doing != 1 {
		t.Errorf("%d are doing, want 1", s.Doing)
	}
	e.Want(t, store.Doing, l.Job.ID)
	e.Check(t)
}
