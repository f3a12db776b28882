package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/crash"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
)

// AttemptOption is an option of handlers and of steps alike.
type AttemptOption interface {
	HandleOption
	StepOption
}

// StepOption is an option of [Step] and [Do].
type StepOption interface{ applyStep(*stepOptions) error }

type stepOption func(*stepOptions) error

func (o stepOption) applyStep(s *stepOptions) error { return o(s) }

type stepOptions struct {
	policy    retry.Policy   // nil: once
	observer  retry.Observer // the policy, if it wants to hear of successes
	timeout   time.Duration  // 0: none
	recompute bool
}

// Recompute makes a step run again whose kept result is no longer of its type, as after a deployment that changed it; the new
// result takes the place of the old one. Without it that is a [StepError] with [ErrStepChanged].
func Recompute() StepOption {
	return stepOption(func(s *stepOptions) error { s.recompute = true; return nil })
}

// attemptOption is a Retry or a Timeout, which mean the same for a handler and for a step.
type attemptOption struct {
	handler func(*registration) error
	step    func(*stepOptions) error
}

func (o attemptOption) apply(r *registration) error    { return o.handler(r) }
func (o attemptOption) applyStep(s *stepOptions) error { return o.step(s) }

// Step runs fn as a named part of the job, once: its result is kept, as JSON, before Step returns, and whenever the handler comes to
// this name again, in any later attempt, that is returned and fn is not called. A crash right after loses nothing. A crash between fn's
// effect and the keeping of its result does: fn is then called again. Give the effect the [IdempotencyKey] of its context.
//
// The name stands for the step in all attempts, whatever the order: 1 to 256 bytes, once in an attempt. In a loop it takes a key, as in
// "mail/" + address.
//
// An error of fn is returned and not kept, unless it is permanent (see retry.Permanent): then it is returned by all later attempts as well,
// until the job is requeued. With Retry the step is tried again in place, while it holds its worker; Timeout bounds each try. What can't be
// kept is a permanent *StepError: a result that is no JSON or has more than 1 MiB, or one step too many.
//
// Step returns [ErrLeaseLost] if the job has become another worker's: then the result is dropped. It returns [ErrParked] once the attempt is
// parked. It is safe for concurrent use.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error), opts ...StepOption) (T, error) {
	var out, zero T
	s, err := enter(ctx, name)
	if err != nil {
		return zero, err
	}
	o, err := s.options(fn == nil, opts)
	if err != nil {
		return zero, err
	}
	if s.found {
		err := s.around(ctx, s.kept, func(context.Context) error { return s.replay(store.LocalStep, &out) })
		if err == nil || !o.recompute || !errors.Is(err, ErrStepChanged) {
			return out, err
		}
		out = zero
	}
	seen := store.Step{Job: s.job(), Name: name, Kind: store.LocalStep}
	err = s.around(ctx, seen, func(ctx context.Context) (err error) { out, err = perform(ctx, &s, o, fn); return err })
	return out, err
}

// perform runs a step and keeps its result.
func perform[T any](ctx context.Context, s *step, o stepOptions, fn func(context.Context) (T, error)) (T, error) {
	var out, zero T
	crash.At(ctx, s.name, crash.BeforeStep)
	began := time.Now()
	if err := s.run(ctx, o, func(ctx context.Context) (err error) { out, err = fn(ctx); return err }); err != nil {
		if retry.IsPermanent(err) {
			err = errors.Join(err, s.keepFailure(err))
		}
		return zero, err
	}
	crash.At(ctx, s.name, crash.AfterEffect)
	b, err := s.encode(store.LocalStep, out)
	if err != nil {
		return zero, err
	}
	kept, err := s.commit(store.StepWrite{Kind: store.LocalStep, Value: b, Replace: s.replaces()})
	if err != nil {
		return zero, err
	}
	crash.At(ctx, s.name, crash.AfterCommit)
	if string(kept.Result) != string(b) { // another attempt of this worker's was first
		s.kept = kept
		var first T
		err := s.replay(store.LocalStep, &first)
		return first, err
	}
	if ev := s.at.feed.run.events; ev.wanted() {
		ev.emit(StepCommitted{Instance: s.instance(), Job: s.job(), Step: s.name, Took: time.Since(began)})
	}
	return out, nil
}

// Do is [Step] without a result.
func Do(ctx context.Context, name string, fn func(context.Context) error, opts ...StepOption) error {
	if fn == nil {
		_, err := Step[struct{}](ctx, name, nil, opts...)
		return err
	}
	_, err := Step(ctx, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) }, opts...)
	return err
}

// IdempotencyKey returns what names the work that is being done, to be handed to those who do a thing once for each key: inside a step
// the key of that step, in a handler that of its job, "" elsewhere. It is the same in every attempt, and another after a requeue that drops the
// step (store.Fresh, store.FromStep). A job that is enqueued under the id of one that was removed has the same keys.
func IdempotencyKey(ctx context.Context) string {
	at, err := attemptOf(ctx)
	if err != nil {
		return ""
	}
	name, _ := ctx.Value(stepKey{}).(string)
	job := &at.lease.Job
	return uuid.NewSHA1(job.ID, []byte("key "+strconv.Itoa(at.lease.Steps.Epoch)+"\n"+name)).String()
}

// stepKey is under what the context of a step has its name.
type stepKey struct{}

// stepContext is what a step's function is given.
type stepContext struct {
	context.Context
	name string
}

func (c *stepContext) Value(key any) any {
	if _, ok := key.(stepKey); ok {
		return c.name
	}
	return c.Context.Value(key)
}

// step is a call of one of the functions for steps.
type step struct {
	at    *attempt
	name  string
	kept  store.Step
	found bool
}

// enter begins a step: it sees to it that it may be one, and finds out what is kept of it.
func enter(ctx context.Context, name string) (step, error) {
	at, err := attemptOf(ctx)
	if err != nil {
		return step{}, refuse(name, err)
	}
	if outer, nested := ctx.Value(stepKey{}).(string); nested {
		return step{}, refuse(name, fmt.Errorf("%w: in step %q", ErrNestedStep, outer))
	}
	if err := store.ValidateStep(name); err != nil {
		return step{}, refuse(name, err)
	}
	if err := at.live(); err != nil {
		return step{}, err
	}
	m := at.remember()
	if !m.use(name) {
		return step{}, refuse(name, ErrStepTwice)
	}
	kept, found, err := m.find(at, name)
	if err != nil {
		return step{}, err
	}
	return step{at, name, kept, found}, nil
}

// refuse makes a mistake in the program an error that ends the job: doing it again can't help.
func refuse(name string, err error) error { return retry.Permanent(&StepError{name, err}) }

func (s *step) job() uuid.UUID   { return s.at.lease.Job.ID }
func (s *step) instance() string { return s.at.lease.Job.Instance }

func (s *step) options(nothing bool, opts []StepOption) (stepOptions, error) {
	if nothing {
		return stepOptions{}, refuse(s.name, invalid("the function is nil"))
	}
	if len(opts) == 0 {
		return stepOptions{}, nil
	}
	var o stepOptions
	for _, opt := range opts {
		if opt == nil {
			return o, refuse(s.name, invalid("an option is nil"))
		}
		if err := opt.applyStep(&o); err != nil {
			return o, refuse(s.name, err)
		}
	}
	return o, nil
}

// replay returns what is kept. T of it must fit.
func (s *step) replay(kind store.StepKind, out any) error {
	if s.kept.Kind != kind {
		if s.kept.Kind == "" {
			return refuse(s.name, errors.New(s.kept.Error))
		}
		return refuse(s.name, fmt.Errorf("%w: it was of the kind %q", ErrStepChanged, s.kept.Kind))
	}
	if s.kept.State == store.StepFailed {
		return refuse(s.name, fmt.Errorf("%w: %s", ErrStepFailed, s.kept.Error))
	}
	kept, err := s.read()
	if err != nil {
		return err
	}
	if kept != nil {
		if err := decodeKept(kept, "its result", out); err != nil {
			return refuse(s.name, err)
		}
	}
	s.at.feed.run.events.emit(StepReplayed{Instance: s.instance(), Job: s.job(), Step: s.name})
	return nil
}

// replaces is the number of the record whose place a new one may take.
func (s *step) replaces() int {
	if s.found {
		return s.kept.Number
	}
	return 0
}

// encode makes what is kept of a result.
func (s *step) encode(kind store.StepKind, v any) (json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, refuse(s.name, fmt.Errorf("%w: encoding the result: %w", store.ErrInvalid, err))
	}
	if b, err = s.edited(kind, b); err != nil {
		return nil, err
	}
	if len(b) > store.MaxPayload {
		return nil, refuse(s.name, &store.StepLimitError{What: "bytes of a result", Max: store.MaxPayload, Got: len(b)})
	}
	return b, nil
}

// run calls the step's function, in place again if its policy says so.
func (s *step) run(ctx context.Context, o stepOptions, fn func(context.Context) error) error {
	ctx = &stepContext{ctx, s.name}
	for try := 1; ; try++ {
		err := s.try(ctx, o.timeout, fn)
		if err == nil {
			s.at.succeeded(o.observer, try)
			return nil
		}
		if o.policy == nil || retry.IsPermanent(err) || context.Cause(ctx) != nil {
			return err
		}
		if _, snoozed := SnoozeDelay(err); snoozed {
			return err
		}
		delay, again, broken := next(o.policy, try, err)
		if broken != nil {
			return errors.Join(err, broken)
		}
		if !again {
			return err
		}
		delay = spread(delay)
		if d, ok := retry.Delay(err); ok {
			delay = max(d, 0)
		}
		if !rest(ctx, delay) {
			return err
		}
	}
}

func (s *step) try(ctx context.Context, timeout time.Duration, fn func(context.Context) error) error {
	if timeout <= 0 {
		return fn(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	err := fn(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrTimeout) {
		return fmt.Errorf("step %q: %w after %v: %w", s.name, ErrTimeout, timeout, err)
	}
	return err
}

// keepFailure keeps an error that is permanent.
func (s *step) keepFailure(err error) error {
	text := "failed"
	_ = catch(func() error { text = cmp.Or(err.Error(), text); return nil })
	_, failed := s.commit(store.StepWrite{Kind: store.LocalStep, Error: text, Replace: s.replaces()})
	return failed
}
