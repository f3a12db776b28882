package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Pause stops the claiming of an instance's jobs, in every process, until Resume. Those that are doing go on, and
// jobs are still accepted.
func (s *Store) Pause(ctx context.Context, instance string) error {
	return s.pause(ctx, "pausing", instance, 1)
}

// Resume ends a Pause. To resume what is not paused does nothing.
func (s *Store) Resume(ctx context.Context, instance string) error {
	return s.pause(ctx, "resuming", instance, 0)
}

func (s *Store) pause(ctx context.Context, op, instance string, on int) error {
	if err := ValidateInstance(instance); err != nil {
		return err
	}
	return s.do(ctx, op, func() error {
		if err := s.announce(ctx, instance, false); err != nil { // so that the pause can be seen, also before the first job
			return err
		}
		_, err := s.run(ctx, scriptPause, s.instanceKeys(instance), on)
		return err
	})
}

// RequeueMode says what of a job's steps a Requeue keeps. The zero value is Resume.
type RequeueMode struct{ word string }

// The modes that need no more to be said; see also FromStep.
var (
	// Resume keeps what is committed and drops what failed: those steps run again, those children are dispatched again.
	Resume = RequeueMode{}
	// Fresh keeps no step.
	Fresh = RequeueMode{"f"}
)

// FromStep drops that step and all that were begun after it, and keeps those before as Resume does. A step was begun when it was first committed,
// an async one when it was dispatched: a cursor that was saved again keeps its place in the order, and its latest value; a step whose result was
// recomputed was begun anew.
func FromStep(name string) RequeueMode { return RequeueMode{"s" + name} }

// Requeue makes a job that is done, dead or cancelled todo again, behind those of its priority that wait already, with its
// attempts and crashes counted from zero and without its deadline. Children that it left open are cancelled, unless they were let
// go when it was done, and dispatched anew when it comes to them; ErrUntold if some are still to be. ErrState if it has not
// ended, or is itself a child: its parent is to be requeued then. A *DuplicateError if another job has its key of uniqueness by
// now, ErrNotFound if there is no such job, or no such step in it.
func (s *Store) Requeue(ctx context.Context, id uuid.UUID, m RequeueMode) error {
	return s.one(ctx, "requeuing", id, requeue(m))
}

// Delete removes a job and all that is kept of it. ErrState if it is doing: cancel it first. If it had not ended its children are cancelled, and its
// parent is told; ErrUntold if that is still to be done.
func (s *Store) Delete(ctx context.Context, id uuid.UUID) error {
	return s.one(ctx, "deleting", id, remove)
}

// Cancel ends a job as cancelled: at once unless it is doing. Then its handler's context is cancelled, by notification or,
// failing that, with the next heartbeat; the job is cancelled when the handler returns, unless it returns nil, and also
// when its lease runs out instead. Where it ends at once its children are cancelled as well, and its parent is told; ErrUntold if that is still to
// be done. ErrTerminal if it has ended.
func (s *Store) Cancel(ctx context.Context, id uuid.UUID) error {
	return s.one(ctx, "cancelling", id, cancel)
}

// change is something that is done to jobs by their ids.
type change struct {
	script script
	args   []any // what comes before the ids
	// read returns what became of the next job in the script's reply: nil if it was changed.
	read func(r *reader) error
}

func requeue(m RequeueMode) change {
	return change{scriptRequeue, []any{cmp.Or(m.word, "r")}, func(r *reader) error {
		was, other := r.int(), r.str()
		switch {
		case was == 0:
			return ErrNotFound
		case was == -3:
			return fmt.Errorf("%w: the job is the child of another; that one is to be requeued", ErrState)
		case was == -5:
			key, kind, _ := strings.Cut(other, "\n")
			return &KeyError{Key: key, Type: kind, Want: "hash"}
		case was == -4:
			return fmt.Errorf("%w: a step %q", ErrNotFound, m.word[1:])
		case other != "":
			d := &DuplicateError{}
			copy(d.Holder[:], other)
			return d
		case !stateAt(was).Terminal():
			return fmt.Errorf("%w: the job is %s; only one that has ended is requeued", ErrState, stateAt(was))
		}
		return nil
	}}
}

var (
	remove = change{scriptDelete, nil, func(r *reader) error {
		switch was := r.int(); {
		case was == 0:
			return ErrNotFound
		case stateAt(was) == Doing:
			return fmt.Errorf("%w: the job is doing; cancel it first", ErrState)
		}
		return nil
	}}
	cancel = change{scriptCancel, nil, func(r *reader) error {
		switch was := r.int(); {
		case was == 0:
			return ErrNotFound
		case stateAt(was).Terminal():
			return fmt.Errorf("%w: it is %s", ErrTerminal, stateAt(was))
		}
		return nil
	}}
)

// one changes a job, wherever it is.
func (s *Store) one(ctx context.Context, op string, id uuid.UUID, c change) error {
	return s.at(ctx, op, id, func(instance string, keys []string) error {
		p, err := s.run(ctx, c.script, keys, append(slices.Clone(c.args), id[:])...)
		if err != nil {
			return err
		}
		l := p.list()
		if err := c.read(&l); err != nil {
			return fmt.Errorf("%w: job %s", err, id)
		}
		return s.chase(ctx, instance, p.int(), []uuid.UUID{id})
	})
}

// How far a chase goes. A job's own children, 10,000 at most, are within it.
const (
	chaseSweeps = 64
	chaseTime   = 5 * time.Second
)

// chase tells the families of jobs that were changed, if n of them are to be told something: in case that no process serves the instance, whose
// sweeper would, and lest a parent wait for that one. It does so within bounds; what is left comes again there, and is an ErrUntold. What else is
// due is the sweeper's: whoever changes a job does not wait for other families, and has nobody to tell what becomes of them.
func (s *Store) chase(ctx context.Context, instance string, n int64, ids []uuid.UUID) error {
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, chaseTime) // a server may be away that has nothing to do with these jobs
	defer cancel()
	for range chaseSweeps {
		got, err := s.Runtime().sweepFor(ctx, instance, ids)
		for _, id := range ids {
			err = cmp.Or(err, got.untold[id])
		}
		switch {
		case err != nil:
			return fmt.Errorf("%w yet: %w", ErrUntold, err)
		case got.Next != 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w yet: it takes longer than %v", ErrUntold, chaseTime)
		}
	}
	return fmt.Errorf("%w yet: the sweeper has more to do in %s", ErrUntold, instance)
}
