package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestTheStepOfAWorkerThatLostItsJobIsDroppedAndItHearsOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var cause, got error
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			job, _ := worker.JobFrom(ctx)
			got = worker.Do(ctx, "charge", func(context.Context) error {
				return r.st.Runtime().Client().Do(ctx, "hdel", "stint:{x}:workers", string(job.Worker[:])).Err() // as a reaper would
			})
			if got != nil {
				cause = context.Cause(ctx)
			}
			return got
		})
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Second)
		if !errors.Is(got, worker.ErrLeaseLost) || !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("it got %v, its context ended with %v", got, cause)
		}
		r.stopWell()
		if d := of[worker.StepDropped](r.events); len(d) != 1 || d[0].Step != "charge" || d[0].Job != id {
			t.Errorf("dropped: %v", d)
		}
		if page, err := r.st.Steps(t.Context(), id, ""); err != nil || len(page.Steps) != 0 {
			t.Errorf("it keeps %v, %v", page.Steps, err)
		}
	})
}

func TestAStepIsKeptThroughLostRepliesAndAShortOutage(t *testing.T) {
	for what, trouble := range map[string]func(f *redistest.Fault) <-chan struct{}{
		"the reply is lost": func(f *redistest.Fault) <-chan struct{} {
			return f.LoseReplyNth(1, redistest.Mentions(":step_result:"))
		},
		"the connection is cut": func(f *redistest.Fault) <-chan struct{} {
			return f.CutReplyNth(1, redistest.Mentions(":step_result:"))
		},
		"an outage": func(f *redistest.Fault) <-chan struct{} {
			f.Unplug()
			over := make(chan struct{})
			time.AfterFunc(3*time.Second, func() { f.Plug(); close(over) })
			return over
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				runs := 0
				var struck <-chan struct{}
				worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
					return worker.Do(ctx, "charge", func(context.Context) error {
						runs++
						struck = trouble(r.fault)
						return nil
					})
				})
				id := r.enqueue("x", none{})
				r.start()
				settle(time.Minute)
				r.wantState(id, store.Done, 1, "")
				if !closed(struck) || runs != 1 {
					t.Errorf("it ran %d times, of which there was trouble in %v", runs, closed(struck))
				}
				r.stopWell()
			})
		})
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sweeps is a hook that counts passes of the sweeper.
type sweeps struct{ n atomic.Int32 }

func (s *sweeps) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if slices.Contains(cmd.Args(), any((10 * time.Minute).Milliseconds())) {
		s.n.Add(1)
	}
	return next(ctx, cmd)
}

func TestOfStepsThatAreTooManyForAClaimTheSweeperHearsNothing(t *testing.T) {
	for _, children := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			const n = 10
			r, seen := newRig(t, worker.Config{}), &sweeps{}
			r.intercept(seen.intercept)
			worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
				for i := range 2 {
					if _, err := worker.Step(ctx, fmt.Sprint(i), func(context.Context) (string, error) { return strings.Repeat("x", 40_000), nil }); err != nil {
						return err
					}
				}
				if children {
					if _, err := worker.Async[none](ctx, "child", "y", none{}); err != nil {
						return err
					}
				}
				if job, _ := worker.JobFrom(ctx); job.Attempt < 2 {
					return errBoom
				}
				return nil
			}, at1s)
			r.start()
			for range n {
				r.enqueue("x", none{})
				settle(5 * time.Second)
			}
			if s := r.stats("x"); s.Done != n {
				t.Fatalf("%+v", s)
			}
			if got := seen.n.Load(); children != (got >= n) || !children && got != 0 {
				t.Errorf("%d jobs, children %v: %d sweeps", n, children, got)
			}
			r.stopWell()
		})
	}
}

func TestStepsThatAreTooManyForAClaimAreLoadedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		runs := 0
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			for i := range 100 {
				got, err := worker.Step(ctx, fmt.Sprint(i), func(context.Context) (string, error) {
					runs++
					return fmt.Sprint(i, strings.Repeat("x", 1000)), nil
				})
				if err != nil || !strings.HasPrefix(got, fmt.Sprint(i)) {
					return fmt.Errorf("step %d gave %.10s, %w", i, got, err)
				}
			}
			if job, _ := worker.JobFrom(ctx); job.Attempt < 3 {
				return errors.New("again")
			}
			return nil
		}, at1s)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 3, "again")
		if runs != 100 {
			t.Errorf("100 steps ran %d times", runs)
		}
		r.stopWell()
	})
}

func TestACursorGoesOnWhereItWasSaved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var rows []int
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			at, save, err := worker.Cursor[int](ctx, "rows")
			if err != nil {
				return err
			}
			job, _ := worker.JobFrom(ctx)
			for row := at; row < 10; row++ {
				rows = append(rows, row)
				if row == 4*job.Attempt-1 {
					return errors.New("crash")
				}
				if err := save(ctx, row+1); err != nil {
					return err
				}
			}
			return nil
		}, at1s)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 3, "crash")
		if want := []int{0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 8, 9}; !slices.Equal(rows, want) {
			t.Errorf("rows %v, want %v", rows, want)
		}
		r.stopWell()
	})
}

func TestASleepHoldsNoWorkerAndNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var slept time.Duration
		var calls, other int
		start := time.Now()
		var parked error
		worker.Handle(r.sup, "x", func(ctx context.Context, in string) error {
			if in == "other" {
				other++
				return nil
			}
			calls++
			if err := worker.Sleep(ctx, "cool-off", 10*time.Minute); err != nil {
				if !errors.Is(err, worker.ErrParked) || !errors.Is(context.Cause(ctx), worker.ErrParked) {
					t.Errorf("sleeping: %v, cause %v", err, context.Cause(ctx))
				}
				parked = worker.Do(ctx, "after", func(context.Context) error { t.Error("a step ran after the park"); return nil })
				return errors.New("taken for a failure")
			}
			slept = time.Since(start)
			return nil
		}, worker.Concurrency(1))
		id := r.enqueue("x", "sleeper")
		r.start()
		settle(time.Second)
		r.wantState(id, store.Parked, 0, "")
		r.enqueue("x", "other")
		settle(time.Second)
		if other != 1 {
			t.Error("the sleeping job holds the worker")
		}
		settle(11 * time.Minute)
		r.wantState(id, store.Done, 1, "")
		if calls != 2 || slept < 10*time.Minute || slept > 10*time.Minute+time.Second {
			t.Errorf("called %d times, slept %v", calls, slept)
		}
		if !errors.Is(parked, worker.ErrParked) {
			t.Errorf("a step after the park got %v", parked)
		}
		r.stopWell()
		if f := of[worker.JobFinished](r.events); f[0].Outcome != worker.Parked || f[0].State != store.Parked {
			t.Errorf("the first finish is %+v", f[0])
		}
	})
}

func TestErrParkedWithoutAWaitIsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(context.Context, none) error { return worker.ErrParked }, worker.Retry(retry.Limit(1, retry.Fixed(0))))
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Dead, 1, worker.ErrParked.Error())
		r.stopWell()
	})
}
