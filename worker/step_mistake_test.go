package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// broken runs a handler once and returns what its job says, which must be dead after one attempt.
func broken(t *testing.T, handler func(ctx context.Context) error, opts ...worker.HandleOption) (lastError string) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error { return handler(ctx) }, opts...)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		j := r.job(id)
		if j.State != store.Dead || j.Attempt != 1 {
			t.Errorf("the job is %s after %d attempts (%s), want dead after one", j.State, j.Attempt, j.LastError)
		}
		lastError = j.LastError
		r.stopWell()
	})
	return lastError
}

func TestMistakesWithStepsAreTypedAndEndTheJob(t *testing.T) {
	one := func(context.Context) (int, error) { return 1, nil }
	step := func(ctx context.Context, name string) error { _, err := worker.Step(ctx, name, one); return err }
	for what, c := range map[string]struct {
		is  error
		run func(ctx context.Context) error
	}{
		"a name used twice": {worker.ErrStepTwice, func(ctx context.Context) error {
			return errors.Join(step(ctx, "a"), step(ctx, "a"))
		}},
		"a nested step": {worker.ErrNestedStep, func(ctx context.Context) error {
			return worker.Do(ctx, "outer", func(ctx context.Context) error { return step(ctx, "inner") })
		}},
		"a nested sleep": {worker.ErrNestedStep, func(ctx context.Context) error {
			return worker.Do(ctx, "outer", func(ctx context.Context) error { return worker.Sleep(ctx, "inner", time.Hour) })
		}},
		"a name that is none": {store.ErrInvalid, func(ctx context.Context) error { return step(ctx, "a\nb") }},
		"an empty name":       {store.ErrInvalid, func(ctx context.Context) error { return step(ctx, "") }},
		"no function":         {store.ErrInvalid, func(ctx context.Context) error { return worker.Do(ctx, "a", nil) }},
		"a bad option":        {store.ErrInvalid, func(ctx context.Context) error { return worker.Do(ctx, "a", noEffect, worker.Timeout(-1)) }},
		"a negative sleep":    {store.ErrInvalid, func(ctx context.Context) error { return worker.Sleep(ctx, "a", -1) }},
		"an instance's name that is none": {store.ErrInvalid, func(ctx context.Context) error {
			_, err := worker.Async[int](ctx, "a", "no such name!", 1)
			return err
		}},
		"a child with an id": {store.ErrInvalid, func(ctx context.Context) error {
			_, err := worker.Async[int](ctx, "a", "y", 1, worker.ID(theID))
			return err
		}},
		"a unique child": {store.ErrInvalid, func(ctx context.Context) error {
			_, err := worker.Async[int](ctx, "a", "y", 1, worker.Unique("k", worker.UntilDone()))
			return err
		}},
		"a result that is no JSON": {store.ErrInvalid, func(ctx context.Context) error {
			_, err := worker.Step(ctx, "a", func(context.Context) (func(), error) { return func() {}, nil })
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			var got error
			broken(t, func(ctx context.Context) error { got = c.run(ctx); return got })
			var se *worker.StepError
			if !errors.Is(got, c.is) || !errors.As(got, &se) {
				t.Errorf("it got %v, want a *StepError of %v", got, c.is)
			}
		})
	}
	if err := step(t.Context(), "a"); !errors.Is(err, worker.ErrNoJob) {
		t.Errorf("outside of a handler: %v", err)
	}
}

func noEffect(context.Context) error { return nil }

func TestLimitsOfStepsAreTyped(t *testing.T) {
	var got error
	many := func(ctx context.Context) error {
		for i := range 4 {
			if got = worker.Do(ctx, fmt.Sprint(i), noEffect); got != nil {
				return got
			}
		}
		return nil
	}
	big := func(n int) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, got = worker.Step(ctx, "big", func(context.Context) (string, error) { return strings.Repeat("x", n), nil })
			return got
		}
	}
	for what, c := range map[string]func() string{
		"steps":             func() string { return broken(t, many, worker.StepLimits(3, 1000)) },
		"bytes of steps":    func() string { return broken(t, big(2000), worker.StepLimits(3, 1000)) },
		"bytes of a result": func() string { return broken(t, big(store.MaxPayload)) },
	} {
		c()
		var le *store.StepLimitError
		if !errors.As(got, &le) || le.What != what || le.Got <= le.Max {
			t.Errorf("too many %s: %v", what, got)
		}
	}
}

func TestAResultOfAnotherTypeIsATypedErrorOrRunAgain(t *testing.T) {
	for _, recompute := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, worker.Config{})
			runs := 0
			var got error
			worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
				job, _ := worker.JobFrom(ctx)
				var opts []worker.StepOption
				if recompute {
					opts = append(opts, worker.Recompute())
				}
				if job.Attempt == 1 { // as the program was before a deployment
					_, err := worker.Step(ctx, "price", func(context.Context) (string, error) { runs++; return "ten", nil })
					return errors.Join(err, errors.New("once more"))
				}
				var n int
				n, got = worker.Step(ctx, "price", func(context.Context) (int, error) { runs++; return 10, nil }, opts...)
				if got == nil && n != 10 {
					t.Errorf("it got %d", n)
				}
				return got
			}, at1s)
			id := r.enqueue("x", none{})
			r.start()
			settle(time.Minute)
			if recompute {
				r.wantState(id, store.Done, 2, "once more")
				s, err := r.st.Step(t.Context(), id, "price")
				if err != nil || string(s.Result) != "10" || runs != 2 {
					t.Errorf("it keeps %s, %v, after %d runs", s.Result, err, runs)
				}
			} else {
				r.wantState(id, store.Dead, 2, `step "price": what is kept of the step does not fit`)
				if !errors.Is(got, worker.ErrStepChanged) || runs != 1 {
					t.Errorf("it got %v after %d runs", got, runs)
				}
			}
			r.stopWell()
		})
	}
}
