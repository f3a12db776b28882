package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// at1s retries after a second, again and again.
var at1s = worker.Retry(retry.Fixed(time.Second))

func TestACommittedStepIsNotRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var charged, attempts int
		worker.HandleResult(r.sup, "x", func(ctx context.Context, _ none) (string, error) {
			receipt, err := worker.Step(ctx, "charge", func(context.Context) (string, error) {
				charged++
				return fmt.Sprint("receipt ", charged), nil
			})
			if err != nil {
				return "", err
			}
			if attempts++; attempts < 3 {
				return "", errors.New("not yet")
			}
			return receipt, nil
		}, at1s)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		if j := r.job(id); charged != 1 || attempts != 3 || string(j.Result) != `"receipt 1"` {
			t.Errorf("charged %d times in %d attempts, result %s", charged, attempts, j.Result)
		}
		r.stopWell()
		if c, p := of[worker.StepCommitted](r.events), of[worker.StepReplayed](r.events); len(c) != 1 || len(p) != 2 || c[0].Step != "charge" || c[0].Job != id {
			t.Errorf("events: %v, %v", c, p)
		}
	})
}

func TestAnErrorOfAStepIsReturnedAndNotKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		tries, after := 0, 0
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			err := worker.Do(ctx, "flaky", func(context.Context) error {
				if tries++; tries < 4 {
					return errors.New("not yet")
				}
				return nil
			})
			if err != nil {
				return err
			}
			after++
			return nil
		}, at1s)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 4, "not yet")
		if tries != 4 || after != 1 {
			t.Errorf("%d tries, what comes after it ran %d times", tries, after)
		}
		r.stopWell()
	})
}

func TestAPermanentErrorOfAStepIsKeptUntilTheJobIsRequeued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		calls := 0
		var seen []error
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			err := worker.Do(ctx, "charge", func(context.Context) error {
				calls++
				return retry.Permanent(errors.New("card refused"))
			})
			if seen = append(seen, err); len(seen) == 1 {
				return errors.New("hidden")
			}
			return err
		}, at1s)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Dead, 2, `step "charge": the step has failed for good: card refused`)
		if calls != 1 || !errors.Is(seen[1], worker.ErrStepFailed) {
			t.Errorf("called %d times, then %v", calls, seen[1])
		}
		must(t, r.st.Requeue(t.Context(), id, store.Resume))
		settle(time.Minute)
		if calls != 2 {
			t.Errorf("after a requeue it was called %d times, want 2", calls)
		}
		r.stopWell()
	})
}

func TestAStepIsTriedAgainInPlaceAndEachTryIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var times []time.Duration
		start := time.Now()
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			return worker.Do(ctx, "slow", func(ctx context.Context) error {
				times = append(times, time.Since(start).Round(time.Second))
				if len(times) == 3 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}, worker.Timeout(10*time.Second), worker.Retry(retry.Limit(3, retry.Fixed(time.Millisecond))))
		})
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 1, "")
		if want := []time.Duration{0, 10 * time.Second, 20 * time.Second}; !slices.Equal(times, want) {
			t.Errorf("tried at %v, want %v", times, want)
		}
		r.stopWell()
	})
}

func TestAnIdempotencyKeyIsTheSameUntilTheStepIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		keys := map[string][]string{}
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			keys[""] = append(keys[""], worker.IdempotencyKey(ctx))
			for _, name := range []string{"a", "b"} {
				_ = worker.Do(ctx, name, func(ctx context.Context) error {
					keys[name] = append(keys[name], worker.IdempotencyKey(ctx))
					if name == "b" && len(keys[name]) >= 6 {
						return nil // so that there is something to requeue from
					}
					return errors.New("no")
				})
			}
			return errors.New("no")
		}, worker.Retry(retry.Limit(2, retry.Fixed(time.Second))))
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		for _, m := range []store.RequeueMode{store.Resume, store.Fresh, store.FromStep("b")} {
			must(t, r.st.Requeue(t.Context(), id, m))
			settle(time.Minute)
		}
		r.stopWell()
		for name, k := range keys {
			if len(k) < 7 || k[0] == "" || k[1] != k[0] || k[2] != k[0] || k[3] != k[0] || k[4] == k[0] || k[5] != k[4] {
				t.Errorf("of %q: %v, want one until it is requeued afresh, and then another", name, k)
			}
			if name != "a" && slices.Contains(k[:6], k[6]) {
				t.Errorf("of %q: %v, want another after a requeue from b on", name, k)
			}
			if name == "a" && k[0] == keys["b"][0] || name != "" && k[0] == keys[""][0] {
				t.Error("two steps have one key")
			}
		}
		if worker.IdempotencyKey(t.Context()) != "" {
			t.Error("there is a key outside of a handler")
		}
	})
}

func TestStepsMayRunConcurrently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var ran atomic.Int32
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			var wg sync.WaitGroup
			errs := make([]error, 50)
			for i := range errs {
				wg.Go(func() {
					errs[i] = worker.Do(ctx, fmt.Sprint("part ", i), func(context.Context) error { ran.Add(1); return nil })
				})
			}
			wg.Wait()
			job, _ := worker.JobFrom(ctx)
			if job.Attempt < 2 {
				errs = append(errs, errors.New("again"))
			}
			return errors.Join(errs...)
		}, at1s)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 2, "again")
		if n := ran.Load(); n != 50 {
			t.Errorf("50 steps ran %d times", n)
		}
		r.stopWell()
	})
}

func TestAPermanentErrorWithoutTextIsAFailureLikeAnyOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		calls := 0
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			return worker.Do(ctx, "a", func(context.Context) error {
				if calls++; calls == 1 {
					return retry.Permanent(errors.New(""))
				}
				return nil
			})
		})
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Second)
		if s, err := r.st.Step(t.Context(), id, "a"); err != nil || s.State != store.StepFailed {
			t.Errorf("%+v, %v", s, err)
		}
		must(t, r.st.Requeue(t.Context(), id, store.Resume))
		settle(time.Second)
		if r.job(id).State != store.Done || calls != 2 {
			t.Errorf("requeued it is %s, and was called %d times in all", r.job(id).State, calls)
		}
		r.stopWell()
	})
}
