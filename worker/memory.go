package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// memory is what an attempt knows of the steps of its job.
type memory struct {
	loading sync.Mutex // held while the steps are loaded

	mu     sync.Mutex
	known  map[string]recollection
	whole  bool      // known are all there were when the attempt began
	clock  time.Time // Redis' when it was
	since  time.Time // this moment here
	family bool      // there are, or may be, children that are open
	gen    int       // how often the job has been requeued

	committing sync.Mutex // held while steps are being committed: a request has a job once
	commit     commit     // what is being committed
}

// recollection is what is known of a name.
type recollection struct {
	kept *store.Step // nil: nothing is
	used bool        // this attempt has come to it
}

// remember returns the memory of the attempt, which is made when the handler comes to its first step.
func (a *attempt) remember() *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.memory == nil {
		steps := &a.lease.Steps
		a.memory = &memory{known: make(map[string]recollection, len(steps.Known)), whole: steps.Complete,
			gen: steps.Generation, clock: steps.Now, since: a.received, family: !steps.Complete}
		a.memory.commit.done = make(chan struct{}, 1)
		a.memory.learn(steps.Known)
	}
	return a.memory
}

func (m *memory) learn(steps []store.Step) {
	for i := range steps {
		s := &steps[i]
		m.known[s.Name] = recollection{s, m.known[s.Name].used}
		m.family = m.family || s.State == store.StepDispatched
	}
}

// use notes that the attempt has come to a step; false if it has been there.
func (m *memory) use(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[name]
	if r.used {
		return false
	}
	r.used = true
	m.known[name] = r
	return true
}

// find returns what is kept of a step, if anything is.
func (m *memory) find(at *attempt, name string) (store.Step, bool, error) {
	m.loading.Lock()
	defer m.loading.Unlock()
	m.mu.Lock()
	whole := m.whole
	m.mu.Unlock()
	if !whole {
		if err := m.load(at); err != nil {
			return store.Step{}, false, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.known[name].kept; s != nil {
		return *s, true, nil
	}
	return store.Step{}, false, nil
}

// load brings the steps that were too many to come with the claim.
func (m *memory) load(at *attempt) error {
	var all store.Steps
	err := at.persist(func(ctx context.Context) error {
		return guard(func() (err error) {
			all, err = at.feed.run.rt.Load(ctx, at.lease)
			return err
		})
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.family = false // as far as it has been learnt from here on: all are there
	m.learn(all.Known)
	m.whole, m.gen, m.clock, m.since = true, all.Generation, all.Now, time.Now()
	return nil
}

// now is Redis' clock, or a little before it: never after.
func (m *memory) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Add(time.Since(m.since))
}

// count is how many steps are known to be kept.
func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, r := range m.known {
		if r.kept != nil {
			n++
		}
	}
	return n
}

// generation is that of the children to be dispatched.
func (m *memory) generation() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gen
}

// mayHaveChildren reports whether the job may leave children behind that have not ended.
func (a *attempt) mayHaveChildren() bool {
	a.mu.Lock()
	m := a.memory
	a.mu.Unlock()
	if m == nil {
		return !a.lease.Steps.Complete || slices.ContainsFunc(a.lease.Steps.Known, func(s store.Step) bool { return s.State == store.StepDispatched })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.family
}
