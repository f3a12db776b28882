package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/internal/loop"
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

// write commits steps and remembers what stands there now.
func (a *attempt) write(writes ...store.StepWrite) ([]store.Step, error) {
	m := a.remember()
	out, err := m.send(a, writes)
	job := &a.lease.Job
	if errors.Is(err, ErrLeaseLost) {
		a.feed.run.lose(a)
		for _, w := range writes {
			a.feed.run.events.emit(StepDropped{Instance: job.Instance, Job: job.ID, Worker: job.Worker, Step: w.Name})
		}
	}
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(out.Known)
	m.clock, m.since = out.Now, time.Now()
	return out.Known, nil
}

// send has the attempt's next commit sent, and waits for its answer.
func (m *memory) send(a *attempt, writes []store.StepWrite) (store.Steps, error) {
	m.committing.Lock()
	defer m.committing.Unlock()
	c := &m.commit
	c.Lease, c.Writes = a.lease, append(c.Writes[:0], writes...)
	err := a.persist(func(context.Context) error {
		a.feed.commits.Add(c)
		<-c.done
		return c.err
	})
	out := c.out
	c.out = store.Steps{}
	clear(c.Writes)
	if len(writes) > 1 {
		c.Writes = nil // they may be many
	}
	return out, err
}

// commit is a Commit on its way.
type commit struct {
	store.Commit
	out  store.Steps
	err  error
	done chan struct{} // is told when out and err are there
}

const (
	commitLanes  = 2       // requests with steps of an instance in flight
	recordWeight = 1 << 10 // of a step that is written or waited for: what takes Redis' time is not its bytes
)

// weight is about how many bytes the commit adds to a request.
func (c *commit) weight() int {
	n := 128
	for i := range c.Writes {
		w := &c.Writes[i]
		n += recordWeight + len(w.Name) + len(w.Value) + len(w.Error) + len(w.Child.Payload)
	}
	return n
}

// newCommits makes the group in which steps of an instance's jobs travel: those that are ready together in one request.
func (f *feed) newCommits() *batch.Group[*commit] {
	half := min((len(f.pool.slots)+1)/2, callItems) // one half works while the other one's request is on its way
	return batch.New(commitLanes, max(half, minLook), callWeight, (*commit).weight, func(_ int, some []*commit) {
		all := make([]store.Commit, len(some))
		for i := range some {
			all[i] = some[i].Commit
		}
		var got []store.Committed
		err := guard(func() (err error) {
			got, err = f.run.rt.CommitMany(f.run.io, f.terms.Instance, f.reg.steps, all)
			return err
		})
		for i, c := range some {
			if c.err = err; err == nil {
				c.out, c.err = got[i].Steps, got[i].Err
			}
			c.done <- struct{}{}
		}
	})
}

// commit writes the step.
func (s *step) commit(w store.StepWrite) (store.Step, error) {
	w.Name = s.name
	kept, err := s.at.write(w)
	if limit, ok := errors.AsType[*store.StepLimitError](err); ok {
		return store.Step{}, refuse(s.name, limit)
	}
	if err != nil {
		return store.Step{}, err
	}
	return kept[0], nil
}

// persist makes a request until it is answered, at least once: what it has to say has happened already. So a server that refuses for a while, as in
// a failover, is waited for like one that is away. It gives up when trying again can't help, or the attempt's context ends. Nothing is sent any more when Run has
// returned without the attempt.
func (a *attempt) persist(request func(ctx context.Context) error) error {
	for failures := 1; ; failures++ {
		err := request(a.feed.run.io)
		if err == nil || hopeless(err) || errors.Is(err, ErrLeaseLost) || errors.Is(err, store.ErrNotFound) {
			return err
		}
		if failures == 1 && a.context().Err() == nil {
			a.feed.waits(err)
			defer a.feed.waitsNoMore()
		}
		if !rest(a.context(), loop.Pause(failures, sendPause)) {
			return errors.Join(context.Cause(a.context()), err)
		}
	}
}

// waits tells that an attempt can't have a step kept, or loaded, for the time being: it is one trouble, however many they are.
func (f *feed) waits(err error) {
	f.waiting.Lock()
	defer f.waiting.Unlock()
	f.waiting.n++
	f.run.outages.Failed(f.steps(), err)
}

// waitsNoMore tells that it is kept, or that nobody is there any more who waits for it.
func (f *feed) waitsNoMore() {
	f.waiting.Lock()
	defer f.waiting.Unlock()
	if f.waiting.n--; f.waiting.n == 0 {
		f.run.outages.OK(f.steps())
	}
}

func (f *feed) steps() loop.Name { return loop.Name{Loop: "steps", Instance: f.terms.Instance} }

// hopeless reports whether trying again can't help, however long the attempt lasts: neither time nor another server makes the request right.
func hopeless(err error) bool {
	_, foreign := errors.AsType[*store.KeyError](err)
	_, panicked := errors.AsType[*PanicError](err) // in a hook of the Redis client
	return foreign || panicked || errors.Is(err, ErrGoexit) || errors.Is(err, store.ErrInvalid)
}

// live returns nil while the attempt may come to further steps.
func (a *attempt) live() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.phase != running:
		return ErrNoJob
	case a.wait != nil:
		return ErrParked
	case a.cause == ErrLeaseLost: //nolint:errorlint // only cancel sets it
		return ErrLeaseLost
	}
	return nil
}

// park ends the attempt: its job is to wait. The first wait counts. It returns ErrParked, or why the attempt had ended before.
func (a *attempt) park(w store.Wait) error {
	a.mu.Lock()
	if cause := a.causeLocked(); a.phase != running || cause != nil && !errors.Is(cause, ErrShutdown) && a.wait == nil {
		a.mu.Unlock()
		return errors.Join(cause, ErrNoJob)
	}
	if a.wait == nil {
		a.wait = &w
	}
	a.mu.Unlock()
	a.cancel(ErrParked)
	return ErrParked
}
