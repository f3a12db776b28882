package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestCancellingEndsTheContextAtOnceAndAnErrorThenIsCancelled(t *testing.T) {
	for _, ret := range []error{errBoom, retry.Permanent(errBoom), worker.Snooze(time.Hour)} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, worker.Config{})
			var cause error
			worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ret
			})
			r.start()
			id := r.enqueue("x", nil)
			synctest.Wait()
			start := time.Now()
			must(t, r.st.Cancel(t.Context(), id))
			synctest.Wait()
			if cause != worker.ErrCancelled || time.Since(start) != 0 {
				t.Errorf("cause %v after %v, want ErrCancelled at once", cause, time.Since(start))
			}
			r.wantState(id, store.Cancelled, 1, ret.Error())
			r.stopWell()
		})
	}
}

func TestCompletingACancelledJobMakesItDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error { <-ctx.Done(); return nil })
		r.start()
		id := r.enqueue("x", nil)
		synctest.Wait()
		must(t, r.st.Cancel(t.Context(), id))
		synctest.Wait()
		r.wantState(id, store.Done, 1, "")
		r.stopWell()
	})
}

func TestACancelThatNobodyHeardComesWithTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		var cause error
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		r.start()
		id := r.enqueue("x", nil)
		settle(1100 * time.Millisecond)
		r.deafen(func() {
			must(t, r.st.Cancel(t.Context(), id))
		})
		settle(time.Second)
		if cause != worker.ErrCancelled {
			t.Errorf("cause %v after a heartbeat, want ErrCancelled", cause)
		}
		synctest.Wait()
		r.wantState(id, store.Cancelled, 1, "context canceled")
		r.stopWell()
	})
}

func TestCancelEndsWhatWaitsAndTellsWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		told := make(chan error, 1)
		worker.Handle(r.sup, "images", func(ctx context.Context, _ none) error {
			<-ctx.Done()
			told <- context.Cause(ctx)
			return ctx.Err()
		})
		c := r.client()
		later := r.accepts(c, "images", none{}, worker.Delay(time.Hour))
		doing := r.accepts(c, "images", none{})
		r.start()
		synctest.Wait()
		start := time.Now()
		for _, id := range []uuid.UUID{later, doing} {
			must(t, c.Cancel(t.Context(), id))
			if j := r.waits(c, id); j.State != store.Cancelled {
				t.Errorf("%s, want cancelled", j.State)
			}
			if err := c.Cancel(t.Context(), id); !errors.Is(err, store.ErrTerminal) {
				t.Errorf("once more: %v, want ErrTerminal", err)
			}
		}
		if cause := <-told; !errors.Is(cause, worker.ErrCancelled) {
			t.Errorf("the handler was told %v, want ErrCancelled", cause)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v, want notifications", took)
		}
		if err := c.Cancel(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
		r.stopWell()
	})
}
