package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/worker"
)

func TestNoWakeUpOfASharedPoolIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(100, false))
		r.latency(time.Millisecond)
		instances := []string{"a", "b", "c"}
		starts := map[string]chan time.Time{}
		for i, instance := range instances {
			starts[instance] = r.serve(instance, func() time.Duration { return rand.N(20 * time.Millisecond) }, worker.In("all", i+1))
		}
		r.start()
		settle(time.Second)
		for range 500 {
			time.Sleep(rand.N(3 * time.Millisecond))
			at, instance := time.Now(), instances[rand.IntN(3)]
			r.enqueue(instance, nil)
			go func() {
				if d := (<-starts[instance]).Sub(at); d > 20*time.Millisecond {
					t.Errorf("a job started after %v, want a few round trips of 1 ms", d)
				}
			}()
		}
		settle(time.Second)
		r.stopWell()
	})
}

func TestARetryInASharedPoolComesBackAtItsMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(1, false))
		var starts []time.Time
		worker.Handle(r.sup, "a", func(context.Context, none) error {
			if starts = append(starts, time.Now()); len(starts) < 3 {
				return worker.Snooze(1500 * time.Millisecond)
			}
			return nil
		}, worker.In("all", 1))
		worker.Handle(r.sup, "b", returns(nil), worker.In("all", 5))
		r.start()
		r.enqueue("a", nil)
		settle(10 * time.Second)
		r.stopWell()
		if len(starts) != 3 || starts[2].Sub(starts[0]) != 3*time.Second {
			t.Errorf("started at %v, want 1.5s apart", starts)
		}
	})
}

// talk counts the scripts that are run for each instance.
type talk struct {
	mu    sync.Mutex
	count map[string]int
}

func (k *talk) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	var words []string
	for _, a := range cmd.Args() {
		words = append(words, fmt.Sprint(a))
	}
	k.mu.Lock()
	for _, instance := range []string{"full", "empty"} {
		if redistest.Mentions("{" + instance + "}")(words) {
			k.count[instance]++
		}
	}
	k.mu.Unlock()
	return next(ctx, cmd)
}

func TestAnEmptyInstanceOfASharedPoolIsNotAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(5, false))
		var d diary
		worker.Handle(r.sup, "empty", returns(nil), worker.In("all", 100))
		worker.Handle(r.sup, "full", d.takes("full", about(10*time.Millisecond)), worker.In("all", 1))
		r.enqueueMany("full", 2000)
		k := &talk{count: map[string]int{}}
		r.start()
		settle(100 * time.Millisecond)
		r.intercept(k.intercept)
		settle(3 * time.Second)
		if k.count["full"] < 100 || k.count["empty"] > 6 {
			t.Errorf("in 3 s there were %v calls, want only what keeps the empty instance in order", k.count)
		}
		r.stopWell()
	})
}

func TestAnIdleSharedPoolHardlyTalks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(50, false))
		for _, instance := range []string{"a", "b", "c"} {
			worker.Handle(r.sup, instance, returns(nil), worker.In("all", 1))
		}
		r.start()
		settle(10 * time.Second)
		before := r.fault.Seen()
		settle(200 * time.Second)
		if n := r.fault.Seen() - before; n > 600 {
			t.Errorf("%d commands in 200 s, want at most one a second and instance", n)
		}
		r.stopWell()
	})
}

func TestAWakeUpThatReachesABusyPoolIsPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(2, false))
		long := exactly(time.Minute)
		var busy diary
		worker.Handle(r.sup, "a", busy.takes("a", long), worker.In("all", 1))
		worker.Handle(r.sup, "b", busy.takes("b", nothing), worker.In("all", 1))
		r.start()
		settle(time.Second)
		r.enqueueMany("a", 2)
		settle(100 * time.Millisecond)
		if _, n, _ := busy.now(); n != 2 {
			t.Fatalf("%d jobs run, want 2", n)
		}
		other := r.second(worker.Config{})
		starts := other.serve("b", nothing)
		other.start()
		settle(time.Second)
		at := time.Now()
		r.enqueueMany("b", 1) // wakes who has waited longest: the one that is busy
		if d := (<-starts).Sub(at); d != 0 {
			t.Errorf("the job started after %v in the process that is idle, want at once", d)
		}
		other.stopWell()
		settle(2 * time.Minute)
		r.stopWell()
	})
}

func TestATimeThatComesToABusyPoolIsPassedOn(t *testing.T) {
	for range 5 { // which of the processes the store tells of the time is its to choose
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(2, false))
			var busy diary
			worker.Handle(r.sup, "a", busy.takes("a", exactly(time.Minute)), worker.In("all", 1))
			worker.Handle(r.sup, "b", busy.takes("b", nothing), worker.In("all", 1))
			r.start()
			settle(time.Second)
			other := r.second(worker.Config{})
			starts := other.serve("b", nothing)
			other.start()
			settle(5200 * time.Millisecond) // both have just looked
			at := time.Now()
			r.enqueue("b", nil, after(2*time.Second))
			settle(100 * time.Millisecond)
			r.enqueueMany("a", 2)
			if d := (<-starts).Sub(at); d != 2*time.Second {
				t.Errorf("the job started after %v in the process that is idle, want 2s", d)
			}
			other.stopWell()
			settle(2 * time.Minute)
			r.stopWell()
		})
	}
}
