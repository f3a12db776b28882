package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// Defaults of a Config.
const (
	DefaultLease        = 20 * time.Second
	DefaultDrainTimeout = 20 * time.Second
	DefaultGraceTimeout = 5 * time.Second
)

// minLease is the shortest lease: there must be room for its heartbeats.
const minLease = time.Second

// Config of a Supervisor. Its zero value is ready for use.
type Config struct {
	// Node names this process to whoever lists them; by default the name of the host.
	Node string
	// Lease is for how long a job is claimed before a heartbeat, every quarter of it, has to extend that: at least 1 s, by default
	// 20 s. The jobs of a process that died run again within a lease and a quarter; where no process has looked after an
	// instance for a while, or Redis was away, a lease later, so that those who hold its jobs can say so first. Processes of
	// different leases may serve an instance, while a deployment is under way.
	Lease time.Duration
	// DrainTimeout is for how long handlers go on undisturbed when Run's context has ended, by default 20 s. GraceTimeout is for
	// how long they may take to return after their own context has ended then, by default 5 s.
	DrainTimeout, GraceTimeout time.Duration
	// Logger gets the lines of the supervisor and of Logger(ctx); by default slog.Default(). A line with which its handler panics is lost.
	Logger *slog.Logger
	// OnEvent, when set, hears of everything: see Event.
	OnEvent func(Event)
	// Middleware wraps every handler, the first outermost.
	Middleware []Middleware
	// Hooks see each child that a handler dispatches by Async or AsyncEach, one after the other, before it is encoded; nil ones are left
	// out. As a rule they are those of the process' Client. The jobs of ticks they do not see: see Schedule.
	Hooks []EnqueueHook
	// OnTick, when set, sees each tick of cron that this process is about to dispatch.
	OnTick TickHook
	// Pools are those that instances share: see In. A handler without In has a pool of its own.
	Pools []Pool
	// Now arms timers and nothing else: no lease and no job's time is decided by it. For tests; by default time.Now.
	Now func() time.Time
}

func (c *Config) validate() error {
	var errs []error
	if c.Lease < minLease && c.Lease != 0 {
		errs = append(errs, invalid("the lease %v is shorter than %v", c.Lease, minLease))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, invalid("the drain timeout %v is negative", c.DrainTimeout))
	}
	if c.GraceTimeout < 0 {
		errs = append(errs, invalid("the grace timeout %v is negative", c.GraceTimeout))
	}
	for i, mw := range c.Middleware {
		if mw == nil {
			errs = append(errs, invalid("middleware %d is nil", i+1))
		}
	}
	errs = append(errs, validatePools(c.Pools))
	return errors.Join(errs...)
}

// Supervisor runs the jobs of the instances that handlers are registered for, and keeps those instances in order: it ends the
// leases that ran out, whoever held them, and removes what retention no longer keeps. It dispatches the ticks of the entries that are
// scheduled. It is for one Run.
type Supervisor struct {
	st  *store.Store
	cfg Config

	mu         sync.Mutex
	registered []*registration
	taken      map[string]bool               // instances
	scheduled  map[string]bool               // keys of entries
	entries    map[string][]store.Definition // by instance
	problems   []error
	ran        bool
	process    *process // while Run lasts
	phase      Phase
}

// New returns a Supervisor without handlers. It does no I/O.
func New(st *store.Store, cfg Config) (*Supervisor, error) {
	if st == nil {
		return nil, invalid("the store is nil")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Node == "" {
		cfg.Node, _ = os.Hostname() // unknown is as good a name as any
	}
	cfg.Lease = cmp.Or(cfg.Lease, DefaultLease)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, DefaultDrainTimeout)
	cfg.GraceTimeout = cmp.Or(cfg.GraceTimeout, DefaultGraceTimeout)
	cfg.Logger = harmless(cmp.Or(cfg.Logger, slog.Default()))
	cfg.Hooks = ownHooks(cfg.Hooks)
	cfg.Pools = slices.Clone(cfg.Pools)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Supervisor{
		st: st, cfg: cfg, phase: Idle,
		taken: map[string]bool{}, scheduled: map[string]bool{}, entries: map[string][]store.Definition{},
	}, nil
}

// Run claims jobs and runs them until ctx ends. It returns nil then, once everything has come to its end, and never the
// context's error.
//
// It returns at once, with nothing started, when a registration was wrong (all of them, joined), without a handler or an entry
// (ErrNoHandler), and when it was called before (ErrRan). A Redis that can't be reached is no reason to return, neither at
// first nor later: Run says so, once, by a line in the log and an event, and goes on trying.
//
// When ctx ends:
//
//  1. No more jobs are claimed, nothing is reaped, and the process is no longer listed. A claim in flight is awaited; the jobs that
//     it brings are given back.
//  2. Handlers go on, and so do their heartbeats.
//  3. After DrainTimeout the handlers' contexts end, with the cause ErrShutdown.
//  4. A handler that returns an error then gives its job back at once, the attempt not charged. nil still completes.
//  5. A handler, or its retry policy, that has not returned after GraceTimeout, too, is left alone: Run returns a *StuckError that names it, nothing
//     that it does is written any more, and its job runs again when the lease has run out.
//  6. Everything else has ended when Run returns, the heartbeats last, and all events have been delivered.
//
// So Run returns within DrainTimeout and GraceTimeout, whatever handlers and Redis do; a call that Redis does not answer can add
// the time after which the Redis client gives a call up, a listener to events that does not return another GraceTimeout. What
// could not be handed in by then is a *UnsettledError. A process without a running job stops at once.
func (s *Supervisor) Run(ctx context.Context) error {
	registered, err := s.begin()
	if err != nil {
		return err
	}
	p := newProcess(ctx, s, registered)
	p.start()
	s.enter(Running, p)
	<-ctx.Done()
	s.enter(Draining, p)
	err = p.stop()
	s.enter(Stopped, nil)
	return err
}

// begin makes sure that this is the first Run and that it can go well.
func (s *Supervisor) begin() ([]*registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		return nil, ErrRan
	}
	s.ran = true
	problems := errors.Join(s.problems...)
	if problems == nil && len(s.registered) == 0 && len(s.entries) == 0 {
		problems = ErrNoHandler
	}
	if problems != nil {
		s.phase = Stopped // there will be no other Run
	}
	return s.registered, problems
}
