package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// inHandler runs f as the handler of one job.
func inHandler(t *testing.T, f func(ctx context.Context)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		called := false
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error { f(ctx); called = true; return nil })
		r.start()
		r.enqueue("x", nil)
		settle(time.Second)
		if !called {
			t.Error("the handler did not come to its end")
		}
		r.stopWell()
	})
}

func TestAHandlersContextHasTheValuesOfRunsContextButNotItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var value any
		var before, after error
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			value, before = ctx.Value(rigKey{}), ctx.Err()
			time.Sleep(2 * time.Second) // Run's context ends meanwhile
			after = ctx.Err()
			return nil
		})
		r.start()
		r.enqueue("x", nil)
		settle(time.Second)
		r.stopWell()
		if value != "a value of Run's context" || before != nil || after != nil {
			t.Errorf("value %v, errors %v and %v", value, before, after)
		}
	})
}

func TestJobFromTellsOfTheAttempt(t *testing.T) {
	inHandler(t, func(ctx context.Context) {
		child, cancel := context.WithCancel(context.WithValue(ctx, rigKey{}, 1))
		defer cancel()
		j, ok := worker.JobFrom(child)
		if !ok || j.Instance != "x" || j.State != store.Doing || j.Attempt != 1 || string(j.Payload) != "null" || j.StartedAt.IsZero() {
			t.Errorf("job %+v, %v", j, ok)
		}
	})
}

func TestOutsideOfAHandlerThereIsNoJob(t *testing.T) {
	if _, ok := worker.JobFrom(t.Context()); ok {
		t.Error("there is a job")
	}
	if worker.Logger(t.Context()) == nil {
		t.Error("there is no logger")
	}
	if err := worker.Progress(t.Context(), 1); err != worker.ErrNoJob {
		t.Errorf("Progress returned %v, want ErrNoJob", err)
	}
}

func TestTheLoggerNamesTheJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			worker.Logger(ctx).Info("hello")
			worker.Logger(ctx).Info("again")
			return nil
		})
		r.start()
		id := r.enqueue("x", nil)
		settle(time.Second)
		r.stopWell()
		if r.logs.count("instance=x job="+id.String()+" attempt=1") != 2 {
			t.Errorf("the log is\n%s", r.logs)
		}
	})
}

func TestProgressThatCantBeKeptIsRefused(t *testing.T) {
	inHandler(t, func(ctx context.Context) {
		if err := worker.Progress(ctx, make(chan int)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a channel: %v, want ErrInvalid", err)
		}
		if err := worker.Progress(ctx, strings.Repeat("x", store.MaxProgress)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("too much: %v, want ErrInvalid", err)
		}
		if err := worker.Progress(ctx, 1); err != nil {
			t.Error(err)
		}
	})
}

func TestContextsMadeFromAHandlersBehaveAsUsual(t *testing.T) {
	inHandler(t, func(ctx context.Context) {
		child, cancel := context.WithTimeoutCause(ctx, time.Millisecond, errBoom)
		defer cancel()
		<-child.Done()
		if context.Cause(child) != errBoom || ctx.Err() != nil || context.Cause(ctx) != nil {
			t.Errorf("causes %v and %v", context.Cause(child), context.Cause(ctx))
		}
		if d, ok := child.Deadline(); !ok || time.Until(d) > 0 {
			t.Errorf("deadline %v, %v", d, ok)
		}
		ran := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { close(ran) })
		if !stop() {
			t.Error("the context has ended")
		}
	})
}

func TestAContextThatOutlivesItsAttemptHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var used, unused context.Context
		worker.Handle(r.sup, "used", func(ctx context.Context, _ none) error { used = ctx; return ctx.Err() })
		worker.Handle(r.sup, "unused", func(ctx context.Context, _ none) error { unused = ctx; return nil })
		r.start()
		r.enqueue("used", nil)
		r.enqueue("unused", nil)
		synctest.Wait()
		for _, ctx := range []context.Context{used, unused} {
			if ctx.Err() != context.Canceled || context.Cause(ctx) != context.Canceled {
				t.Errorf("error %v, cause %v; want context.Canceled", ctx.Err(), context.Cause(ctx))
			}
			if err := worker.Progress(ctx, 1); err != worker.ErrNoJob {
				t.Errorf("progress: %v, want ErrNoJob", err)
			}
		}
		r.stopWell()
	})
}
