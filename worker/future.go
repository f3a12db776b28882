package worker

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
)

// Future is the result of an async step, which may be yet to come. It belongs to the attempt that made it.
type Future[T any] struct {
	step     *step
	instance string
	child    uuid.UUID
}

// ID is the id of the child: of the job that the step runs as.
func (f *Future[T]) ID() uuid.UUID { return f.child }

// Wait returns the child's result. As long as that is not there it parks the job instead and returns [ErrParked]: the attempt is over then, the
// worker is free for another job, and when the child has ended the handler is called anew and comes here again. A child that failed is a
// permanent *ChildError; so the job is dead unless its handler does something else about it.
//
// T must be what the child's handler was registered with in [HandleResult]; if the result is no T, that is a *StepError with [ErrStepChanged].
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	var zero T
	if err := f.mine(ctx); err != nil {
		return zero, err
	}
	if f.step.kept.State == store.StepDispatched {
		return zero, f.step.at.park(store.Wait{Steps: []string{f.step.name}})
	}
	return f.result(ctx, -1)
}

// mine makes sure that a Future is waited for by its own attempt, outside of its steps.
func (f *Future[T]) mine(ctx context.Context) error {
	at, err := attemptOf(ctx)
	if err != nil {
		return err
	}
	if f == nil || f.step == nil {
		return cmp.Or(at.live(), invalid("waiting for a future that is nil: whatever was to make it has returned an error"))
	}
	if outer, nested := ctx.Value(stepKey{}).(string); nested {
		return refuse(f.step.name, fmt.Errorf("%w: waiting in step %q", ErrNestedStep, outer))
	}
	if at != f.step.at {
		return refuse(f.step.name, fmt.Errorf("%w: the future is another attempt's", ErrNoJob))
	}
	return at.live()
}

// result is that of a child that has ended.
func (f *Future[T]) result(ctx context.Context, index int) (out T, err error) {
	err = f.step.around(ctx, f.step.kept, func(context.Context) (err error) { out, err = f.replay(index); return err })
	return out, err
}

func (f *Future[T]) replay(index int) (T, error) {
	var out, zero T
	s := f.step
	if s.kept.State == store.StepFailed {
		return zero, retry.Permanent(f.failure(index))
	}
	if s.kept.Result == nil {
		if _, none := any(out).(struct{}); !none {
			return zero, refuse(s.name, fmt.Errorf("%w: the child has no result", ErrStepChanged))
		}
	} else {
		kept, err := s.read()
		if err != nil {
			return zero, err
		}
		if err := decodeKept(kept, "the child's result", &out); err != nil {
			return zero, refuse(s.name, err)
		}
	}
	s.at.feed.run.events.emit(StepReplayed{Instance: s.instance(), Job: s.job(), Step: s.name})
	return out, nil
}

func (f *Future[T]) failure(index int) *ChildError {
	k := &f.step.kept
	return &ChildError{Step: f.step.name, Index: index, ID: f.child, Instance: f.instance, Fate: k.Fate, Reason: k.Error}
}

// WaitAll returns the results of all children, in the order of fs. As long as one is missing and none has failed it parks the job, once for
// all of them, as [Future.Wait] does for one. With the first that fails it returns a permanent *ChildrenError, and beside it the
// results there are; where there is none the result is zero.
func WaitAll[T any](ctx context.Context, fs []*Future[T]) ([]T, error) {
	results := make([]T, len(fs))
	var open []int
	var names []string
	var failed []*ChildError
	for i, f := range fs {
		if err := f.mine(ctx); err != nil {
			return nil, err
		}
		switch f.step.kept.State {
		case store.StepDispatched:
			open, names = append(open, i), append(names, f.step.name)
		case store.StepFailed:
			failed = append(failed, f.failure(i))
		}
	}
	if len(open) > 0 && len(failed) == 0 {
		return nil, fs[0].step.at.park(store.Wait{Steps: names})
	}
	for i, f := range fs {
		if f.step.kept.State != store.StepCompleted {
			continue
		}
		var err error
		if results[i], err = f.result(ctx, i); err != nil {
			return results, err
		}
	}
	if len(failed) > 0 {
		return results, retry.Permanent(&ChildrenError{failed, open})
	}
	return results, nil
}
