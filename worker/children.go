package worker

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// How children are vetted and the sweeper looks.
const (
	vetTime    = 5 * time.Second
	vetSoon    = time.Second // a child that could not be vetted is put off for its age, within these
	vetLate    = time.Minute
	sweepGrace = 10 * time.Second // before an open child is looked after
	sweepPause = time.Second      // at least, after something has failed elsewhere
	sweepLate  = 11 * time.Minute // what has failed is asked again within this
	sweepIdle  = time.Hour        // nothing to do as far as is known: the reaper says when that changes
)

// errUnwanted is how a child ends whose parent has no use for it any more.
var errUnwanted = errors.New("its parent has ended without it, or has its outcome already")

// unvetted is a child that could not be vetted: its handler was not called, and has failed in nothing.
type unvetted struct{ err error }

func (u *unvetted) Error() string { return "asking after its parent: " + u.err.Error() }
func (u *unvetted) Unwrap() error { return u.err }

// vet makes sure that a child is still wanted, before its handler is called. It asks once: a worker is not to be held by a parent's server
// that is away, which need not be the child's own; nor many workers one after the other.
func (a *attempt) vet() error {
	if !a.uncalled {
		return nil
	}
	job := &a.lease.Job
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.base()), vetTime)
	defer cancel()
	wanted, run := false, a.feed.run
	err := run.silence.ask(job.Parent.Instance, func() error {
		return guard(func() (err error) {
			wanted, err = run.rt.Wanted(ctx, job)
			return err
		})
	})
	switch {
	case err != nil:
		return &unvetted{err}
	case !wanted:
		return errUnwanted
	}
	if !a.restart(a.feed.reg.timeout) {
		return ErrShutdown // nobody hears it
	}
	a.feed.tellStarted(a)
	return nil
}

// later is for how long a child is put off that could not be vetted: the longer the older it is, so that looks get rarer.
func later(job *store.Job) time.Duration {
	return min(max(job.StartedAt.Sub(job.EnqueuedAt), vetSoon), vetLate)
}

// family sees to the parents and the children of what has ended.
func (f *feed) family(turns []turn, got store.Exchanged) {
	if len(got.Expired) > 0 {
		f.sweepIn(0) // they ended without a worker who could tell
	}
	i := 0
	for _, t := range turns {
		if t.at == nil {
			continue
		}
		state, at := got.Ended[i], t.at
		i++
		if state == store.Parked && !at.wait.Until.IsZero() {
			f.sweepIn(at.wait.Until.Sub(at.remember().now()))
		}
		if !state.Terminal() {
			continue
		}
		if at.lease.Job.Parent.ID != uuid.Nil {
			f.run.relays.add(store.OutcomeOf(&at.lease.Job, state, at.finish.Result, at.finish.Error))
			f.sweepIn(sweepGrace)
		}
		if at.mayHaveChildren() {
			f.sweepIn(0)
		}
	}
}

// sweep is the loop that brings back what a crash left of parked jobs and children. It makes a request only when there is, or may be,
// something to do: it is told by the reaper, and by what this process does itself.
func (f *feed) sweep() *loop.Loop {
	return loop.Start(f.run.base, loop.Config{
		Name:     loop.Name{Loop: "sweep", Instance: f.terms.Instance},
		Outages:  &f.run.outages,
		MaxPause: min(f.every(), loop.MaxPause),
		Pass: func(ctx context.Context) (time.Duration, error) {
			if d := f.untilSweep(); d > 0 {
				return d, nil
			}
			f.sweepAt.Store(int64(time.Since(f.run.started) + sweepIdle)) // what is noted from here on counts
			got, err := f.run.rt.Sweep(ctx, f.terms.Instance)
			if err != nil {
				f.sweepIn(0)
				return 0, err
			}
			f.tellSwept(got)
			if ctx.Err() == nil { // else it is because we stop
				f.tellAsked(got.Asked)
			}
			if got.Next >= 0 {
				if got.Err != nil {
					got.Next = max(got.Next, sweepPause)
				}
				f.sweepIn(got.Next)
			}
			return max(f.untilSweep(), time.Millisecond), nil
		},
	})
}

// tellAsked tells how the instances have answered that a sweep had to do with. Their servers need not be our own, so that is a trouble by
// itself. It is over when they have answered; or when none has failed for so long that it would have been asked again: then another process has
// seen to what there was.
func (f *feed) tellAsked(asked map[string]error) {
	for other, err := range asked {
		if err != nil {
			f.ailing[other] = time.Now()
			f.run.outages.Failed(elsewhere(other), err)
		}
	}
	for other, since := range f.ailing {
		if err, was := asked[other]; was && err == nil || time.Since(since) > sweepLate {
			delete(f.ailing, other)
			f.run.outages.OK(elsewhere(other))
		}
	}
}

// elsewhere names what sweeps have to do with an instance that is not theirs.
func elsewhere(instance string) loop.Name {
	return loop.Name{Loop: "sweep", Instance: instance, Number: 1}
}

func (f *feed) untilSweep() time.Duration {
	return time.Duration(f.sweepAt.Load()) - time.Since(f.run.started)
}

// sweepIn makes the sweeper look in d, unless it looks earlier by itself.
func (f *feed) sweepIn(d time.Duration) {
	at := int64(time.Since(f.run.started) + d)
	for {
		old := f.sweepAt.Load()
		if at >= old {
			return
		}
		if f.sweepAt.CompareAndSwap(old, at) {
			f.sweeper.Kick()
			return
		}
	}
}

// tellSwept emits what a sweep has done.
func (f *feed) tellSwept(got store.Swept) {
	if len(got.Woken) > 0 {
		f.wake() // the store woke one process a job, and it may have been one that is frozen
	}
	for outcome, steps := range map[SweepOutcome][]store.Step{SweptAgain: got.Again, SweptLost: got.Lost, SweptFound: got.Found} {
		for _, s := range steps {
			f.run.events.emit(ChildSwept{Instance: f.terms.Instance, Job: s.Job, Step: s.Name, Child: s.Child, To: s.Instance,
				Sweeps: s.Sweeps, Outcome: outcome})
		}
	}
}
