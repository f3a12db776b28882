package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// once gives up at the first failure.
var once = worker.Retry(retry.Limit(1, retry.Fixed(0)))

// runChild runs an async step and waits for its child.
func runChild[T any](ctx context.Context, name, instance string, in any, opts ...worker.EnqueueOption) (T, error) {
	f, err := worker.Async[T](ctx, name, instance, in, opts...)
	if err != nil {
		return *new(T), err
	}
	return f.Wait(ctx)
}

// parentOf is a handler that has a child of an instance and waits for it.
func parentOf(instance string, in any, opts ...worker.EnqueueOption) func(context.Context, none) error {
	return func(ctx context.Context, _ none) error {
		_, err := runChild[none](ctx, "child", instance, in, opts...)
		return err
	}
}

// loseChildren is what a server does that loses the enqueues of an instance's scheduled children.
func (r *rig) loseChildren(instance string) {
	r.t.Helper()
	for _, key := range []string{"jobs", "scheduled", "parents"} {
		must(r.t, r.st.Runtime().Client().Del(context.Background(), "stint:{"+instance+"}:"+key).Err())
	}
}

func TestAnAsyncStepRunsAsAJobOfItsOwnAndItsParentHoldsNoWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		calls := 0
		var dispatched, ran uuid.UUID
		worker.HandleResult(r.sup, "order", func(ctx context.Context, n int) (int, error) {
			calls++
			f, err := worker.Async[int](ctx, "double", "double", n)
			if err != nil {
				return 0, err
			}
			dispatched = f.ID()
			got, err := f.Wait(ctx)
			return got + 1, err
		}, worker.Concurrency(1))
		worker.HandleResult(r.sup, "double", func(ctx context.Context, n int) (int, error) {
			job, _ := worker.JobFrom(ctx)
			ran = job.ID // it may start before Async has returned
			if job.Parent.Step != "double" || job.Parent.Instance != "order" {
				t.Errorf("the child is of %+v", job.Parent)
			}
			time.Sleep(time.Minute) // the child may start before its parent has parked
			if s := r.stats("order"); s.Parked != 1 || s.Doing != 0 {
				t.Errorf("meanwhile the parents are %+v", s)
			}
			return 2 * n, nil
		})
		id := r.enqueue("order", 20)
		r.start()
		settle(5 * time.Minute)
		if j := r.job(id); j.State != store.Done || string(j.Result) != "41" || j.Attempt != 1 || calls != 2 {
			t.Errorf("it is %s with %s after %d attempts and %d calls (%s)", j.State, j.Result, j.Attempt, calls, j.LastError)
		}
		r.stopWell()
		if d := of[worker.ChildDispatched](r.events); len(d) != 1 || d[0].Child != dispatched || d[0].To != "double" || ran != dispatched {
			t.Errorf("dispatched: %v; %s ran", d, ran)
		}
	})
}

func TestAnOutcomeIsThereAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		start := time.Now()
		var took time.Duration
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			_, err := runChild[none](ctx, "child", "child", none{})
			took = time.Since(start)
			return err
		})
		worker.Handle(r.sup, "child", returns(nil))
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 1, "")
		if took > 100*time.Millisecond {
			t.Errorf("a child that does nothing took %v", took)
		}
		r.stopWell()
	})
}

func TestAFailedChildIsATypedPermanentError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var got error
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			_, got = runChild[int](ctx, "render", "render", none{})
			return got
		})
		worker.Handle(r.sup, "render", func(context.Context, none) error { return errors.New("no ink") }, once)
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Dead, 1, `step "render"`)
		var ce *worker.ChildError
		if !errors.As(got, &ce) || ce.Fate != store.FateDead || ce.Reason != "no ink" || ce.Step != "render" || ce.Index != -1 || !retry.IsPermanent(got) {
			t.Errorf("it got %v", got)
		}
		r.stopWell()
	})
}

func TestAChainOfTwentyLevelsOnOneWorkerComesToItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.HandleResult(r.sup, "x", func(ctx context.Context, depth int) (int, error) {
			if depth == 0 {
				return 0, nil
			}
			n, err := runChild[int](ctx, "below", "x", depth-1)
			return n + 1, err
		}, worker.Concurrency(1))
		id := r.enqueue("x", 20)
		r.start()
		settle(time.Minute)
		if j := r.job(id); j.State != store.Done || string(j.Result) != "20" {
			t.Errorf("it is %s with %s (%s)", j.State, j.Result, j.LastError)
		}
		r.stopWell()
	})
}

func TestWaitingInALoopAndTakingAParkForAFailureDoesNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		compensated, calls := 0, 0
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			calls++
			f, err := worker.Async[int](ctx, "child", "child", none{})
			if err != nil {
				return err
			}
			for range 100 {
				if _, err = f.Wait(ctx); err == nil {
					return nil
				}
			}
			if err := worker.Do(ctx, "refund", func(context.Context) error { compensated++; return nil }); err == nil {
				t.Error("a step ran after the park")
			}
			if calls == 1 {
				panic("and all goes wrong")
			}
			return retry.Permanent(err)
		})
		worker.HandleResult(r.sup, "child", func(context.Context, none) (int, error) { time.Sleep(time.Minute); return 1, nil })
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Second)
		r.wantState(id, store.Parked, 0, "")
		settle(5 * time.Minute)
		r.wantState(id, store.Done, 1, "")
		if compensated != 0 || calls != 2 {
			t.Errorf("compensated %d times in %d calls", compensated, calls)
		}
		r.stopWell()
	})
}

func TestAChildOfAnInstanceThatNobodyServesWaitsAndItsParentSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			_, err := runChild[int](ctx, "render", "nobody", none{})
			return err
		})
		id := r.enqueue("order", none{})
		r.start()
		settle(15 * time.Minute)
		r.wantState(id, store.Parked, 0, "")
		x, err := r.st.Explain(t.Context(), id)
		if err != nil || x.Reason != store.ReasonParked || !strings.Contains(x.Detail, "nobody") {
			t.Errorf("explained as %+v, %v", x, err)
		}
		if s := r.stats("nobody"); s.Todo != 1 {
			t.Errorf("the child: %+v", s)
		}
		r.stopWell()
		if s := of[worker.ChildSwept](r.events); len(s) != 0 {
			t.Errorf("a child that merely waits was swept: %v", s)
		}
	})
}

func TestALostChildIsBroughtBackByTheSweeper(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var ran atomic.Int32
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			_, err := runChild[int](ctx, "child", "child", none{}, worker.Delay(time.Minute))
			return err
		})
		worker.HandleResult(r.sup, "child", func(context.Context, none) (int, error) { ran.Add(1); return 1, nil })
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Second)
		r.loseChildren("child")
		settle(5 * time.Minute)
		r.wantState(id, store.Done, 1, "")
		if n := ran.Load(); n != 1 {
			t.Errorf("the child ran %d times", n)
		}
		r.stopWell()
		if s := of[worker.ChildSwept](r.events); len(s) != 1 || s[0].Outcome != worker.SweptAgain || s[0].Job != id || s[0].Sweeps != 1 {
			t.Errorf("swept: %v", s)
		}
	})
}

func TestAChildThatIsNotWantedIsNotRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		ran := 0
		worker.Handle(r.sup, "child", func(context.Context, none) error { ran++; return nil })
		id := r.enqueue("child", none{}, func(j *store.NewJob) {
			j.Parent = store.Parent{ID: uuid.New(), Instance: "order", Step: "child"}
		})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Cancelled, 1, "its parent")
		if ran != 0 {
			t.Error("it ran")
		}
		r.stopWell()
	})
}
