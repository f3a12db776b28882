package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// A pool looks for jobs of an instance when it has idle slots and reason to believe that there is something: it was woken, it may
// have missed a wake-up, or the store said when to look again. A reason that comes while a request is in flight is kept until
// the next request, since nobody knows whether that one saw it: this is what `due` is for.

// rarely is d, or much longer where nobody else uses the server.
func (r *process) rarely(d time.Duration) time.Duration {
	if r.sole {
		return max(d, 10*time.Minute)
	}
	return d
}

// wake makes the pool look, now or as soon as it has an idle slot.
func (f *feed) wake() {
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	f.stirLocked()
	f.pool.lookLocked()
}

// called is a wake for a reason that no other process was told. If other instances keep all slots busy, or the instance is tripped,
// it is passed on.
func (f *feed) called() {
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	f.calledLocked()
}

func (f *feed) calledLocked() {
	p := f.pool
	busy := len(p.idle) == 0 && f.looks == 0 && len(p.feeds) > 1 || !f.admitsLocked()
	f.stirLocked()
	p.lookLocked()
	if busy && !f.passing && p.stopped.IsZero() {
		f.passing = true
		f.turns.Add(turn{})
	}
}

// expire is what the timer calls. It may have been set to the time of a job that no other process knows of.
func (f *feed) expire() {
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	f.armed = time.Time{}
	if left := f.shut.Sub(f.run.now()); f.tripped && left > 0 {
		f.armLocked(left)
		return
	}
	f.calledLocked()
}

func (f *feed) stirLocked() { f.due, f.empty = true, false }

// least is how many slots take part in a look that may be in vain. Where there are several instances one is left for each other,
// in case that it is not answered.
func (p *pool) least() int {
	return max(1, min(minLook, len(p.slots)-len(p.feeds)+1))
}

// open reports whether it makes sense to ask: it may have a job, and its requests are answered. Under pool.mu.
func (f *feed) open() bool { return !f.empty && f.failing == 0 && f.admitsLocked() }

// wake makes the pool look for the jobs of all its instances.
func (p *pool) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.feeds {
		f.stirLocked()
	}
	p.lookLocked()
}

// lookLocked makes turns of idle slots if there is reason to. A look that is on its way will see all that came before it is
// sent, so one is enough for an instance.
func (p *pool) lookLocked() {
	if len(p.idle) == 0 || !p.stopped.IsZero() {
		return
	}
	ready := func(f *feed) bool {
		return f.due && f.looks == 0 && f.failing == 0 && len(f.look) < f.ask && f.admitsLocked()
	}
	may := func(i int) bool {
		// In a strict pool nobody is asked before it is known of those before him that they have nothing, or can't be asked.
		return ready(p.feeds[i]) || p.picker.strict && p.feeds[i].open()
	}
	for n := len(p.idle); n > 0; n-- {
		i := p.picker.next(may)
		if i < 0 || !ready(p.feeds[i]) {
			break
		}
		f, s := p.feeds[i], p.idle[n-1]
		f.look = append(f.look, turn{slot: s})
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
	}
	for _, f := range p.feeds {
		if len(f.look) > 0 {
			f.looks = len(f.look)
			f.turns.AddAll(f.look)
			clear(f.look)
			f.look = f.look[:0]
		}
	}
}

// nextLocked says whether a slot that hands something in to a feed asks for its next job there at the same time. If another
// feed's turn has come the slot asks that one, as soon as it is free.
func (p *pool) nextLocked(f *feed, s *slot) bool {
	if len(p.feeds) == 1 {
		return true
	}
	i := p.picker.next(func(i int) bool { return p.feeds[i].open() })
	switch {
	case i < 0:
		return false
	case p.feeds[i] == f:
		return true
	}
	s.next = p.feeds[i]
	return false
}

// restLocked is for a slot that holds nothing and has asked for nothing that is unanswered.
func (p *pool) restLocked(s *slot) {
	f := s.next
	s.next = nil
	if f == nil || !f.open() || !p.stopped.IsZero() {
		p.idle = append(p.idle, s)
		return
	}
	f.looks++
	f.turns.Add(turn{slot: s})
}

// armLocked sets the timer for the next look: after `next`, where that isn't negative, but no later than the poll. An earlier time
// that it is set to stands: the answers of two requests may come in another order than they were given.
func (f *feed) armLocked(next time.Duration) {
	if !f.pool.stopped.IsZero() {
		return
	}
	wait := f.run.rarely(poll)
	if !f.run.hearing.Load() {
		wait = deafTo
	}
	if next >= 0 {
		wait = min(wait, next)
	}
	now := f.run.now()
	if at := now.Add(wait); f.armed.IsZero() || at.Before(f.armed) || f.armed.Before(now) {
		f.armed = at
		f.timer.Reset(wait)
	}
}

// listen is the loop that hears what the process is told: that an instance has work, or that a job is to be cancelled.
func (r *process) listen() *loop.Loop {
	var open atomic.Pointer[store.Subscription] // by the first pass: connecting may take as long as an outage
	return loop.Start(r.base, loop.Config{
		Name:    loop.Name{Loop: "subscription"},
		Outages: &r.outages,
		Pass: func(ctx context.Context) (time.Duration, error) {
			sub := open.Load()
			if sub == nil {
				sub = r.rt.Subscribe(r.rt.ProcessChannel(r.about.ID))
				open.Store(sub)
				if ctx.Err() != nil { // Interrupt may have come before
					return 0, sub.Close()
				}
			}
			m, err := sub.Receive(poll)
			if err != nil && r.hearing.Swap(false) {
				// From now on we look more often. The connection is being made anew already: to read from it at once loses
				// nothing, and if it works this was no outage.
				r.wakeAll()
				return 0, nil
			}
			if err != nil {
				return 0, err
			}
			r.heed(m)
			return 0, nil
		},
		Interrupt: func() { // Receive does not hear its context
			if sub := open.Load(); sub != nil {
				_ = sub.Close()
			}
		},
	})
}

// heed does what a message asks for.
func (r *process) heed(m store.Message) {
	switch m.Kind {
	case store.Subscribed: // whatever was said before is lost; and Redis is there
		r.hearing.Store(true)
		r.wakeAll()
		for _, f := range r.feeds {
			f.hope()
		}
	case store.Wake:
		if f := r.byInstance[m.Instance]; f != nil {
			f.called()
		}
	case store.CancelJob:
		for _, p := range r.pools {
			p.cancelJob(m.Job)
		}
	}
}

func (r *process) wakeAll() {
	for _, p := range r.pools {
		p.wake()
	}
}

// cancelJob ends the context of the handler that runs a job, if it is one of this pool's.
func (p *pool) cancelJob(id uuid.UUID) {
	for _, at := range p.held() {
		if at.lease.Job.ID == id {
			at.cancel(ErrCancelled)
		}
	}
}
