package worker

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// auditPause is the time between two steps of an audit, of some 100 jobs each.
const auditPause = 50 * time.Millisecond

// reap is the loop that ends the leases that ran out, whoever held them, and the jobs that wait past their deadline, and
// removes what retention no longer keeps. It sleeps until the next lease runs out, but no longer than a quarter of one: a new
// one may be shorter than those it knows.
func (f *feed) reap() *loop.Loop {
	every := f.every()
	return loop.Start(f.run.base, loop.Config{
		Name:     loop.Name{Loop: "reap", Instance: f.terms.Instance},
		Outages:  &f.run.outages,
		MaxPause: min(every, loop.MaxPause),
		Pass: func(ctx context.Context) (time.Duration, error) {
			next, err := f.reapOnce(ctx)
			if err != nil {
				return 0, err
			}
			f.relieve()
			switch {
			case next < 0:
				next = f.run.rarely(every)
			case next > every:
				next = every
			}
			if f.audit.on {
				next = min(next, auditPause)
				err = f.auditStep(ctx)
			}
			return max(next, time.Millisecond), err
		},
	})
}

func (f *feed) reapOnce(ctx context.Context) (time.Duration, error) {
	m, err := f.run.rt.Reap(ctx, f.terms)
	if len(m.Reaped) > 0 {
		f.wake() // the store woke one process a job, and it may have been one that is frozen
	}
	if err != nil {
		return m.Next, err
	}
	if m.Sweep >= 0 {
		f.sweepIn(m.Sweep)
	}
	ev, instance := f.run.events, f.terms.Instance
	if m.Missing != 0 && !f.audit.on {
		ev.emit(Inconsistent{Instance: instance, Missing: m.Missing})
		f.audit.on = true
	}
	if !ev.wanted() {
		return m.Next, nil
	}
	for _, r := range m.Reaped {
		ev.emit(JobReaped{Instance: instance, Job: r.Job, Worker: r.Worker, Crashes: r.Crashes, State: r.State})
	}
	for _, id := range m.Expired {
		ev.emit(JobExpired{Instance: instance, Job: id})
	}
	for state, n := range m.Trimmed {
		ev.emit(Trimmed{Instance: instance, State: state, Count: n})
	}
	return m.Next, nil
}

// audit is a look through a whole instance, a step with each pass of the reaper, for what makes its counts differ.
type audit struct {
	on bool
	at store.AuditCursor
}

func (f *feed) auditStep(ctx context.Context) error {
	moved, at, err := f.run.rt.Audit(ctx, f.terms.Instance, f.audit.at)
	if err != nil {
		return err // the same step comes again
	}
	f.audit = audit{on: at != store.AuditCursor{}, at: at}
	if len(moved) > 0 {
		f.run.events.emit(Audited{Instance: f.terms.Instance, Jobs: moved})
	}
	return nil
}

// announce is the loop that lists the process as alive.
func (r *process) announce() *loop.Loop {
	every := r.rarely(r.cfg.Lease / beatsPerLease)
	return loop.Start(r.base, loop.Config{
		Name:     loop.Name{Loop: "announce"},
		Outages:  &r.outages,
		MaxPause: min(every, loop.MaxPause),
		Pass: func(ctx context.Context) (time.Duration, error) {
			err := r.rt.Announce(ctx, r.about, beatsPerLease*every)
			if err == nil {
				r.listed.Store(true)
			}
			return every, err
		},
	})
}
