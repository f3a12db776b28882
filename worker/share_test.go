package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// shared is a Config with one pool.
func shared(concurrency int, strict bool) worker.Config {
	return worker.Config{Pools: []worker.Pool{{Name: "all", Concurrency: concurrency, Strict: strict}}}
}

// diary notes which instances' jobs start, in their order, and how many run at once.
type diary struct {
	mu            sync.Mutex
	starts        []string
	running, most int
}

// takes returns a handler whose attempts take d.
func (d *diary) takes(instance string, long func() time.Duration) func(context.Context, none) error {
	return func(context.Context, none) error {
		d.mu.Lock()
		d.starts = append(d.starts, instance)
		d.running++
		d.most = max(d.most, d.running)
		d.mu.Unlock()
		time.Sleep(long())
		d.mu.Lock()
		d.running--
		d.mu.Unlock()
		return nil
	}
}

// now returns how many have started, how many run, and how many ran at once at most.
func (d *diary) now() (starts, running, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.starts), d.running, d.most
}

// count is how many of the first n starts are of each instance.
func (d *diary) count(n int) map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := map[string]int{}
	for _, s := range d.starts[:min(n, len(d.starts))] {
		c[s]++
	}
	return c
}

func about(d time.Duration) func() time.Duration {
	return func() time.Duration { return d/2 + rand.N(d) }
}

func TestSharesFollowTheWeightsWhileAllInstancesAreFull(t *testing.T) {
	for name, long := range map[string][3]time.Duration{
		"jobs alike":             {10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		"the heavy one is slow":  {40 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		"jobs that take nothing": {2, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, shared(20, false))
				r.latency(time.Millisecond)
				var d diary
				for i, weight := range []int{6, 3, 1} {
					instance := fmt.Sprint("x", weight)
					worker.Handle(r.sup, instance, d.takes(instance, about(long[i])), worker.In("all", weight))
					r.enqueueMany(instance, 100*weight)
				}
				r.start()
				settle(time.Minute)
				c := d.count(700) // while even the first to run dry still has some
				for instance, want := range map[string]int{"x6": 420, "x3": 210, "x1": 70} {
					if got := c[instance]; got < want*9/10 || got > want*11/10 {
						t.Errorf("the first 700 jobs are %v, want 420, 210 and 70 within 10%%", c)
					}
				}
				if n, _, _ := d.now(); n != 1000 {
					t.Errorf("%d jobs were run, want 1,000", n)
				}
				r.stopWell()
			})
		})
	}
}

func TestTheLightestOfAPoolDoesNotStarve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(4, false))
		var d diary
		worker.Handle(r.sup, "heavy", d.takes("heavy", about(10*time.Millisecond)), worker.In("all", 100))
		worker.Handle(r.sup, "light", d.takes("light", about(10*time.Millisecond)), worker.In("all", 1))
		r.enqueueMany("heavy", 800)
		r.enqueueMany("light", 20)
		r.start()
		settle(time.Minute)
		if c := d.count(606); c["light"] < 5 || c["light"] > 8 {
			t.Errorf("the first 606 jobs are %v, want 1 of 101 light", c)
		}
		r.stopWell()
	})
}

func TestAStrictPoolServesInTheOrderOfRegistration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(10, true))
		r.latency(time.Millisecond)
		var d diary
		for i := range 3 {
			instance := fmt.Sprint(i + 1)
			worker.Handle(r.sup, instance, d.takes(instance, about(10*time.Millisecond)), worker.In("all", 1))
		}
		for _, instance := range []string{"3", "1", "2"} {
			r.enqueueMany(instance, 200)
		}
		r.start()
		settle(time.Minute)
		for i, instance := range d.starts {
			if want := fmt.Sprint(i/200 + 1); instance != want {
				t.Fatalf("job %d is of instance %s, want %s", i+1, instance, want)
			}
		}
		if len(d.starts) != 600 {
			t.Errorf("%d jobs were run, want 600", len(d.starts))
		}
		r.stopWell()
	})
}

func TestInAStrictPoolWhatComesForAnEarlierInstanceGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(2, true))
		f, starts := startTimes(nothing)
		var d diary
		worker.Handle(r.sup, "urgent", f, worker.In("all", 1))
		worker.Handle(r.sup, "bulk", d.takes("bulk", about(100*time.Millisecond)), worker.In("all", 1))
		r.enqueueMany("bulk", 1000)
		r.start()
		for range 20 {
			settle(time.Second + rand.N(time.Second))
			at := time.Now()
			r.enqueueMany("urgent", 1)
			if d := (<-starts).Sub(at); d > 150*time.Millisecond {
				t.Errorf("an urgent job started after %v, want the next free worker", d)
			}
		}
		r.stopWell()
	})
}

func TestTheConcurrencyOfASharedPoolIsThatOfAllItsInstances(t *testing.T) {
	for _, strict := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(4, strict))
			var d diary
			for _, instance := range []string{"a", "b", "c"} {
				worker.Handle(r.sup, instance, d.takes(instance, about(time.Second)), worker.In("all", 1))
				r.enqueueMany(instance, 20)
			}
			r.start()
			settle(time.Minute)
			if n, _, most := d.now(); most != 4 || n != 60 {
				t.Errorf("%d jobs run, at most %d at once; want 60 and 4", n, most)
			}
			r.stopWell()
		})
	}
}

func TestASharedPoolAsWideAsCanBeDefaultsToTenAndOthersKeepTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(0, false))
		var all, own diary
		long := func() time.Duration { return 2 * time.Minute }
		worker.Handle(r.sup, "a", all.takes("a", long), worker.In("all", 1))
		worker.Handle(r.sup, "b", all.takes("b", long), worker.In("all", 1))
		worker.Handle(r.sup, "own", own.takes("own", long), worker.Concurrency(3))
		for _, instance := range []string{"a", "b", "own"} {
			r.enqueueMany(instance, 12)
		}
		r.start()
		settle(time.Minute)
		_, inAll, _ := all.now()
		_, inOwn, _ := own.now()
		if inAll != 10 || inOwn != 3 {
			t.Errorf("%d and %d jobs run, want 10 in the shared pool and 3 in the other", inAll, inOwn)
		}
		settle(30 * time.Minute)
		r.stopWell()
	})
}

func TestNoWakeUpOfASharedPoolIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(100, false))
		r.latency(time.Millisecond)
		instances := []string{"a", "b", "c"}
		starts := map[string]chan time.Time{}
		for i, instance := range instances {
			var f func(context.Context, none) error
			f, starts[instance] = startTimes(func() time.Duration { return rand.N(20 * time.Millisecond) })
			worker.Handle(r.sup, instance, f, worker.In("all", i+1))
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
		long := func() time.Duration { return time.Minute }
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
		f, starts := startTimes(nothing)
		worker.Handle(other.sup, "b", f)
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

func TestJobsOfAllInstancesOfASharedPoolAreKeptByHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := shared(4, false)
		cfg.Lease = time.Second
		r := newRig(t, cfg)
		var d diary
		for _, instance := range []string{"a", "b"} {
			worker.Handle(r.sup, instance, d.takes(instance, func() time.Duration { return 10 * time.Second }), worker.In("all", 1))
			r.enqueueMany(instance, 2)
		}
		r.start()
		settle(time.Minute)
		if n := len(of[worker.JobFinished](r.events)); n != 4 || len(d.starts) != 4 {
			t.Errorf("%d attempts, %d ended; want 4 of each", len(d.starts), n)
		}
		r.stopWell()
	})
}

func TestASharedPoolStopsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := shared(4, false)
		cfg.DrainTimeout = 5 * time.Second
		r := newRig(t, cfg)
		r.latency(time.Millisecond)
		var cut atomic.Int32
		worker.Handle(r.sup, "short", func(context.Context, none) error { time.Sleep(2 * time.Second); return nil }, worker.In("all", 1))
		worker.Handle(r.sup, "long", func(ctx context.Context, _ none) error {
			<-ctx.Done()
			if context.Cause(ctx) == worker.ErrShutdown {
				cut.Add(1)
			}
			return ctx.Err()
		}, worker.In("all", 1))
		r.enqueueMany("short", 10)
		r.enqueueMany("long", 10)
		r.start()
		settle(time.Second)
		at := time.Now()
		r.stopWell()
		if d := time.Since(at); d < 5*time.Second || d > 5100*time.Millisecond {
			t.Errorf("the stop took %v, want the drain timeout of 5s", d)
		}
		short, long := r.stats("short"), r.stats("long")
		if cut.Load() != 2 || short.Done != 2 || short.Todo != 8 || long.Todo != 10 {
			t.Errorf("%d were told, %+v, %+v; want 2 told, 2 done and the rest todo", cut.Load(), short, long)
		}
	})
}

func TestAJobOfASharedPoolIsCancelledWhereItRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(4, false))
		untilCancelled := func(ctx context.Context, _ none) error { <-ctx.Done(); return context.Cause(ctx) }
		worker.Handle(r.sup, "a", untilCancelled, worker.In("all", 1))
		worker.Handle(r.sup, "b", untilCancelled, worker.In("all", 1))
		r.start()
		a, b := r.enqueue("a", nil), r.enqueue("b", nil)
		settle(time.Second)
		if err := r.st.Cancel(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.wantState(b, store.Cancelled, 1, worker.ErrCancelled.Error())
		r.wantState(a, store.Doing, 1, "")
		if err := r.st.Cancel(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.stopWell()
	})
}

func TestWhateverSingleCommandFailsTheJobsOfASharedPoolRunOnce(t *testing.T) {
	for n := 1; n <= 24; n++ {
		for lose, arm := range map[bool]func(*redistest.Fault, int) <-chan struct{}{
			false: func(f *redistest.Fault, n int) <-chan struct{} { return f.FailNth(n) },
			true:  func(f *redistest.Fault, n int) <-chan struct{} { return f.LoseReplyNth(n) },
		} {
			bubble(t, func(t *testing.T) {
				r := newRig(t, shared(2, false))
				var d diary
				worker.Handle(r.sup, "a", d.takes("a", nothing), worker.In("all", 2))
				worker.Handle(r.sup, "b", d.takes("b", nothing), worker.In("all", 1))
				r.enqueueMany("a", 6)
				r.enqueueMany("b", 6)
				struck := arm(r.fault, n)
				r.start()
				settle(10 * time.Second)
				r.stopWell()
				if ended := len(of[worker.JobFinished](r.events)); len(d.starts) != 12 || ended != 12 {
					t.Errorf("command %d, reply lost %v: %d attempts, %d ended; want each job done once", n, lose, len(d.starts), ended)
				}
				if !came(struck) {
					t.Errorf("there was no command %d", n)
				}
			})
		}
	}
}

func TestAForeignKeyInOneInstanceOfASharedPoolLeavesItsWorkersToTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, strict := range []bool{true, false} {
			r := newRig(t, shared(4, strict))
			redis := r.st.Runtime().Client()
			if err := redis.Set(t.Context(), "stint:{bad}:todo", "foreign", 0).Err(); err != nil {
				t.Fatal(err)
			}
			var d diary
			worker.Handle(r.sup, "bad", d.takes("bad", nothing), worker.In("all", 9))
			worker.Handle(r.sup, "good", d.takes("good", about(10*time.Millisecond)), worker.In("all", 1))
			r.enqueueMany("good", 1000)
			r.start()
			settle(5 * time.Second)
			if n := d.count(1000)["good"]; n != 1000 {
				t.Errorf("strict %v: %d jobs of the good instance were run in 5 s, want all 1,000", strict, n)
			}
			if err := redis.Del(t.Context(), "stint:{bad}:todo").Err(); err != nil {
				t.Fatal(err)
			}
			r.enqueueMany("bad", 1)
			settle(10 * time.Second)
			if n := d.count(2000)["bad"]; n != 1 {
				t.Errorf("strict %v: %d jobs of the other were run when its key was gone, want 1", strict, n)
			}
			r.stopWell()
		}
	})
}

// outage fails the commands that name one instance, as a Cluster does while the node that has its slot is down.
type outage struct {
	instance string
	on       atomic.Bool
}

func (o *outage) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	var words []string
	for _, a := range cmd.Args() {
		words = append(words, fmt.Sprint(a))
	}
	if o.on.Load() && redistest.Mentions("{"+o.instance+"}")(words) {
		err := errors.New("CLUSTERDOWN Hash slot not served")
		cmd.SetErr(err)
		return err
	}
	return next(ctx, cmd)
}

// What holds jobs of that one, or may hold some, has to wait; the other slots need not.
func TestAnInstanceThatCannotBeReachedTakesNoMoreWorkersOfItsPool(t *testing.T) {
	for _, strict := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(6, strict))
			o := &outage{instance: "gone"}
			r.intercept(o.intercept)
			var d diary
			for _, instance := range []string{"gone", "good"} {
				worker.Handle(r.sup, instance, d.takes(instance, about(10*time.Millisecond)), worker.In("all", 1))
				r.enqueueMany(instance, 1000)
			}
			o.on.Store(strict) // from the beginning, or all workers would be at work for it
			r.start()
			settle(100 * time.Millisecond)
			o.on.Store(true)
			settle(30 * time.Second)
			if c := d.count(2000); c["good"] != 1000 || c["gone"] > 900 {
				t.Errorf("strict %v: while the other can't be reached %v were started, want all 1,000 of the good one", strict, c)
			}
			o.on.Store(false)
			settle(30 * time.Second)
			if c := d.count(3000); c["gone"] != 1000 {
				t.Errorf("strict %v: in the end %v were started, want 1,000 of each", strict, c)
			}
			r.stopWell()
		})
	}
}

func TestATimeThatComesToABusyPoolIsPassedOn(t *testing.T) {
	for range 5 { // which of the processes the store tells of the time is its to choose
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(2, false))
			var busy diary
			worker.Handle(r.sup, "a", busy.takes("a", func() time.Duration { return time.Minute }), worker.In("all", 1))
			worker.Handle(r.sup, "b", busy.takes("b", nothing), worker.In("all", 1))
			r.start()
			settle(time.Second)
			other := r.second(worker.Config{})
			f, starts := startTimes(nothing)
			worker.Handle(other.sup, "b", f)
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

func TestALookAtAnInstanceThatCannotBeReachedLeavesWorkersToTheOthers(t *testing.T) {
	for _, strict := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(2, strict))
			o := &outage{instance: "gone"}
			r.intercept(o.intercept)
			var d diary
			for _, instance := range []string{"gone", "good"} {
				worker.Handle(r.sup, instance, d.takes(instance, nothing), worker.In("all", 1))
			}
			r.start()
			settle(time.Second)
			o.on.Store(true)
			settle(10 * time.Second) // it looks by itself meanwhile
			r.enqueueMany("good", 100)
			settle(time.Second)
			if c := d.count(200); c["good"] != 100 {
				t.Errorf("strict %v: %v were started, want all of the good one", strict, c)
			}
			o.on.Store(false)
			r.stopWell()
		})
	}
}
