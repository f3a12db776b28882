package store

import (
	"context"
	"fmt"

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
		_, err := s.run(ctx, scriptPause, s.instanceKeys(instance), on)
		return err
	})
}

// RequeueMode says what of a job a Requeue keeps. The zero value, Resume, keeps all that is committed.
type RequeueMode struct{ _ struct{} }

// Requeue makes a job that is done, dead or cancelled todo again, behind those of its priority that wait already, with its attempts
// and crashes counted from zero. ErrState if it has not ended.
func (s *Store) Requeue(ctx context.Context, id uuid.UUID, _ RequeueMode) error {
	return s.at(ctx, "requeuing", id, func(instance string, keys []string) error {
		j, err := s.read(ctx, instance, keys, id)
		if err != nil {
			return err
		}
		priority := j.Priority
		if priority == 0 { // the record can't be read; the claim will say so
			priority = DefPriority
		}
		was, err := s.change(ctx, scriptRequeue, keys, id, MaxPriority-priority)
		if err != nil {
			return err
		}
		if !was.Terminal() {
			return fmt.Errorf("%w: the job is %s; only one that has ended is requeued", ErrState, was)
		}
		return nil
	})
}

// Delete removes a job and all that is kept of it. ErrState if it is doing: cancel it first.
func (s *Store) Delete(ctx context.Context, id uuid.UUID) error {
	return s.at(ctx, "deleting", id, func(_ string, keys []string) error {
		was, err := s.change(ctx, scriptDelete, keys, id)
		if err == nil && was == Doing {
			err = fmt.Errorf("%w: the job is doing; cancel it first", ErrState)
		}
		return err
	})
}

// Cancel ends a job as cancelled: at once unless it is doing. Then its handler's context is cancelled, by notification or,
// failing that, with the next heartbeat; the job is cancelled when the handler returns, unless it returns nil, and also
// when its lease runs out instead. ErrTerminal if it has ended.
func (s *Store) Cancel(ctx context.Context, id uuid.UUID) error {
	return s.at(ctx, "cancelling", id, func(_ string, keys []string) error {
		was, err := s.change(ctx, scriptCancel, keys, id)
		if err == nil && was.Terminal() {
			err = fmt.Errorf("%w: it is %s", ErrTerminal, was)
		}
		return err
	})
}

// change runs a script that answers with the state that the job was in.
func (s *Store) change(ctx context.Context, sc script, keys []string, id uuid.UUID, more ...any) (State, error) {
	reply, err := s.run(ctx, sc, keys, append([]any{id[:]}, more...)...)
	if err != nil {
		return "", err
	}
	p := reader{v: reply}
	n := p.int()
	if n == 0 {
		return "", fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return stateAt(n), nil
}
