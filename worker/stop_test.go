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
		starts := r.serve("x", nothing)
		r.start()
		settle(10 * time.Second)
		var lane store.Lane
		go func() { // as if from another process: we need not wait for the reply
			_, _ = r.st.Runtime().Enqueue(context.Background(), &lane, "x", []store.NewJob{{ID: theID, Payload: []byte("null")}})
		}()
		settle(100 * time.Millisecond) // it is claimed, the reply is on its way
		r.wantDoingNow(1)
		r.stopWell()
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
		starts := r.serve("x", exactly(5*time.Second), worker.Concurrency(2))
		r.start()
		r.enqueueMany("x", 1)
		settle(time.Second)
		r.stop()
		synctest.Wait()
		r.enqueueMany("x", 3)
		r.ranWell()
		if s := r.stats("x"); s.Done != 1 || s.Todo != 3 || len(starts) != 1 {
			t.Errorf("%+v after %d attempts, want one done and three waiting", s, len(starts))
		}
	})
}

func TestStop1NothingIsReapedAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: time.Second})
		r.serve("x", exactly(10*time.Second), worker.Concurrency(1))
		r.start()
		r.enqueueMany("x", 1)
		settle(500 * time.Millisecond)
		id := r.enqueue("x", nil)
		r.claimAs(theID, "x", time.Second)
		r.stop()
		settle(5 * time.Second)
		r.wantState(id, store.Doing, 1, "")
		r.ranWell()
	})
}

func TestStop1TheProcessIsNoLongerListedAndOthersAreWokenInItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", exactly(10*time.Second), worker.Concurrency(2))
		r.start()
		r.enqueueMany("x", 1)
		settle(time.Second)
		other := r.second(worker.Config{})
		others := other.serve("x", nothing)
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
		r.ranWell()
		other.stopWell()
	})
}

func TestStop1AProcessIsNoLongerListedThoughAnInstanceIsInTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		worker.Handle(r.sup, "y", returns(nil))
		r.spoil("stint:{x}:done")
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
