package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestWhatIsAroundStepsTellsThoseThatRunFromThoseThatAreReplayed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []string
		wrap := func(mark string) worker.Middleware {
			return func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, job store.Job) error {
					err := worker.AroundSteps(ctx, func(ctx context.Context, s store.Step, run func(context.Context) error) {
						err := run(context.WithValue(ctx, rigKey{}, fmt.Sprint(ctx.Value(rigKey{}), mark)))
						seen = append(seen, fmt.Sprint(mark, " ", s.Name, " ", s.Kind, " ", s.State, " ", err, " ", s.Job == job.ID))
					})
					if err != nil {
						t.Error(err)
					}
					return next(ctx, job)
				}
			}
		}
		r := newRig(t, worker.Config{Middleware: []worker.Middleware{wrap("outer"), wrap("inner")}})
		var within []string
		worker.Handle(r.sup, "child", returns(nil))
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			for _, name := range []string{"a", "b"} {
				err := worker.Do(ctx, name, func(ctx context.Context) error {
					in, _ := worker.StepFrom(ctx)
					within = append(within, fmt.Sprint(in, " ", ctx.Value(rigKey{})))
					if name == "b" && len(within) == 2 {
						return errRefused
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			_, err := runChild[none](ctx, "kid", "child", none{})
			return err
		}, at1s)
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 2, "not allowed")
		var inner, outer []string
		for _, s := range seen {
			if rest, ok := strings.CutPrefix(s, "inner "); ok {
				inner = append(inner, rest)
			} else if rest, ok := strings.CutPrefix(s, "outer "); ok {
				outer = append(outer, rest)
			}
		}
		want := []string{
			"a step  <nil> true", "b step  not allowed true",
			"a step completed <nil> true", "b step  <nil> true",
			"a step completed <nil> true", "b step completed <nil> true", "kid async completed <nil> true",
		}
		if !slices.Equal(inner, want) || !slices.Equal(outer, want) {
			t.Errorf("seen were\n%q\n%q, want\n%q", inner, outer, want)
		}
		if want := []string{"a a value of Run's contextouterinner", "b a value of Run's contextouterinner", "b a value of Run's contextouterinner"}; !slices.Equal(within, want) {
			t.Errorf("the functions were given %q, want %q", within, want)
		}
		r.stopWell()
		replays := of[worker.StepReplayed](r.events)
		if len(replays) != 4 || replays[3].Step != "kid" {
			t.Errorf("%d steps were replayed, want 4, a child without a result among them: %v", len(replays), replays)
		}
	})
}

func TestAStepRunsOnceWhateverIsAroundIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		arounds := map[string]worker.AroundStep{
			"does not go on": func(context.Context, store.Step, func(context.Context) error) {},
			"goes on twice": func(ctx context.Context, _ store.Step, run func(context.Context) error) {
				_ = run(ctx)
				_ = run(ctx)
			},
			"panics": func(context.Context, store.Step, func(context.Context) error) { panic("oops") },
		}
		r := newRig(t, worker.Config{Middleware: []worker.Middleware{func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, job store.Job) error {
				if err := worker.AroundSteps(ctx, nil); !errors.Is(err, store.ErrInvalid) {
					t.Errorf("nil: %v", err)
				}
				if err := worker.AroundSteps(ctx, arounds[job.Metadata["how"]]); err != nil {
					t.Error(err)
				}
				return next(ctx, job)
			}
		}}})
		ran := map[string]int{}
		worker.Handle(r.sup, "order", func(ctx context.Context, how string) error {
			_, err := worker.Step(ctx, "a", func(context.Context) (int, error) { ran[how]++; return 1, errRefused })
			if !errors.Is(err, errRefused) {
				t.Errorf("%s: the step returned %v", how, err)
			}
			return nil
		}, worker.Concurrency(1))
		for how := range arounds {
			r.enqueue("order", how, func(j *store.NewJob) { j.MaxAttempts, j.Metadata = 1, map[string]string{"how": how} })
		}
		r.start()
		settle(time.Minute)
		if ran["does not go on"] != 1 || ran["goes on twice"] != 1 || ran["panics"] != 0 {
			t.Errorf("the step ran %v", ran)
		}
		r.stopWell()
		if err := worker.AroundSteps(t.Context(), arounds["panics"]); !errors.Is(err, worker.ErrNoJob) {
			t.Errorf("outside of a handler: %v", err)
		}
	})
}

func TestAStepThatPanicsHasFailedWhoeverRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Middleware: []worker.Middleware{func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, job store.Job) error {
				err := worker.AroundSteps(ctx, func(ctx context.Context, _ store.Step, run func(context.Context) error) {
					defer func() {
						if v := recover(); v != "oops" {
							t.Errorf("what is around recovers %v", v)
						}
					}()
					_ = run(ctx)
				})
				if err != nil {
					t.Error(err)
				}
				return next(ctx, job)
			}
		}}})
		worker.HandleResult(r.sup, "order", func(ctx context.Context, _ none) (int, error) {
			return worker.Step(ctx, "a", func(context.Context) (int, error) { panic("oops") })
		}, worker.Retry(limitOne))
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Second)
		r.wantState(id, store.Dead, 1, "panic: oops")
		if j := r.job(id); !strings.Contains(j.LastError, "TestAStepThatPanicsHasFailedWhoeverRecovers") {
			t.Errorf("its stack does not say where that was: %s", j.LastError)
		}
		r.stopWell()
	})
}
