package worker_test

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// nilError is what a handler returns that declares a pointer to its own type of error and never sets it.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestAnErrorWhoseMethodsPanicFailsTheAttemptAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "bad", func(context.Context, none) error {
			var e *nilError
			return e
		})
		worker.Handle(r.sup, "good", returns(nil))
		r.start()
		bad, good := r.enqueue("bad", none{}), r.enqueue("good", none{})
		time.Sleep(100 * time.Millisecond)
		if j := r.job(bad); j.State != store.Scheduled || !strings.Contains(j.LastError, "panic") {
			t.Errorf("it is %s with %q; want it to be tried again, for a panic", j.State, j.LastError)
		}
		if j := r.job(good); j.State != store.Done {
			t.Errorf("the other is %s", j.State)
		}
	})
}

// odd is an error whose methods do as they like.
type odd struct{ text, as func() }

func (e odd) Error() string { e.text(); return "odd" }
func (e odd) As(any) bool   { e.as(); return false }

func TestAnErrorWhoseMethodsExitOrPanicCostsNoWorker(t *testing.T) {
	well := func() {}
	for name, e := range map[string]error{
		"Error exits": odd{runtime.Goexit, well}, "As exits": odd{well, runtime.Goexit}, "As panics": odd{well, func() { panic("oops") }},
		"As panics with one that exits": odd{well, func() { panic(odd{runtime.Goexit, runtime.Goexit}) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				worker.Handle(r.sup, "x", func(_ context.Context, good bool) error {
					if good {
						return nil
					}
					return e
				}, worker.Concurrency(1), worker.Retry(limitOne))
				r.start()
				bad := r.enqueue("x", false)
				settle(time.Second)
				good := r.enqueue("x", true)
				settle(time.Second)
				if j := r.job(bad); j.State != store.Dead || j.LastError == "" {
					t.Errorf("it is %s with %q", j.State, j.LastError)
				}
				r.wantState(good, store.Done, 1, "")
				r.stopWell()
			})
		})
	}
}

// rude is a logger's handler that does something else. Lines of errors come as far as Handle.
type rude func()

func (r rude) Enabled(_ context.Context, level slog.Level) bool {
	if level < slog.LevelError {
		r()
	}
	return true
}
func (r rude) Handle(context.Context, slog.Record) error { r(); return nil }
func (r rude) WithAttrs([]slog.Attr) slog.Handler        { r(); return r }
func (r rude) WithGroup(string) slog.Handler             { r(); return r }

func TestALoggerThatPanicsOrExitsEndsNothing(t *testing.T) {
	for name, act := range map[string]rude{"panics": func() { panic("no room") }, "exits": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{Logger: slog.New(act), OnEvent: func(worker.Event) { act() }})
				worker.Handle(r.sup, "x", func(ctx context.Context, good bool) error {
					if good {
						worker.Logger(ctx).WithGroup("a").Info("well")
						return nil
					}
					panic("the handler")
				}, worker.Concurrency(1), worker.Retry(limitOne))
				r.start()
				bad := r.enqueue("x", false)
				settle(time.Second)
				r.fault.Unplug() // which is said by a line
				settle(10 * time.Second)
				r.fault.Plug()
				settle(10 * time.Second)
				c := worker.NewClient(r.st, worker.ClientConfig{Logger: slog.New(act), OnEvent: func(worker.Event) { panic("another") }})
				good := r.accepts(c, "x", true)
				settle(time.Second)
				r.wantState(bad, store.Dead, 1, "panic: the handler")
				r.wantState(good, store.Done, 1, "")
				r.stopWell()
			})
		})
	}
}

func TestADrainTimeoutMayBeForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{DrainTimeout: math.MaxInt64})
		worker.Handle(r.sup, "long", func(context.Context, none) error { time.Sleep(time.Hour); return nil })
		r.start()
		id := r.enqueue("long", none{})
		time.Sleep(time.Second)
		r.stopWell()
		if j := r.job(id); j.State != store.Done {
			t.Errorf("it is %s, want done", j.State)
		}
	})
}

// hostile is a hook of the Redis client that misbehaves once for each script, early or late.
type hostile struct {
	left atomic.Int32
	act  func()
}

func (h *hostile) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if strings.HasPrefix(cmd.Name(), "eval") && h.left.Add(-1) >= 0 {
		h.act()
	}
	return next(ctx, cmd)
}

func TestAHookOfTheRedisClientThatPanicsOrExitsEndsNothing(t *testing.T) {
	for name, act := range map[string]func(){"panics": func() { panic("hook") }, "exits": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				h := &hostile{act: act}
				r.intercept(h.intercept)
				worker.Handle(r.sup, "mail", returns(nil))
				r.start()
				time.Sleep(10 * time.Second)
				id := r.enqueue("mail", none{})
				h.left.Store(6)
				time.Sleep(time.Minute)
				if j := r.job(id); j.State != store.Done {
					t.Errorf("it is %s, want done", j.State)
				}
				r.stopWell()
			})
		})
	}
}
