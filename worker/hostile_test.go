package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
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
		worker.Handle(r.sup, "good", func(context.Context, none) error { return nil })
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
		if err := r.stopped(); err != nil {
			t.Errorf("Run returned %v", err)
		}
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
				worker.Handle(r.sup, "mail", func(context.Context, none) error { return nil })
				r.start()
				time.Sleep(10 * time.Second)
				id := r.enqueue("mail", none{})
				h.left.Store(6)
				time.Sleep(time.Minute)
				if j := r.job(id); j.State != store.Done {
					t.Errorf("it is %s, want done", j.State)
				}
				if err := r.stopped(); err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

func TestTheFieldThatDoesNotDecodeIsNamedForTypesThatDecodeThemselves(t *testing.T) {
	type payload struct {
		Order struct {
			ID uuid.UUID `json:"id"`
		} `json:"order"`
		Due time.Time
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "mail", func(context.Context, payload) error { return nil })
		r.start()
		for text, field := range map[string]string{`{"order":{"id":"x"}}`: "order.id", `{"Due":"soon"}`: "Due"} {
			id := r.enqueue("mail", json.RawMessage(text))
			time.Sleep(100 * time.Millisecond)
			if j := r.job(id); j.State != store.Dead || !strings.Contains(j.LastError, field) {
				t.Errorf("%s is %s with %q, which should name %s", text, j.State, j.LastError, field)
			}
		}
	})
}

func TestNothingOfWhatDoesNotDecodeIsInAJobsLastError(t *testing.T) {
	type in struct {
		Card  int
		When  time.Time
		Order uuid.UUID
		Parts []struct{ Price uint8 }
		By    map[string]bool
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(context.Context, in) error { return nil })
		worker.HandleResult(r.sup, "kid", func(context.Context, none) (json.RawMessage, error) { return json.RawMessage(`{"Card":4242.5}`), nil })
		worker.Handle(r.sup, "step", func(ctx context.Context, _ none) error {
			if j, _ := worker.JobFrom(ctx); j.Attempt == 1 {
				_, err := worker.Step(ctx, "a", func(context.Context) (any, error) { return map[string]any{"When": "4242"}, nil })
				return errors.Join(err, errBoom)
			}
			_, err := worker.Step(ctx, "a", func(context.Context) (in, error) { return in{}, nil })
			return err
		}, at1s)
		worker.Handle(r.sup, "parent", func(ctx context.Context, _ none) error {
			f, err := worker.Async[in](ctx, "kid", "kid", none{})
			if err != nil {
				return err
			}
			_, err = f.Wait(ctx)
			return err
		})
		r.start()
		wants := map[uuid.UUID]string{
			r.enqueue("step", none{}):   `step "a": what is kept of the step does not fit: its result: field "When" is no time.Time`,
			r.enqueue("parent", none{}): `step "kid": what is kept of the step does not fit: the child's result: field "Card" is no int`,
		}
		for text, want := range map[string]string{
			`{"Card":4242.5}`:            `field "Card" is no int`,
			`{"When":"4242"}`:            `field "When" is no time.Time`,
			`{"Order":"4242"}`:           `field "Order" is no uuid.UUID`,
			`{"Parts":[{"Price":4242}]}`: `field "Parts.Price" is no uint8`,
			`{"By":{"4242":"4242"}}`:     `field "By" is no bool`,
			`"4242"`:                     `it is no worker_test.in`,
			`[4242]`:                     `it is no worker_test.in`,
		} {
			wants[r.enqueue("x", json.RawMessage(text))] = "decoding the payload: " + want
		}
		settle(time.Minute)
		for id, want := range wants {
			if j := r.job(id); j.State != store.Dead || j.LastError != want {
				t.Errorf("it is %s with %q, want dead and %q", j.State, j.LastError, want)
			}
		}
		r.stopWell()
	})
}

// pair runs a second supervisor beside the rig's, each with one worker that notes when it is called.
func pair(t *testing.T, r *rig) (ran chan time.Time, client *worker.Client) {
	ran = make(chan time.Time, 10)
	register := func(s *worker.Supervisor) {
		worker.Handle(s, "mail", func(_ context.Context, long bool) error {
			ran <- time.Now()
			if long {
				time.Sleep(5 * time.Second)
			}
			return nil
		}, worker.Concurrency(1))
	}
	register(r.sup)
	other, err := worker.New(r.st, worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	register(other)
	r.start()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- other.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	time.Sleep(100 * time.Millisecond)
	return ran, worker.NewClient(r.st, worker.ClientConfig{})
}

func TestAScheduledJobIsOnTimeThoughWhoKnewOfItIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		ran, client := pair(t, r)
		start := time.Now()
		for i, delay := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
			if _, err := client.Enqueue(t.Context(), "mail", i == 0, worker.Delay(delay)); err != nil {
				t.Fatal(err)
			}
		}
		<-ran
		if late := (<-ran).Sub(start) - 600*time.Millisecond; late > 10*time.Millisecond {
			t.Errorf("it started %v after its time", late)
		}
		time.Sleep(time.Minute)
		r.stopWell()
	})
}

func TestAScheduledJobIsOnTimeThoughWhoKnewOfItIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		ran, client := pair(t, r)
		start := time.Now()
		if _, err := client.Enqueue(t.Context(), "mail", false, worker.Delay(600*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		r.stopWell()
		if late := (<-ran).Sub(start) - 600*time.Millisecond; late > 10*time.Millisecond {
			t.Errorf("it started %v after its time", late)
		}
	})
}
