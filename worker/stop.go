package worker

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
)

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
