package worker_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestAJobStartsWithoutDelayWhenTheSupervisorIsIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		r.start()
		for range 20 {
			time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Second))))
			at := time.Now()
			r.enqueue("x", nil)
			synctest.Wait()
			if d := (<-starts).Sub(at); d != 0 {
				t.Errorf("the job started after %v, want at once", d)
			}
		}
		r.stopWell()
	})
}

func TestNoWakeUpIsLostWhateverGoesOnAtTheTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.latency(time.Millisecond)
		starts := r.serve("x", func() time.Duration { return rand.N(20 * time.Millisecond) }, worker.Concurrency(200))
		r.start()
		settle(time.Second)
		for range 200 {
			time.Sleep(rand.N(3 * time.Millisecond))
			at := time.Now()
			r.enqueue("x", nil)
			go func() { // there is always a free worker; the pool has to notice
				if d := (<-starts).Sub(at); d > 20*time.Millisecond {
					t.Errorf("a job started after %v, want a few round trips of 1 ms", d)
				}
			}()
		}
		settle(time.Second)
		if s := r.stats("x"); s.Done != 200 {
			t.Errorf("%+v, want 200 done", s)
		}
		r.stopWell()
	})
}

func TestAnIdleSupervisorHardlyTalks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		r.start()
		settle(10 * time.Second)
		before := r.fault.Seen()
		settle(200 * time.Second)
		if n := r.fault.Seen() - before; n > 200 {
			t.Errorf("%d commands in 200 s, want at most one a second", n)
		}
		r.stopWell()
	})
}

func TestAResumedInstanceIsServedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		r.start()
		settle(time.Second)
		must(t, r.st.Pause(t.Context(), "x"))
		r.enqueue("x", nil)
		settle(33 * time.Second)
		if len(starts) != 0 {
			t.Fatal("a job of a paused instance was run")
		}
		at := time.Now()
		r.resume("x")
		if d := (<-starts).Sub(at); d != 0 {
			t.Errorf("started %v after the instance was resumed, want at once", d)
		}
		r.stopWell()
	})
}

func TestAWakeUpThatIsLostCostsASecondWhileNobodyListens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		r.start()
		settle(7 * time.Second)
		at := time.Now()
		r.deafen(func() { r.enqueue("x", nil) })
		if d := (<-starts).Sub(at); d > time.Second {
			t.Errorf("started after %v, want 1s at most", d)
		}
		r.stopWell()
	})
}

func TestCompletionsAndClaimsTravelTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const workers, jobs = 50, 2000
		r := newRig(t, worker.Config{})
		r.serve("x", exactly(10*time.Millisecond), worker.Concurrency(workers))
		r.enqueueMany("x", jobs)
		before := r.fault.Seen()
		r.start()
		settle(2 * time.Second)
		if s := r.stats("x"); s.Done != jobs {
			t.Fatalf("%+v, want all done", s)
		}
		if n := r.fault.Seen() - before; n > jobs/8 {
			t.Errorf("%d commands for %d jobs: they hardly ever travel together", n, jobs)
		}
		r.stopWell()
	})
}

func TestOnlyAsManyJobsAsThereAreWorkersRunAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		running, most := make(chan struct{}, 3), make(chan int, 100)
		worker.Handle(r.sup, "x", func(context.Context, none) error {
			select {
			case running <- struct{}{}:
				most <- len(running)
			default:
				most <- 4
			}
			time.Sleep(time.Second)
			<-running
			return nil
		}, worker.Concurrency(3))
		r.enqueueMany("x", 30)
		start := time.Now()
		r.start()
		for r.stats("x").Done < 30 && time.Since(start) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(start)
		r.stopWell()
		close(most)
		high := 0
		for n := range most {
			high = max(high, n)
		}
		if high != 3 || took > 11*time.Second {
			t.Errorf("at most %d at once, %v in all; want 3, and 10s", high, took)
		}
	})
}

func TestAnInstanceWithoutHandlerIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		id := r.enqueue("y", nil)
		r.start()
		settle(time.Minute)
		r.wantState(id, "todo", 0, "")
		r.stopWell()
	})
}

func TestALostReplyToAClaimLosesNoJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		r.enqueueMany("x", 8)
		r.fault.LoseReplyNth(1, redistest.Named("eval"), redistest.Mentions(":lane:"))
		r.start()
		settle(2 * time.Second)
		if s := r.stats("x"); s.Done != 8 || len(starts) != 8 {
			t.Errorf("%+v after %d attempts, want 8 done after 8", s, len(starts))
		}
		r.stopWell()
	})
}

func TestAJobStartsWithoutDelayAfterItsInstanceWasDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		r.start()
		settle(100 * time.Millisecond)
		must(t, r.st.DeleteInstance(t.Context(), "x", false))
		settle(100 * time.Millisecond)
		at := time.Now()
		r.enqueue("x", nil)
		if d := (<-starts).Sub(at); d != 0 {
			t.Errorf("the job started after %v, want at once", d)
		}
		r.stopWell()
	})
}

// mute is a server that lets nobody subscribe.
type mute struct{ net.Conn }

func (m mute) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) {
		_ = m.Close()
		return 0, io.EOF
	}
	return m.Conn.Write(b)
}

func (mute) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (mute) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return mute{c}, nil
	}
}

func TestAProcessThatCanNotSubscribeLooksEverySecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.hook(mute{})
		starts := r.serve("x", nothing)
		r.start()
		settle(time.Minute)
		for range 5 {
			at := time.Now()
			r.enqueue("x", nil)
			if d := (<-starts).Sub(at); d > time.Second {
				t.Errorf("started after %v, want 1s at most", d)
			}
			settle(7300 * time.Millisecond)
		}
		r.stopWell()
	})
}

// A pool has other instances to serve while one can't be asked, and comes back to it.
func TestAnInstanceOfASharedPoolIsAskedAgainSoonAfterItCouldNotBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Pools: []worker.Pool{{Name: "both", Concurrency: 4}}})
		worker.Handle(r.sup, "x", returns(nil), worker.In("both", 1))
		worker.Handle(r.sup, "y", returns(nil), worker.In("both", 1))
		id := r.enqueue("x", nil)
		mend := r.spoil("stint:{x}:done")
		r.start()
		settle(22 * time.Second)
		mend()
		settle(1100 * time.Millisecond)
		r.wantState(id, store.Done, 1, "")
		r.stopWell()
	})
}
