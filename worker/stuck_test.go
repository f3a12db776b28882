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

func stubborn(release chan struct{}) func(context.Context, none) error {
	return func(context.Context, none) error { <-release; return nil }
}

func TestStop5AHandlerThatIgnoresItsContextIsNamedAndNothingOfItIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{DrainTimeout: 3 * time.Second, GraceTimeout: 2 * time.Second})
		release := make(chan struct{})
		var late error
		worker.Handle(r.sup, "stubborn", func(ctx context.Context, in none) error {
			err := stubborn(release)(ctx, in)
			late = worker.Progress(ctx, "late")
			return err
		})
		worker.Handle(r.sup, "good", func(context.Context, none) error { time.Sleep(4 * time.Second); return nil })
		r.start()
		id, good := r.enqueue("stubborn", nil), r.enqueue("good", nil)
		settle(500 * time.Millisecond)
		took, err := r.stopTook()
		if took != 5*time.Second {
			t.Errorf("it took %v, want 5s", took)
		}
		stuck, ok := errors.AsType[*worker.StuckError](err)
		if !ok || len(stuck.Handlers) != 1 {
			t.Fatalf("Run returned %v, want a *StuckError of one handler", err)
		}
		h := stuck.Handlers[0]
		if h.Instance != "stubborn" || h.Job != id || h.For != 5500*time.Millisecond || !strings.Contains(h.Stack, "worker_test.TestStop5") {
			t.Errorf("named %+v", h)
		}
		for _, want := range []string{"stubborn", id.String(), "5.5s", "stuck_test.go"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in the error:\n%v", want, err)
			}
		}
		r.wantState(good, store.Done, 1, "")
		seen := r.fault.Seen()
		close(release)
		synctest.Wait()
		if late != worker.ErrNoJob {
			t.Errorf("late progress: %v, want ErrNoJob", late)
		}
		if n := r.fault.Seen() - seen; n != 0 {
			t.Errorf("%d commands after Run returned", n)
		}
		r.wantState(id, store.Doing, 1, "") // until its lease runs out
	})
}

func TestStop5NothingOfAStepThatHangsIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{DrainTimeout: 3 * time.Second, GraceTimeout: 2 * time.Second})
		release := make(chan struct{})
		late := errors.New("it has not returned")
		worker.Handle(r.sup, "stubborn", func(ctx context.Context, in none) error {
			late = worker.Do(ctx, "a", func(ctx context.Context) error { return stubborn(release)(ctx, in) })
			return late
		})
		r.start()
		id := r.enqueue("stubborn", nil)
		settle(500 * time.Millisecond)
		if _, err := r.stopTook(); !errors.As(err, new(*worker.StuckError)) {
			t.Errorf("Run returned %v, want a *StuckError", err)
		}
		lines := r.logs.count("")
		close(release)
		settle(time.Second)
		page, err := r.st.Steps(t.Context(), id, "")
		if err != nil || len(page.Steps) != 0 || late == nil || r.logs.count("") != lines {
			t.Errorf("it keeps %v, %v; the step returned %v, and %d lines were logged", page.Steps, err, late, r.logs.count("")-lines)
		}
	})
}

// The worker's goroutine may get a processor only when the time to stop is over.
func TestAHandlerThatHasNotBegunWhenRunReturnsNeverDoes(t *testing.T) {
	if !worker.NewHandedOver().Begin() {
		t.Error("an attempt does not begin")
	}
	late := worker.NewHandedOver()
	late.Abandon()
	if late.Begin() {
		t.Error("an attempt begins after Run has returned without it")
	}
}

// hangs is a policy that does not return until it is closed.
type hangs chan struct{}

func (h hangs) Next(int, error) (time.Duration, bool) { <-h; return time.Second, true }
func (h hangs) Succeeded(int)                         { <-h }

func TestAPolicyThatDoesNotReturnKeepsNoStop(t *testing.T) {
	for name, out := range map[string]func(release chan struct{}) error{
		"asked for a retry": func(chan struct{}) error { return errBoom },
		"told of a success": func(chan struct{}) error { return nil },
		"an error's text":   func(release chan struct{}) error { return odd{func() { <-release }, func() {}} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{DrainTimeout: 3 * time.Second, GraceTimeout: 2 * time.Second})
				release := make(chan struct{})
				worker.Handle(r.sup, "x", func(context.Context, none) error { return out(release) }, worker.Retry(hangs(release)))
				r.start()
				id := r.enqueue("x", nil)
				settle(time.Second)
				took, err := r.stopTook()
				stuck, ok := errors.AsType[*worker.StuckError](err)
				if took != 5*time.Second || !ok || len(stuck.Handlers) != 1 || stuck.Handlers[0].Job != id {
					t.Errorf("it took %v and Run returned %v, want 5s and a *StuckError of the job", took, err)
				}
				seen := r.fault.Seen()
				close(release)
				settle(time.Minute)
				if n := r.fault.Seen() - seen; n != 0 {
					t.Errorf("%d commands after Run returned", n)
				}
				r.wantState(id, store.Doing, 1, "") // until its lease runs out
			})
		})
	}
}

// Nor has a handler that its worker had no time to call been stuck for ever.
func TestWhatRunGivesUpHasNotBeenThereForLongerThanItsLease(t *testing.T) {
	for range 5 {
		r := newRig(t, worker.Config{DrainTimeout: 1, GraceTimeout: 1})
		worker.Handle(r.sup, "x", func(context.Context, none) error {
			for began := time.Now(); time.Since(began) < 300*time.Microsecond; {
			}
			return nil
		}, worker.Concurrency(200))
		r.enqueueMany("x", 600)
		r.start()
		time.Sleep(60 * time.Millisecond)
		if stuck, ok := errors.AsType[*worker.StuckError](r.stopped()); ok {
			for _, h := range stuck.Handlers {
				if h.For > 10*time.Minute {
					t.Fatalf("%v", h.For)
				}
			}
		}
	}
}
