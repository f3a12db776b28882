package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/crash"
	"github.com/stint-go/stint/store"
)

// Sleep returns nil when d has passed since the handler first came to it, by Redis' clock. Until then it parks the job, which holds no worker, and
// returns [ErrParked]: the handler is called anew at that time. It is a step: the name is used once in an attempt, and the time counts from the
// first attempt that came to it, whatever d is later. A negative d is refused, with a permanent *StepError.
func Sleep(ctx context.Context, name string, d time.Duration) error {
	s, err := enter(ctx, name)
	if err != nil {
		return err
	}
	if d < 0 {
		return refuse(name, invalid("sleeping for %v, which is negative", d))
	}
	if s.found && s.kept.Kind != store.SleepStep {
		return refuse(name, fmt.Errorf("%w: it was of the kind %q", ErrStepChanged, s.kept.Kind))
	}
	if !s.found {
		crash.At(ctx, name, crash.BeforeStep)
		if s.kept, err = s.commit(store.StepWrite{Kind: store.SleepStep, Sleep: d}); err != nil {
			return err
		}
		crash.At(ctx, name, crash.AfterCommit)
	}
	now := s.at.remember().now()
	if !now.Before(s.kept.Until) {
		s.at.feed.run.events.emit(StepReplayed{Instance: s.instance(), Job: s.job(), Step: name})
		return nil
	}
	return s.at.park(store.Wait{Until: s.kept.Until, Steps: []string{name}})
}

// Cursor keeps a position in a long loop. It returns the one that was saved last, in this attempt or an earlier one, or else the zero T, and a
// function that saves one, at the cost of a request: when that has returned nil no crash loses it. Only who holds the job can save: the function
// returns [ErrLeaseLost] if the job has become another worker's, and [ErrParked] once the attempt is parked. It is safe for concurrent use;
// positions count in the order of the calls.
//
// A position that does not fit T is a permanent *StepError with [ErrStepChanged].
func Cursor[T any](ctx context.Context, name string) (saved T, save func(context.Context, T) error, err error) {
	s, err := enter(ctx, name)
	if err != nil {
		return saved, nil, err
	}
	if s.found {
		if err := s.replay(store.CursorStep, &saved); err != nil {
			var zero T
			return zero, nil, err
		}
	}
	c := &cursor{step: s, saves: s.kept.Saves}
	save = func(ctx context.Context, to T) error {
		b, err := s.encode(store.CursorStep, to)
		if err != nil {
			return err
		}
		crash.At(ctx, name, crash.BeforeStep)
		if err := c.save(b); err != nil {
			return err
		}
		crash.At(ctx, name, crash.AfterCommit)
		return nil
	}
	return saved, save, nil
}

// cursor is a position under way.
type cursor struct {
	step *step

	mu    sync.Mutex
	saves int
}

func (c *cursor) save(to json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.step.at
	if err := at.live(); err != nil {
		return err
	}
	c.saves++
	began := time.Now()
	if _, err := c.step.commit(store.StepWrite{Kind: store.CursorStep, Save: c.saves, Value: to}); err != nil {
		return err
	}
	at.feed.run.events.emit(StepCommitted{Instance: c.step.instance(), Job: c.step.job(), Step: c.step.name, Took: time.Since(began)})
	return nil
}
