package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// beatsPerLease is how often leases are extended; the reaper and the list of processes go by it as well.
const beatsPerLease = 4

// beat is the loop that extends the leases of an instance: those of attempts that run and of those whose end has not arrived. One time
// in beatsPerLease it asks, too, whether the store believes that an idle slot holds something.
func (f *feed) beat() *loop.Loop {
	every := f.every()
	passes := 1
	f.beaten = time.Now()
	return loop.Start(f.run.base, loop.Config{
		Name:     loop.Name{Loop: "heartbeat", Instance: f.terms.Instance},
		Outages:  &f.run.outages,
		MaxPause: min(every, loop.MaxPause),
		Pass: func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			err := f.beatOnce(ctx, passes%beatsPerLease == 0 && !f.run.sole)
			passes++
			return max(every-time.Since(began), time.Millisecond), err
		},
	})
}

// asked is an idle slot in a heartbeat, and how often it had asked for a job by then.
type asked struct {
	slot *slot
	asks int
}

func (f *feed) beatOnce(ctx context.Context, all bool) error {
	held, idle := f.holders(all)
	if len(held) == 0 {
		f.beaten = time.Now() // there was nothing to be late with
	}
	err := f.beatAll(ctx, held, idle)
	if len(held) > 0 {
		late := max(time.Since(f.beaten)-f.every(), 0)
		if err == nil {
			f.beaten = time.Now()
		}
		f.run.events.emit(LeasesExtended{Instance: f.terms.Instance, Leases: len(held), Late: late, Err: err})
	}
	return err
}

func (f *feed) beatAll(ctx context.Context, held []*attempt, idle []asked) error {
	for len(held)+len(idle) > 0 {
		n := 0
		for weight := 0; n < min(len(held), store.MaxCall) && weight < callWeight; n++ {
			weight += len(held[n].news())
		}
		some := held[:n]
		others := idle[:min(len(idle), store.MaxCall-len(some))]
		held, idle = held[len(some):], idle[len(others):]
		if err := f.beatSome(ctx, some, others); err != nil {
			return err
		}
		f.relieve()
	}
	return nil
}

// holders returns the attempts that hold a lease of the instance and, if asked for, the slots that hold none at all and don't
// ask for one.
func (f *feed) holders(all bool) (held []*attempt, idle []asked) {
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.at != nil && s.at.feed == f {
			held = append(held, s.at)
		}
	}
	if all {
		for _, s := range p.idle {
			idle = append(idle, asked{s, s.asks})
		}
	}
	return held, idle
}

// held returns the attempts that hold a lease.
func (p *pool) held() (held []*attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.at != nil {
			held = append(held, s.at)
		}
	}
	return held
}

func (f *feed) beatSome(ctx context.Context, held []*attempt, idle []asked) error {
	beats, others := make([]store.Beat, len(held)), make([]uuid.UUID, len(idle))
	for i, at := range held {
		beats[i] = store.Beat{Lease: at.lease, Progress: at.news()}
	}
	for i := range idle {
		others[i] = idle[i].slot.worker
	}
	sent := time.Now()
	verdicts, found, err := f.run.rt.Heartbeat(ctx, f.terms, beats, others)
	if err != nil {
		return err
	}
	until := sent.Add(f.run.trusted)
	for i, at := range held {
		at.carried(beats[i].Progress)
		switch verdicts[i] {
		case store.Held:
			at.extend(until)
		case store.CancelRequested:
			at.extend(until)
			at.cancel(ErrCancelled)
		case store.Lost:
			f.run.lose(at)
		}
	}
	if len(found) > 0 {
		f.returnUnknown(found, idle)
	}
	return nil
}

// returnUnknown gives back what idle slots hold without knowing. A slot that has asked for a job in the meantime is being
// given it in the regular way.
func (f *feed) returnUnknown(found []*store.Lease, idle []asked) {
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range found {
		for _, a := range idle {
			s := a.slot
			if s.worker != l.Job.Worker || s.asks != a.asks || s.at != nil || !p.removeIdleLocked(s) {
				continue
			}
			s.at = f.refuse(s, l, store.Release, nil)
			f.turns.Add(turn{s, s.at})
		}
	}
}

func (p *pool) removeIdleLocked(s *slot) bool {
	for i := range p.idle {
		if p.idle[i] == s {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return true
		}
	}
	return false
}

// lose tells a handler, if it still runs, that its job is no longer its own.
func (r *process) lose(at *attempt) {
	if at.cancel(ErrLeaseLost) {
		job := &at.lease.Job
		r.events.emit(LeaseLost{Instance: job.Instance, Job: job.ID, Worker: job.Worker})
	}
}

// lapse is the loop that tells handlers when the time is over for which their lease was known to hold, by our own monotonic
// clock. One timer serves them all: it is set to the first that ends.
func (r *process) lapse() *loop.Loop {
	return loop.Start(r.base, loop.Config{
		Name:    loop.Name{Loop: "lease watch"},
		Outages: &r.outages,
		Pass: func(context.Context) (time.Duration, error) {
			now := time.Now()
			first := now.Add(r.trusted)
			r.watched.Store(int64(first.Sub(r.started))) // so that what is claimed from here on is seen by watch
			for _, p := range r.pools {
				for _, at := range p.held() {
					until, ok := at.holdsUntil()
					switch {
					case !ok:
					case !now.Before(until):
						r.lose(at)
					case until.Before(first):
						first = until
					}
				}
			}
			r.watched.Store(int64(first.Sub(r.started)))
			return max(time.Until(first), time.Millisecond), nil
		},
	})
}

// watch makes sure that a lease which holds until then is seen in time. It rarely has to do anything: a lease claimed after the
// watch was set ends after the time that it is set to.
func (r *process) watch(until time.Time) {
	if int64(until.Sub(r.started)) < r.watched.Load() {
		r.watcher.Kick()
	}
}
