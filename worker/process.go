package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// process is a Run: all that lives while it lasts. Goroutines: one a slot; three loops an instance (heartbeat, reaper, sweeper) and up to two
// requests in flight, and as many to an instance of parents or of children; one an instance that entries target; four loops for all
// (subscription, lease watch, list of processes, the listener's).
type process struct {
	sup     *Supervisor
	rt      *store.Runtime
	cfg     Config
	log     *slog.Logger
	now     func() time.Time
	about   store.Process
	started time.Time
	sole    bool          // no other process uses the server
	trusted time.Duration // for how long after the call was sent a lease is known to hold

	base   context.Context // the values of Run's context
	io     context.Context // of requests that claim and finish; ends when the time to stop is over
	stopIO context.CancelFunc

	patient context.Context // of hooks of ticks; ends when all the time that a stop may take is over
	giveUp  context.CancelFunc

	events     *stream
	outages    loop.Outages
	suspects   suspicion
	hearing    atomic.Bool  // the subscription stands
	listed     atomic.Bool  // Redis has answered at least once
	watched    atomic.Int64 // when the lease watch looks next, since started
	pools      []*pool
	feeds      []*feed // of all pools
	byInstance map[string]*feed

	schedulers []*scheduler
	silence    silence
	relays     *relays
	children   *queues // of what handlers dispatch

	announcer, listener, watcher *loop.Loop
}

func newProcess(ctx context.Context, sup *Supervisor, registered []*registration) *process {
	host, _ := os.Hostname()
	cfg, rt := sup.cfg, sup.st.Runtime()
	r := &process{
		sup: sup, rt: rt, cfg: cfg, log: cfg.Logger, now: cfg.Now, started: time.Now(),
		sole:    rt.Sole(),
		trusted: cfg.Lease - cfg.Lease/10, // a tenth for the handler to hear of it
		base:    context.WithoutCancel(ctx),
		about: store.Process{
			ID: newID(), Node: cfg.Node, Host: host, PID: os.Getpid(),
			Since: time.Now().UTC().Truncate(time.Millisecond),
		},
		byInstance: make(map[string]*feed, len(registered)),
	}
	r.io, r.stopIO = context.WithCancel(r.base)
	r.patient, r.giveUp = context.WithCancel(r.base)
	r.relays = newRelays(r.base, rt, &r.silence)
	r.children = newQueues(rt)
	r.outages = loop.Outages{Began: r.failed, Ended: r.recovered, Scope: scope}
	shared := map[string]*pool{}
	for _, reg := range registered {
		p := shared[reg.pool]
		if p == nil {
			p = newPool(r, reg.pool, reg.concurrency, reg.strict)
			r.pools = append(r.pools, p)
			r.about.Pools = append(r.about.Pools, store.Pool{Name: reg.pool, Concurrency: reg.concurrency})
		}
		if reg.pool != "" {
			shared[reg.pool] = p
		}
		f := p.serve(reg)
		r.feeds = append(r.feeds, f)
		r.byInstance[reg.terms.Instance] = f
		r.about.Instances = append(r.about.Instances, reg.terms.Instance)
		listed := &r.about.Pools[slices.Index(r.pools, p)]
		listed.Instances = append(listed.Instances, reg.terms.Instance)
	}
	for instance, all := range sup.entries {
		r.schedulers = append(r.schedulers, newScheduler(r, instance, all))
	}
	return r
}

func (r *process) start() {
	r.events = newStream(r.cfg.OnEvent, r.log)
	r.events.emit(RunStarted{r.sup})
	r.watched.Store(int64(r.trusted))
	r.watcher = r.lapse()
	r.announcer = r.announce()
	for _, p := range r.pools {
		p.start()
	}
	r.listener = r.listen()
	for _, s := range r.schedulers {
		s.start()
	}
}

// failed and recovered tell of the beginning and the end of an outage.
func (r *process) failed(o loop.Outage) {
	r.log.Error("trouble; trying again until it works", "loop", o.Name.Loop, "instance", o.Name.Instance, "err", o.Err)
	r.events.emit(LoopFailed{Loop: o.Name.Loop, Instance: o.Name.Instance, Err: o.Err})
}

func (r *process) recovered(o loop.Outage) {
	after := time.Since(o.Since)
	r.log.Info("the trouble is over", "loop", o.Name.Loop, "instance", o.Name.Instance, "after", after, "failures", o.Failures)
	r.events.emit(LoopRecovered{Loop: o.Name.Loop, Instance: o.Name.Instance, After: after, Failures: o.Failures})
}

// stop comes to an end in the order that Run promises.
func (r *process) stop() error {
	hard, cancel := context.WithTimeout(r.base, r.cfg.patience())
	defer cancel()
	soft, last := time.AfterFunc(r.cfg.DrainTimeout, r.interrupt), time.AfterFunc(r.cfg.patience(), r.giveUp)
	defer soft.Stop()
	defer last.Stop()

	r.stopClaiming(hard)
	for _, p := range r.pools {
		await(hard, p.drained)
	}
	stuck := r.abandon()
	unsettled := r.join()
	return errors.Join(stuck, unsettled, r.events.close(RunStopped{r.sup}, r.cfg.GraceTimeout))
}

// patience is the time that a stop may take. One of its parts may be as good as for ever.
func (c *Config) patience() time.Duration {
	if sum := c.DrainTimeout + c.GraceTimeout; sum > 0 {
		return sum
	}
	return math.MaxInt64
}

// await waits for done, but no longer than for the end of ctx. It reports whether it is done.
func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// stopClaiming ends what brings jobs: line 1 of Run. The process leaves when it can't ask for jobs again, which would put
// it back among those who wait for some, so that others are woken in its place.
func (r *process) stopClaiming(hard context.Context) {
	for _, p := range r.pools {
		p.stopClaiming()
	}
	for _, f := range r.feeds {
		f.reaper.Cancel()
		f.sweeper.Cancel()
	}
	for _, s := range r.schedulers {
		s.loop.Cancel()
	}
	r.announcer.Stop()
	for _, p := range r.pools {
		if !await(hard, p.quiet) {
			return
		}
	}
	if r.outages.Open("") {
		return // without Redis it would only take time; we are forgotten by ourselves
	}
	if err := r.rt.Leave(hard, r.about); err != nil {
		r.log.Warn("could not tell the other processes that this one stops", "err", err)
	}
}

// interrupt ends the contexts of all handlers: line 3 of Run.
func (r *process) interrupt() {
	for _, p := range r.pools {
		for _, at := range p.held() {
			at.cancel(ErrShutdown)
		}
	}
}

// abandon gives up the handlers that have not returned: line 5 of Run.
func (r *process) abandon() error {
	var stuck []StuckHandler
	for _, p := range r.pools {
		stuck = append(stuck, p.abandon()...)
	}
	if len(stuck) == 0 {
		return nil
	}
	stacks := allStacks()
	for i := range stuck {
		stuck[i].Stack = stacks[stuck[i].Stack] // until here it has the goroutine's id
	}
	return &StuckError{stuck}
}

// join ends all the rest: line 6 of Run. It returns an error if something could not be handed in.
func (r *process) join() error {
	r.stopIO()
	for _, p := range r.pools {
		p.join()
	}
	for _, f := range r.feeds {
		f.reaper.Wait()
		f.sweeper.Wait()
	}
	r.relays.wait()
	r.children.wait()
	for _, f := range r.feeds {
		f.commits.Wait()
	}
	for _, s := range r.schedulers {
		s.loop.Wait()
	}
	r.listener.Stop()
	r.watcher.Stop()
	var left []uuid.UUID
	for _, f := range r.feeds {
		f.beats.Stop()
	}
	for _, p := range r.pools {
		left = append(left, p.unsettled()...)
	}
	if len(left) == 0 {
		return nil
	}
	return &UnsettledError{left}
}

// stopClaiming makes the requests to come ask for nothing and lets go of the timers.
func (p *pool) stopClaiming() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = time.Now()
	for _, f := range p.feeds {
		f.timer.Stop()
	}
	close(p.stopping)
	p.checkStopLocked()
}

// checkStopLocked tells who waits for it that no claim is in flight, and that no slot holds anything.
func (p *pool) checkStopLocked() {
	if p.stopped.IsZero() {
		return
	}
	if p.asking == 0 && !isClosed(p.quiet) {
		close(p.quiet)
	}
	if len(p.idle)+p.given == len(p.slots) && !isClosed(p.drained) {
		close(p.drained)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// abandon marks the slots whose handlers run. What they return is dropped.
func (p *pool) abandon() (stuck []StuckHandler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.at == nil {
			continue
		}
		if h, ok := s.at.abandon(); ok {
			s.stuck = true
			stuck = append(stuck, h)
		}
	}
	return stuck
}

// join waits for the slots' goroutines, but for those that were abandoned, and for the requests that are in flight, which
// give up: nothing comes back to a slot from them.
func (p *pool) join() {
	p.settled()
	for _, s := range p.slots {
		close(s.attempts)
	}
	for _, s := range p.slots {
		if !s.stuck {
			<-s.keeper.done
		}
	}
	p.settled()
}

// settled waits for the requests that are in flight.
func (p *pool) settled() {
	for _, f := range p.feeds {
		f.turns.Wait()
	}
}
