package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

var (
	errBoom  = errors.New("boom")
	limitOne = retry.Limit(1, nil)
)

// outcome is what one attempt with a given handler leads to.
type outcome struct {
	state    store.State
	attempt  int
	text     string
	outcome  worker.Outcome
	min, max time.Duration // until the job is due, where it is scheduled
}

// attemptOnce runs one job whose handler is f and checks what becomes of it.
func attemptOnce(t *testing.T, f func(context.Context, none) error, want outcome, opts ...worker.HandleOption) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", f, opts...)
		r.start()
		id := r.enqueue("x", nil)
		synctest.Wait()
		at := time.Now()
		r.stopWell()
		r.wantState(id, want.state, want.attempt, want.text)
		if want.state == store.Scheduled {
			if d := r.job(id).RunAt.Sub(at); d < want.min || d > want.max+2*time.Millisecond {
				t.Errorf("the next attempt is due in %v, want %v to %v", d, want.min, want.max)
			}
		}
		finished := of[worker.JobFinished](r.events)
		if len(finished) != 1 || finished[0].Outcome != want.outcome || finished[0].State != want.state || finished[0].Job != id {
			t.Errorf("events %+v, want one of %s and %s", finished, want.outcome, want.state)
		}
		// A slot whose goroutine was ended must be there again, and so on.
		if n := len(of[worker.JobStarted](r.events)); n != 1 {
			t.Errorf("%d attempts, want one", n)
		}
	})
}

func returns(err error) func(context.Context, none) error {
	return func(context.Context, none) error { return err }
}

func TestNilCompletes(t *testing.T) {
	attemptOnce(t, returns(nil), outcome{state: store.Done, attempt: 1, outcome: worker.Completed})
}

func TestAnErrorIsRetriedAfterHalfToAllOfThePolicysDelay(t *testing.T) {
	want := outcome{store.Scheduled, 1, "boom", worker.Retried, 30 * time.Second, time.Minute}
	attemptOnce(t, returns(errBoom), want, worker.Retry(retry.Fixed(time.Minute)))
}

func TestTheDefaultPolicyStartsWithASecond(t *testing.T) {
	attemptOnce(t, returns(errBoom), outcome{store.Scheduled, 1, "boom", worker.Retried, time.Second / 2, time.Second})
}

func TestWhenThePolicyGivesUpTheJobIsDead(t *testing.T) {
	attemptOnce(t, returns(errBoom), outcome{state: store.Dead, attempt: 1, text: "boom", outcome: worker.Buried},
		worker.Retry(retry.Limit(1, retry.Fixed(time.Minute))))
}

func TestAPermanentErrorBuriesThroughWrapping(t *testing.T) {
	attemptOnce(t, returns(fmt.Errorf("reading: %w", retry.Permanent(errBoom))),
		outcome{state: store.Dead, attempt: 1, text: "reading: boom", outcome: worker.Buried})
}

func TestAfterReplacesTheDelayThroughWrapping(t *testing.T) {
	attemptOnce(t, returns(fmt.Errorf("busy: %w", retry.After(time.Hour, errBoom))),
		outcome{store.Scheduled, 1, "busy: boom", worker.Retried, time.Hour, time.Hour})
}

func TestAfterDoesNotOverruleAPolicyThatGivesUp(t *testing.T) {
	attemptOnce(t, returns(retry.After(time.Hour, errBoom)), outcome{state: store.Dead, attempt: 1, text: "boom", outcome: worker.Buried},
		worker.Retry(retry.Limit(1, retry.Fixed(time.Minute))))
}

func TestSnoozeGivesTheAttemptBack(t *testing.T) {
	attemptOnce(t, returns(worker.Snooze(time.Hour)), outcome{store.Scheduled, 0, "", worker.Snoozed, time.Hour, time.Hour})
}

func TestTheTextAroundASnoozeBecomesLastError(t *testing.T) {
	attemptOnce(t, returns(fmt.Errorf("out of stock: %w", worker.Snooze(time.Hour))),
		outcome{store.Scheduled, 0, "out of stock: snoozed for 1h0m0s", worker.Snoozed, time.Hour, time.Hour})
}

func TestANegativeSnoozeIsAFailure(t *testing.T) {
	attemptOnce(t, returns(worker.Snooze(-time.Second)),
		outcome{store.Scheduled, 1, "invalid: snoozing for -1s", worker.Retried, time.Second / 2, time.Second})
}

func TestAPanicFailsTheAttemptAlone(t *testing.T) {
	f := func(context.Context, none) error { panic("oops") }
	attemptOnce(t, f, outcome{store.Scheduled, 1, "panic: oops\n\ngoroutine ", worker.Retried, time.Second / 2, time.Second})
}

func TestAPanicDoesNotSteer(t *testing.T) {
	f := func(context.Context, none) error { panic(retry.Permanent(errBoom)) }
	attemptOnce(t, f, outcome{store.Scheduled, 1, "panic: boom\n\ngoroutine ", worker.Retried, time.Second / 2, time.Second})
}

func TestAGoexitFailsTheAttemptAlone(t *testing.T) {
	f := func(context.Context, none) error { runtime.Goexit(); return nil }
	attemptOnce(t, f, outcome{store.Scheduled, 1, worker.ErrGoexit.Error(), worker.Retried, time.Second / 2, time.Second})
}

func TestAWorkerGoesOnAfterPanicsAndGoexits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		n := 0
		worker.Handle(r.sup, "x", func(context.Context, none) error {
			switch n++; n % 3 {
			case 1:
				panic("oops")
			case 2:
				runtime.Goexit()
			}
			return nil
		}, worker.Concurrency(1), worker.Retry(retry.Limit(1, nil)))
		r.start()
		r.enqueueMany("x", 30)
		synctest.Wait()
		if s := r.stats("x"); s.Done != 10 || s.Dead != 20 {
			t.Errorf("%d done and %d dead, want 10 and 20", s.Done, s.Dead)
		}
		var panics int
		for _, e := range of[worker.JobFinished](r.events) {
			if _, ok := errors.AsType[*worker.PanicError](e.Err); ok {
				panics++
			}
		}
		if panics != 10 || r.logs.count("a handler panicked") != 10 || !strings.Contains(r.logs.String(), "outcome_test.go") {
			t.Errorf("%d events with a *PanicError and %d lines, want 10 each, with the stack", panics, r.logs.count("a handler panicked"))
		}
		r.stopWell()
	})
}

func TestATimeoutEndsTheContextAndIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var ctxErr, cause error
		var left time.Duration
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			ctxErr, cause = ctx.Err(), context.Cause(child)
			return fmt.Errorf("asking: %w", child.Err())
		}, worker.Timeout(1500*time.Millisecond))
		r.start()
		id := r.enqueue("x", nil)
		settle(1600 * time.Millisecond)
		r.stopWell()
		if left != 1500*time.Millisecond || ctxErr != context.DeadlineExceeded || cause != worker.ErrTimeout {
			t.Errorf("deadline in %v, error %v, cause %v", left, ctxErr, cause)
		}
		r.wantState(id, store.Scheduled, 1, "the attempt timed out after 1.5s: asking: context deadline exceeded")
		if e := of[worker.JobFinished](r.events); len(e) != 1 || !errors.Is(e[0].Err, worker.ErrTimeout) || e[0].Took != 1500*time.Millisecond {
			t.Errorf("events %+v, want one with ErrTimeout", e)
		}
	})
}

func TestAHandlerWithoutTimeoutHasNoDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: time.Hour})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			if d, ok := ctx.Deadline(); ok {
				t.Errorf("deadline %v", d)
			}
			time.Sleep(40 * time.Minute)
			return ctx.Err()
		}, worker.Timeout(0))
		r.start()
		id := r.enqueue("x", nil)
		settle(41 * time.Minute)
		r.stopWell()
		if e := of[worker.JobFinished](r.events); len(e) != 1 || e[0].State != store.Done || e[0].Job != id {
			t.Errorf("events %+v, want the job done", e)
		}
	})
}

// A bulk change is of what there was when it began: what dies again meanwhile, since nothing was mended, is left.
func TestRequeuingAllTakesNothingTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var d diary
		run := d.takes("x", nothing)
		worker.Handle(r.sup, "x", func(ctx context.Context, in none) error {
			_ = run(ctx, in)
			return retry.Permanent(errors.New("still broken"))
		}, worker.Concurrency(100))
		r.enqueueMany("x", 1200)
		r.start()
		settle(10 * time.Second)
		r.latency(time.Millisecond)
		n, err := r.st.RequeueAll(t.Context(), store.Filter{Instance: "x", Error: "still"})
		settle(10 * time.Second)
		if again := len(d.starts) - 1200; n != 1200 || err != nil || again != 1200 {
			t.Errorf("requeued %d, %v, and %d ran again; want 1,200 of each", n, err, again)
		}
		r.stopWell()
	})
}
