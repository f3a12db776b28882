package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// A pool looks for jobs when it has idle slots and reason to believe that there is something: it was woken, it may have missed a
// wake-up, or the store said when to look again. A reason that comes while a request is in flight is kept until the
// next request, since nobody knows whether that one saw it: this is what `due` is for.

// rarely is d, or much longer where nobody else uses the server.
func (r *process) rarely(d time.Duration) time.Duration {
	if r.sole {
		return max(d, 10*time.Minute)
	}
	return d
}

// wake makes the pool look, now or as soon as it has an idle slot.
func (p *pool) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = true
	p.lookLocked()
}

// expire is what the timer calls.
func (p *pool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = time.Time{}
	p.due = true
	p.lookLocked()
}

// lookLocked makes turns of idle slots if there is reason to. A look that is on its way will see all that came before it is
// sent, so one is enough.
func (p *pool) lookLocked() {
	n := min(len(p.idle), p.ask)
	if !p.due || n == 0 || p.looks > 0 || !p.stopped.IsZero() {
		return
	}
	p.looks = n
	rest := len(p.idle) - n
	look := make([]turn, 0, n)
	for _, s := range p.idle[rest:] {
		look = append(look, turn{slot: s})
	}
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
	p.turns.AddAll(look)
}

// armLocked sets the timer for the next look: after `next`, where that isn't negative, but no later than the poll. An earlier time
// that it is set to stands: the answers of two requests may come in another order than they were given.
func (p *pool) armLocked(next time.Duration) {
	if !p.stopped.IsZero() {
		return
	}
	wait := p.run.rarely(poll)
	if !p.run.hearing.Load() {
		wait = deafTo
	}
	if next >= 0 {
		wait = min(wait, next)
	}
	now := p.run.now()
	if at := now.Add(wait); p.armed.IsZero() || at.Before(p.armed) || p.armed.Before(now) {
		p.armed = at
		p.timer.Reset(wait)
	}
}

// listen is the loop that hears what the process is told: that an instance has work, or that a job is to be cancelled.
func (r *process) listen() *loop.Loop {
	sub := r.rt.Subscribe(r.rt.ProcessChannel(r.about.ID))
	return loop.Start(r.base, loop.Config{
		Name:    loop.Name{Loop: "subscription"},
		Outages: &r.outages,
		Pass: func(context.Context) (time.Duration, error) {
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
		Interrupt: func() { _ = sub.Close() }, // Receive does not hear its context
	})
}

// heed does what a message asks for.
func (r *process) heed(m store.Message) {
	switch m.Kind {
	case store.Subscribed: // whatever was said before is lost; and Redis is there
		r.hearing.Store(true)
		r.wakeAll()
		for _, p := range r.pools {
			p.hope()
		}
	case store.Wake:
		if p := r.byInstance[m.Instance]; p != nil {
			p.wake()
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
	held, _ := p.holders(false)
	for _, at := range held {
		if at.lease.Job.ID == id {
			at.cancel(ErrCancelled)
		}
	}
}
