package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestARedisThatIsDownAtStartIsWaitedForAndSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		worker.Handle(r.sup, "y", returns(nil))
		id := r.enqueue("x", nil)
		r.fault.Unplug()
		r.start()
		settle(time.Minute)
		if e := of[worker.LoopFailed](r.events); len(e) != 1 || !errors.Is(e[0].Err, redistest.ErrFault) || e[0].Loop == "" {
			t.Errorf("events %+v, want one LoopFailed", e)
		}
		if n := r.logs.count("level=ERROR"); n != 1 {
			t.Errorf("%d lines, want one:\n%s", n, r.logs)
		}
		r.fault.Plug()
		settle(15 * time.Second)
		r.wantState(id, store.Done, 1, "")
		if e := of[worker.LoopRecovered](r.events); len(e) != 1 || e[0].After < time.Minute || e[0].Failures == 0 {
			t.Errorf("events %+v, want one LoopRecovered", e)
		}
		if n := r.logs.count(""); n != 2 {
			t.Errorf("%d lines, want two:\n%s", n, r.logs)
		}
		r.stopWell()
	})
}

func TestAnOutageIsNoHotLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: time.Second})
		worker.Handle(r.sup, "x", returns(nil))
		r.start()
		settle(time.Second)
		r.fault.Unplug()
		before := r.fault.Seen()
		settle(100 * time.Second)
		if n := r.fault.Seen() - before; n > 1500 {
			t.Errorf("%d commands in 100 s without a server", n)
		}
		r.fault.Plug()
		r.stopWell()
	})
}

func TestWhateverSingleCommandFailsTheHandlerRunsOnceAndTheJobIsDoneInSeconds(t *testing.T) {
	kinds := map[string]func(f *redistest.Fault, n int) <-chan struct{}{
		"fails":             func(f *redistest.Fault, n int) <-chan struct{} { return f.FailNth(n) },
		"loses its reply":   func(f *redistest.Fault, n int) <-chan struct{} { return f.LoseReplyNth(n) },
		"is cut":            func(f *redistest.Fault, n int) <-chan struct{} { return f.CutNth(n) },
		"is cut afterwards": func(f *redistest.Fault, n int) <-chan struct{} { return f.CutReplyNth(n) },
	}
	for name, arm := range kinds {
		for n := 1; n <= 12; n++ {
			t.Run(fmt.Sprintf("command %d %s", n, name), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, worker.Config{Lease: 2 * time.Second})
					starts := r.serve("x", exactly(1100*time.Millisecond))
					r.start()
					settle(time.Second)
					id := r.enqueue("x", nil, after(300*time.Millisecond))
					struck := arm(r.fault, n)
					settle(8 * time.Second)
					if reaped := of[worker.JobReaped](r.events); len(starts) != 1 || len(reaped) != 0 {
						t.Errorf("the handler ran %d times, and its lease was ended %d times", len(starts), len(reaped))
					}
					r.wantState(id, store.Done, 1, "")
					r.stopWell()
					if !came(struck) {
						t.Errorf("there was no command %d", n)
					}
				})
			})
		}
	}
}

func TestWhatIsFinishedDuringAnOutageIsHandedInAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", exactly(2*time.Second), worker.Concurrency(20))
		r.start()
		r.enqueueMany("x", 20)
		settle(time.Second)
		r.fault.Unplug()
		settle(10 * time.Second)
		r.fault.Plug()
		settle(6 * time.Second)
		if s := r.stats("x"); s.Done != 20 || len(starts) != 20 {
			t.Errorf("%+v after %d attempts, want 20 done after 20", s, len(starts))
		}
		r.stopWell()
	})
}

func TestInAnOutageAHandlerHearsOfItsLeaseBeforeThatRunsOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lease = 10 * time.Second
		r := newRig(t, worker.Config{Lease: lease})
		start := time.Now()
		told := make(chan time.Duration, 2)
		var cause error
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			if len(told) > 0 {
				return nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			told <- time.Since(start)
			return ctx.Err()
		})
		r.start()
		id := r.enqueue("x", nil)
		settle(6 * time.Second) // the last heartbeat was after 5 s
		r.fault.Unplug()
		settle(8*time.Second - 1)
		if len(told) > 0 {
			t.Error("told while the lease still held")
		}
		settle(500 * time.Millisecond)
		if when := <-told; cause != worker.ErrLeaseLost || when < 5*time.Second+lease*8/10 || when >= 5*time.Second+lease {
			t.Errorf("cause %v after %v, want ErrLeaseLost shortly before 15s", cause, when)
		}
		if e := of[worker.LeaseLost](r.events); len(e) != 1 || e[0].Job != id {
			t.Errorf("events %+v, want one", e)
		}
		r.fault.Plug()
		r.stopWell()
	})
}

func TestALeaseGivenUpInAnOutageCostsNoAttemptAndNoCrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 20 * time.Second})
		runs := 0
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			if runs++; runs == 1 {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		})
		r.start()
		id := r.enqueue("x", nil)
		settle(500 * time.Millisecond)
		r.fault.Unplug()
		settle(17600 * time.Millisecond) // told after 18 s; the lease runs out after 20 s
		r.fault.Plug()
		settle(5 * time.Second)
		r.wantState(id, store.Done, 1, "")
		if j := r.job(id); j.Crashes != 0 || len(of[worker.JobReaped](r.events)) != 0 {
			t.Errorf("%d crashes, events %+v; want none", j.Crashes, of[worker.JobReaped](r.events))
		}
		if e := of[worker.JobFinished](r.events); len(e) != 2 || e[0].Outcome != worker.Released || e[0].State != store.Todo {
			t.Errorf("events %+v, want a release and a completion", e)
		}
		r.stopWell()
	})
}

func TestAForeignKeyInOneInstanceIsNamedAndHarmsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		worker.Handle(r.sup, "y", returns(nil))
		mend := r.spoil("stint:{x}:done")
		r.start()
		id := r.enqueue("y", nil)
		settle(20 * time.Second)
		r.wantState(id, store.Done, 1, "")
		failed := of[worker.LoopFailed](r.events)
		if len(failed) != 1 || failed[0].Instance != "x" {
			t.Fatalf("events %+v, want one of x", failed)
		}
		if key, ok := errors.AsType[*store.KeyError](failed[0].Err); !ok || key.Key != "stint:{x}:done" {
			t.Errorf("the reason is %v, want a *store.KeyError", failed[0].Err)
		}
		mend()
		id = r.enqueue("x", nil)
		settle(10 * time.Second)
		r.wantState(id, store.Done, 1, "")
		if e := of[worker.LoopRecovered](r.events); len(e) != 1 {
			t.Errorf("events %+v, want one", e)
		}
		r.stopWell()
	})
}

func TestALateClaimIsGivenBackUnrun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 2 * time.Second})
		starts := r.serve("x", nothing)
		r.start()
		settle(time.Second)
		struck := r.fault.LoseReplyNth(1, redistest.Mentions(":lane:"), redistest.Mentions(":process:"))
		id := r.enqueue("x", nil) // its claim is carried out, and the reply lost
		<-struck
		r.fault.Unplug()
		settle(time.Minute)
		if len(starts) != 0 {
			t.Fatal("run during the outage")
		}
		r.fault.Plug()
		settle(10 * time.Second)
		r.wantState(id, store.Done, 1, "")
		if len(starts) != 1 || id == uuid.Nil {
			t.Errorf("%d attempts, want 1", len(starts))
		}
		synctest.Wait()
		r.stopWell()
	})
}

func TestAClockThatJumpsForwardAndBackEndsNoLeaseAndStopsNoWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		calls := 0
		worker.Handle(r.sup, "long", func(context.Context, none) error {
			calls++
			time.Sleep(5 * time.Minute)
			return nil
		})
		worker.Handle(r.sup, "short", returns(nil))
		// pass lets fake time pass with the server's clock an offset ahead of ours.
		pass := func(d, offset time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				r.st.Runtime().SetTime(time.Now().Add(offset))
			}
		}
		r.st.Runtime().SetTime(time.Now())
		r.start()
		long := r.enqueue("long", none{})
		for _, offset := range []time.Duration{0, time.Hour, -time.Hour, 0} {
			pass(10*time.Second, offset)
			short := r.enqueue("short", none{})
			pass(time.Minute, offset)
			r.wantState(short, store.Done, 1, "")
		}
		pass(2*time.Minute, 0)
		r.wantState(long, store.Done, 1, "")
		if reaped := of[worker.JobReaped](r.events); calls != 1 || len(reaped) != 0 {
			t.Errorf("it was called %d times, and reaped: %+v", calls, reaped)
		}
		r.stopWell()
	})
}
