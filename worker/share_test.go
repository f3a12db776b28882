package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// shared is a Config with one pool.
func shared(concurrency int, strict bool) worker.Config {
	return worker.Config{Pools: []worker.Pool{{Name: "all", Concurrency: concurrency, Strict: strict}}}
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
		starts := r.serve("urgent", nothing, worker.In("all", 1))
		var d diary
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
		long := exactly(2 * time.Minute)
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

func TestJobsOfAllInstancesOfASharedPoolAreKeptByHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := shared(4, false)
		cfg.Lease = time.Second
		r := newRig(t, cfg)
		var d diary
		for _, instance := range []string{"a", "b"} {
			worker.Handle(r.sup, instance, d.takes(instance, exactly(10*time.Second)), worker.In("all", 1))
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
		must(t, r.st.Cancel(t.Context(), b))
		synctest.Wait()
		r.wantState(b, store.Cancelled, 1, worker.ErrCancelled.Error())
		r.wantState(a, store.Doing, 1, "")
		must(t, r.st.Cancel(t.Context(), a))
		synctest.Wait()
		r.stopWell()
	})
}
