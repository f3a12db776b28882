package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

const (
	lanes   = 2                // requests of a pool in flight
	minLook = 8                // workers that ask for a job at a wake-up; more when all of them got one
	maxCall = 1 << 20          // bytes, about, of results and the like in one request
	poll    = 5 * time.Second  // between looks when nobody wakes us
	deafTo  = time.Second      // the same while wake-ups may be missed
	hurry   = time.Millisecond // before a look that should come at once, after one in vain
)

// pool is the workers of an instance. Each is a slot with a goroutine of its own, which runs the attempts that it is given and
// hands in their ends as turns. Turns that come together make one request, which brings the slots their next jobs. A slot
// that got none is idle until a look: a turn without an end.
type pool struct {
	run      *process
	reg      *registration
	terms    store.Terms
	slots    []*slot
	byWorker map[uuid.UUID]*slot
	turns    *batch.Group[turn]
	lanes    [lanes]lane
	timer    *time.Timer // for the next look
	beats    *loop.Loop
	reaper   *loop.Loop

	mu       sync.Mutex
	idle     []*slot
	due      bool      // there may be jobs that no request asked for yet
	looks    int       // turns without an end that are on their way to a request
	ask      int       // how many slots take part in the next look
	asking   int       // requests with claims that are unanswered
	armed    time.Time // what the timer is set to; zero: it isn't
	given    int       // slots that were given up when the time to stop was over
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
	asks  int      // requests in which it asked for a job; under pool.mu
	stuck bool     // its handler was abandoned; under pool.mu, or when all has stopped
}

// turn is what a slot has for the store: the end of an attempt, or only the wish for a job.
type turn struct {
	slot *slot
	at   *attempt // nil: it holds nothing
}

func newPool(run *process, reg *registration) *pool {
	p := &pool{
		run: run, reg: reg, terms: reg.terms,
		byWorker: make(map[uuid.UUID]*slot, reg.concurrency),
		ask:      minLook,
		stopping: make(chan struct{}),
		quiet:    make(chan struct{}),
		drained:  make(chan struct{}),
	}
	p.terms.Process = run.about.ID
	for i := range p.lanes {
		p.lanes[i].hope = make(chan struct{}, 1)
	}
	// With at most half of the slots in a request, one half works while the other one's request is on its way.
	half := min((reg.concurrency+1)/2, store.MaxCall)
	p.turns = batch.New(lanes, max(half, minLook), maxCall, turn.weight, p.flush)
	p.timer = time.AfterFunc(time.Hour, p.expire)
	p.timer.Stop()
	for range reg.concurrency {
		s := &slot{pool: p, worker: uuid.New(), attempts: make(chan *attempt, 1)}
		p.slots = append(p.slots, s)
		p.byWorker[s.worker] = s
		p.idle = append(p.idle, s)
	}
	return p
}

// start starts the slots' goroutines and looks for jobs.
func (p *pool) start() {
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
	at.begin(s.keeper.id, s.pool.reg.timeout)
	return s.finish(at, s.execute(at))
}

func (s *slot) execute(at *attempt) (err error) {
	defer recovered(&err)
	job := at.lease.Job
	if ev := s.pool.run.events; ev.wanted() {
		ev.emit(JobStarted{Instance: job.Instance, Job: job.ID, Worker: s.worker, Attempt: job.Attempt})
	}
	return s.pool.reg.handler(at, job)
}

// goexit ends an attempt whose handler has ended the goroutine.
func (s *slot) goexit() bool { return s.finish(s.current, ErrGoexit) }

// finish hands the end of an attempt in. It returns false when Run has given the slot up.
func (s *slot) finish(at *attempt, err error) bool {
	cause, ok := at.end()
	if !ok {
		return false
	}
	v := judge(s.pool.reg, at.lease.Job.Attempt, err, cause)
	at.finish.Verb, at.finish.Delay, at.finish.Error = v.verb, v.delay, v.text
	at.outcome, at.err = outcomeOf(v.verb), v.err
	logPanic(at, err)
	s.pool.turns.Add(turn{s, at})
	return true
}

// weight is about how many bytes the turn adds to a request.
func (t turn) weight() int {
	if t.at == nil {
		return 64
	}
	f := &t.at.finish
	return 256 + len(f.Result) + len(f.Progress) + min(len(f.Error), store.MaxError)
}

// refuse returns the attempt of a lease that no handler is called for: it is to be handed in at once.
func (s *slot) refuse(l *store.Lease, verb store.Verb, reason error) *attempt {
	at := &attempt{slot: s, lease: l, phase: ended, outcome: outcomeOf(verb), err: reason}
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
