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

// stopTook stops the supervisor and returns how long that took and what Run returned.
func (r *rig) stopTook() (time.Duration, error) {
	start := time.Now()
	err := r.stopped()
	return time.Since(start), err
}

func TestAnIdleSupervisorStopsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		worker.Handle(r.sup, "y", returns(nil))
		r.start()
		settle(17 * time.Second)
		if took, err := r.stopTook(); took > 100*time.Millisecond || err != nil {
			t.Errorf("it took %v and Run returned %v, want 100ms at most and nil", took, err)
		}
	})
}

func TestAContextThatHasEndedAlreadyIsACleanRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.sup.Run(ctx); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	})
}

func TestStop1AClaimInFlightIsAwaitedAndWhatItBringsIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.enqueueMany("x", 1) // so that Redis knows the scripts
		r.latency(200 * time.Millisecond)
		f, starts := startTimes(nothing)
		worker.Handle(r.sup, "x", f)
		r.start()
		settle(10 * time.Second)
		var lane store.Lane
		go func() { // as if from another process: we need not wait for the reply
			_, _ = r.st.Runtime().Enqueue(context.Background(), &lane, "x", []store.NewJob{{ID: theID, Payload: []byte("null")}})
		}()
		settle(100 * time.Millisecond) // it is claimed, the reply is on its way
		r.wantStateNow(theID, store.Doing)
		if err := r.stopped(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if len(starts) != 1 {
			t.Error("a handler was called after the stop")
		}
		r.wantState(theID, store.Todo, 0, "")
		if e := of[worker.JobFinished](r.events); len(e) != 2 || e[1].Outcome != worker.Released || e[1].State != store.Todo {
			t.Errorf("events %+v, want one release", e)
		}
	})
}

func TestStop1NothingIsClaimedAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		f, starts := startTimes(func() time.Duration { return 5 * time.Second })
		worker.Handle(r.sup, "x", f, worker.Concurrency(2))
		r.start()
		r.enqueueMany("x", 1)
		settle(time.Second)
		r.stop()
		synctest.Wait()
		r.enqueueMany("x", 3)
		if err := <-r.ran; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if s := r.stats("x"); s.Done != 1 || s.Todo != 3 || len(starts) != 1 {
			t.Errorf("%+v after %d attempts, want one done and three waiting", s, len(starts))
		}
	})
}

func TestStop1NothingIsReapedAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: time.Second})
		f, _ := startTimes(func() time.Duration { return 10 * time.Second })
		worker.Handle(r.sup, "x", f, worker.Concurrency(1))
		r.start()
		r.enqueueMany("x", 1)
		settle(500 * time.Millisecond)
		id := r.enqueue("x", nil)
		r.claimAs(theID, "x", time.Second)
		r.stop()
		settle(5 * time.Second)
		r.wantState(id, store.Doing, 1, "")
		if err := <-r.ran; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	})
}

func TestStop1TheProcessIsNoLongerListedAndOthersAreWokenInItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		f, starts := startTimes(func() time.Duration { return 10 * time.Second })
		worker.Handle(r.sup, "x", f, worker.Concurrency(2))
		r.start()
		r.enqueueMany("x", 1)
		settle(time.Second)
		other := r.second(worker.Config{})
		g, others := startTimes(nothing)
		worker.Handle(other.sup, "x", g)
		other.start()
		settle(time.Second)
		r.stop() // it had asked for a job first
		synctest.Wait()
		at := time.Now()
		r.enqueueMany("x", 1)
		if d := (<-others).Sub(at); d != 0 || len(starts) != 1 {
			t.Errorf("the other process was woken after %v, want at once", d)
		}
		if ps, err := r.st.Processes(t.Context()); err != nil || len(ps) != 1 {
			t.Errorf("processes %+v: %v; want the other one", ps, err)
		}
		if err := <-r.ran; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		other.stopWell()
	})
}

func TestStop1AProcessIsNoLongerListedThoughAnInstanceIsInTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		worker.Handle(r.sup, "y", returns(nil))
		if err := r.st.Runtime().Client().Set(t.Context(), "stint:{x}:done", "foreign", 0).Err(); err != nil {
			t.Fatal(err)
		}
		r.start()
		settle(20 * time.Second)
		if ps, err := r.st.Processes(t.Context()); err != nil || len(ps) != 1 || len(of[worker.LoopFailed](r.events)) == 0 {
			t.Errorf("processes %+v: %v; want one, which is in trouble", ps, err)
		}
		if took, err := r.stopTook(); took > 2*time.Second || err != nil {
			t.Errorf("it took %v and Run returned %v, want 2s at most and nil", took, err)
		}
		if ps, err := r.st.Processes(t.Context()); err != nil || len(ps) != 0 {
			t.Errorf("processes %+v: %v; want none", ps, err)
		}
	})
}

func TestStop2HandlersFinishWhileHeartbeatsGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: time.Second})
		var ctxErr error
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			time.Sleep(10 * time.Second)
			ctxErr = ctx.Err()
			return nil
		})
		other := r.second(worker.Config{Lease: time.Second})
		worker.Handle(other.sup, "x", returns(errBoom))
		r.start()
		id := r.enqueue("x", nil)
		settle(time.Second)
		other.start() // would reap it, and run it
		if took, err := r.stopTook(); took != 9*time.Second || err != nil {
			t.Errorf("it took %v and Run returned %v, want 9s and nil", took, err)
		}
		if ctxErr != nil {
			t.Errorf("the handler's context ended: %v", ctxErr)
		}
		r.wantState(id, store.Done, 1, "")
		if j := r.job(id); j.Crashes != 0 || len(of[worker.JobReaped](other.events)) != 0 {
			t.Errorf("%d crashes; want none", j.Crashes)
		}
		other.stopWell()
	})
}

func TestStop2AnErrorWhileDrainingIsRetriedByPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(context.Context, none) error { time.Sleep(3 * time.Second); return errBoom })
		r.start()
		id := r.enqueue("x", nil)
		synctest.Wait()
		if took, err := r.stopTook(); took != 3*time.Second || err != nil {
			t.Errorf("it took %v and Run returned %v, want 3s and nil", took, err)
		}
		r.wantState(id, store.Scheduled, 1, "boom")
	})
}

func TestStop3And4ContextsEndAtDrainTimeoutAndWhatReturnsAnErrorIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{DrainTimeout: 7 * time.Second})
		var cause error
		worker.Handle(r.sup, "x", func(ctx context.Context, complete bool) error {
			<-ctx.Done()
			if complete {
				return nil
			}
			cause = context.Cause(ctx)
			return errors.New("interrupted")
		})
		r.start()
		failed, completed := r.enqueue("x", false), r.enqueue("x", true)
		settle(time.Second)
		if took, err := r.stopTook(); took != 7*time.Second || err != nil {
			t.Errorf("it took %v and Run returned %v, want 7s and nil", took, err)
		}
		if cause != worker.ErrShutdown {
			t.Errorf("cause %v, want ErrShutdown", cause)
		}
		r.wantState(failed, store.Todo, 0, "")
		r.wantState(completed, store.Done, 1, "")
		if j := r.job(failed); j.Crashes != 0 {
			t.Errorf("%d crashes, want none", j.Crashes)
		}
	})
}

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
		for _, want := range []string{"stubborn", id.String(), "5.5s", "stop_test.go"} {
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

func TestStop6EventsAreDeliveredBeforeRunReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		r := newRig(t, worker.Config{OnEvent: func(e worker.Event) {
			if _, ok := e.(worker.JobFinished); ok {
				time.Sleep(10 * time.Millisecond)
				n++
			}
		}})
		worker.Handle(r.sup, "x", returns(nil))
		r.start()
		r.enqueueMany("x", 200)
		settle(100 * time.Millisecond)
		r.stopWell()
		if n != 200 {
			t.Errorf("%d events when Run had returned, want 200", n)
		}
	})
}

func TestWithRedisGoneAStopTakesNoLongerThanItMay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{DrainTimeout: 6 * time.Second, GraceTimeout: 2 * time.Second})
		worker.Handle(r.sup, "x", func(context.Context, none) error { time.Sleep(time.Second); return nil })
		r.start()
		id := r.enqueue("x", nil)
		synctest.Wait()
		r.fault.Unplug()
		took, err := r.stopTook()
		if took < 8*time.Second || took > 9*time.Second {
			t.Errorf("it took %v, want 8s", took)
		}
		left, ok := errors.AsType[*worker.UnsettledError](err)
		if !ok || len(left.Jobs) != 1 || left.Jobs[0] != id || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("Run returned %v, want an *UnsettledError of the job", err)
		}
		r.fault.Plug()
	})
}

func TestWithRedisBackInTimeAStopHandsEverythingIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(context.Context, none) error { time.Sleep(time.Second); return nil })
		r.start()
		id := r.enqueue("x", nil)
		synctest.Wait()
		r.fault.Unplug()
		r.stop()
		settle(10 * time.Second)
		r.fault.Plug()
		at := time.Now()
		if err := <-r.ran; err != nil || time.Since(at) > time.Second {
			t.Errorf("Run returned %v, %v after Redis was back", err, time.Since(at))
		}
		r.wantState(id, store.Done, 1, "")
	})
}

func TestAnIdleSupervisorStopsWithinSecondsWhenRedisIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		r.fault.Unplug()
		r.start()
		settle(time.Minute)
		if took, err := r.stopTook(); took > 2*time.Second || err != nil {
			t.Errorf("it took %v and Run returned %v, want 2s at most and nil", took, err)
		}
		r.fault.Plug()
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
