package worker

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/loop"
)

// reap is the loop that ends the leases that ran out, whoever held them, and removes what retention no longer keeps. It
// sleeps until the next lease runs out, but no longer than a quarter of one: a new one may be shorter than those it knows.
func (p *pool) reap() *loop.Loop {
	every := p.terms.Lease / beatsPerLease
	return loop.Start(p.run.base, loop.Config{
		Name:     loop.Name{Loop: "reap", Instance: p.terms.Instance},
		Outages:  &p.run.outages,
		MaxPause: min(every, loop.MaxPause),
		Pass: func(ctx context.Context) (time.Duration, error) {
			next, err := p.reapOnce(ctx)
			if next < 0 {
				return p.run.rarely(every), err
			}
			return min(max(next, time.Millisecond), every), err
		},
	})
}

func (p *pool) reapOnce(ctx context.Context) (time.Duration, error) {
	m, err := p.run.rt.Reap(ctx, p.terms)
	if len(m.Reaped) > 0 {
		p.wake() // the store woke one process a job, and it may have been one that is frozen
	}
	if err != nil || !p.run.events.wanted() {
		return m.Next, err
	}
	ev, instance := p.run.events, p.terms.Instance
	for _, r := range m.Reaped {
		ev.emit(JobReaped{Instance: instance, Job: r.Job, Worker: r.Worker, Crashes: r.Crashes, State: r.State})
	}
	for state, n := range m.Trimmed {
		ev.emit(Trimmed{Instance: instance, State: state, Count: n})
	}
	if m.Missing != 0 {
		ev.emit(Inconsistent{Instance: instance, Missing: m.Missing})
	}
	return m.Next, nil
}

// announce is the loop that lists the process as alive.
func (r *process) announce() *loop.Loop {
	every := r.rarely(r.cfg.Lease / beatsPerLease)
	return loop.Start(r.base, loop.Config{
		Name:     loop.Name{Loop: "announce"},
		Outages:  &r.outages,
		MaxPause: min(every, loop.MaxPause),
		Pass: func(ctx context.Context) (time.Duration, error) {
			return every, r.rt.Announce(ctx, r.about, beatsPerLease*every)
		},
	})
}
