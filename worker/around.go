package worker

import (
	"context"
	"runtime/debug"

	"github.com/stint-go/stint/store"
)

// AroundStep is called around a step: see [AroundSteps]. It is to call run, with ctx or one made from it; the step's error is that of
// run, whatever it does: a *PanicError if it recovers from a panic of run's.
type AroundStep func(ctx context.Context, s store.Step, run func(context.Context) error)

// AroundSteps has f called around each [Step] and [Do] of the attempt that is run, until its result is kept, and around each of which what is
// kept is returned instead, children included. s tells them apart: of a step that is run State is empty. It is for middleware, before the handler
// that it wraps is called; of several, that of the outermost stands outside. f is called on the handler's goroutines. ErrNoJob where ctx
// is not that of a running handler.
func AroundSteps(ctx context.Context, f AroundStep) error {
	at, err := attemptOf(ctx)
	if err != nil {
		return err
	}
	if f == nil {
		return invalid("what is to be called around steps is nil")
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.phase != running {
		return ErrNoJob
	}
	at.arounds = append(at.arounds, f)
	return nil
}

// StepFrom returns the name of the step whose function, or hook, was given ctx. What a hook of a [Client] sees is no child, and so has no step,
// wherever the client was called.
func StepFrom(ctx context.Context) (name string, ok bool) {
	if ctx.Value(noChildKey{}) != nil {
		return "", false
	}
	name, ok = ctx.Value(stepKey{}).(string)
	return name, ok
}

// noChildKey is under what the context of a client's hooks has a value.
type noChildKey struct{}

// around calls run within all that is to be called around the step.
func (s *step) around(ctx context.Context, seen store.Step, run func(context.Context) error) (err error) {
	s.at.mu.Lock()
	all := s.at.arounds
	s.at.mu.Unlock()
	if len(all) == 0 {
		return run(ctx)
	}
	called := false
	inner := func(ctx context.Context) error {
		if !called {
			called, err = true, ErrGoexit // unless run comes back
			defer func() {
				if v := recover(); v != nil {
					err = &PanicError{Value: v, Stack: debug.Stack()}
					panic(v)
				}
			}()
			err = run(ctx)
		}
		return err
	}
	call := inner
	for i := len(all) - 1; i >= 0; i-- {
		f, next := all[i], call
		call = func(ctx context.Context) error { f(ctx, seen, next); return err }
	}
	_ = call(ctx)
	return inner(ctx) // in case that one of them has not gone on
}
