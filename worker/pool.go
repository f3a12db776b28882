package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/ids"
	"github.com/stint-go/stint/store"
)

// pool is the workers of an instance, or of several. Each is a slot with a goroutine of its own, which runs the attempts that it
// is given and hands in their ends, as turns, to the feed of the instance that the job came from. A slot that got no
// job with that is idle until a look: a turn without an end, to whatever feed is picked.
type pool struct {
	run      *process
	name     string // empty unless instances share it
	slots    []*slot
	byWorker map[uuid.UUID]*slot
	feeds    []*feed // in the order of registration

	mu       sync.Mutex
	picker   picker
	idle     []*slot
	asking   int // requests with claims that are unanswered
	given    int // slots that were given up when the time to stop was over
	stopping chan struct{}
	stopped  time.Time     // when that was closed; zero before
	quiet    chan struct{} // closed when we stop and no claim is in flight
	drained  chan struct{} // closed when, moreover, no slot holds anything
}

// slot is one worker.
type slot struct {
	pool     *pool
	worker   uuid.UUID
	attempts chan *attempt // one at most
	keeper   *keeper
	current  *attempt // the keeper's goroutine only

	at    *attempt // what it holds, until the store has its end; under pool.mu
	next  *feed    // which it is to ask when it is free, if another than it has just worked for; under pool.mu
	asks  int      // requests in which it asked for a job; under pool.mu
	stuck bool     // its handler was abandoned; under pool.mu, or when all has stopped
}

func newPool(run *process, name string, concurrency int, strict bool) *pool {
	p := &pool{
		run:      run,
		name:     name,
		byWorker: make(map[uuid.UUID]*slot, concurrency),
		picker:   picker{strict: strict},
		stopping: make(chan struct{}),
		quiet:    make(chan struct{}),
		drained:  make(chan struct{}),
	}
	for range concurrency {
		s := &slot{pool: p, worker: ids.New(), attempts: make(chan *attempt, 1)}
		p.slots = append(p.slots, s)
		p.byWorker[s.worker] = s
		p.idle = append(p.idle, s)
	}
	return p
}

// serve adds an instance.
func (p *pool) serve(reg *registration) *feed {
	f := newFeed(p, reg)
	p.feeds = append(p.feeds, f)
	p.picker.add(reg.weight)
	return f
}

// start starts the slots' goroutines and looks for jobs.
func (p *pool) start() {
	for _, f := range p.feeds {
		f.ask = p.least()
		f.beats = f.beat()
		f.sweeper = f.sweep() // before what tells it
		f.reaper = f.reap()
	}
	for _, s := range p.slots {
		s.keeper = keep(s.step, s.goexit)
	}
	p.wake()
}

// step runs one attempt.
func (s *slot) step() bool {
	at, ok := <-s.attempts
	if !ok {
		return false
	}
	s.current = at
	if !at.begin(s.keeper.id, at.feed.reg.timeout) {
		return false
	}
	return s.finish(at, s.execute(at))
}

func (s *slot) execute(at *attempt) (err error) {
	defer recovered(&err)
	if err := at.vet(); err != nil {
		return err
	}
	return at.feed.reg.handler(at, at.lease.Job)
}

// goexit ends an attempt whose handler has ended the goroutine.
func (s *slot) goexit() bool { return s.finish(s.current, ErrGoexit) }

// finish hands the end of an attempt in. It returns false when Run has given the slot up.
func (s *slot) finish(at *attempt, err error) bool {
	cause, ok := at.end()
	if !ok {
		return false
	}
	v, err := judged(at, err, cause)
	if at.wait != nil { // whatever the handler made of it
		v = verdict{verb: store.Park, err: err}
		at.finish.Wait = *at.wait
	}
	at.finish.Verb, at.finish.Delay, at.finish.Error = v.verb, v.delay, v.text
	at.outcome, at.err = outcomeOf(v.verb), v.err
	logPanic(at, err)
	if v.verb == store.Complete {
		at.succeeded(at.feed.reg.observer, at.lease.Job.Attempt)
	}
	if !at.settled() {
		return false
	}
	at.feed.turns.Add(turn{s, at})
	at.feed.relieve() // an end must not wait behind looks for jobs
	return true
}

// refuse returns the attempt of a lease that no handler is called for: it is to be handed in at once.
func (f *feed) refuse(s *slot, l *store.Lease, verb store.Verb, reason error) *attempt {
	at := &attempt{slot: s, feed: f, lease: l, phase: ended, outcome: outcomeOf(verb), err: reason}
	at.finish = store.Finish{Lease: l, Verb: verb}
	if reason != nil {
		at.finish.Error = reason.Error()
	}
	return at
}

// logPanic tells of a panic, with its stack: that is a mistake in the program whatever becomes of the job.
func logPanic(at *attempt, err error) {
	if p, ok := errors.AsType[*PanicError](err); ok {
		at.log().Error("a handler panicked", "panic", p.Value, "stack", string(p.Stack))
	}
}
