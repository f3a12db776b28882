package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/worker"
)

// fuse is a handler whose attempts take a second and do what they are told.
type fuse struct {
	mu      sync.Mutex
	do      func(ctx context.Context) error
	diary   diary
	problem error
}

func (f *fuse) set(do func(ctx context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = do
}

func (f *fuse) handle(ctx context.Context, _ none) error {
	f.mu.Lock()
	do := f.do
	f.mu.Unlock()
	if do != nil {
		if err := do(ctx); err != nil {
			f.mu.Lock()
			f.problem = err
			f.mu.Unlock()
		}
	}
	return f.diary.takes("x", exactly(time.Second))(ctx, none{})
}

func trips(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return worker.Trip(ctx, d) }
}

func (f *fuse) want(t *testing.T, when string, starts, running int) {
	t.Helper()
	synctest.Wait()
	if n, now, _ := f.diary.now(); n != starts || now != running {
		t.Errorf("%s: %d jobs were started, %d run; want %d and %d", when, n, now, starts, running)
	}
}

func TestATrippedInstanceClaimsNothingThenOneAtATimeThenAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var f fuse
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(8)) // as many as ask at first
		f.set(trips(time.Minute))
		r.enqueueMany("x", 200)
		r.start()
		f.want(t, "at first", 8, 8)
		f.set(nil)
		time.Sleep(59*time.Second + 500*time.Millisecond)
		f.want(t, "tripped", 8, 0)
		before := r.fault.Seen()
		time.Sleep(400 * time.Millisecond)
		if n := r.fault.Seen() - before; n > 5 {
			t.Errorf("%d commands in 400 ms of doing nothing", n)
		}
		time.Sleep(600 * time.Millisecond) // 500 ms after the minute
		f.want(t, "one at a time", 9, 1)
		time.Sleep(9 * time.Second)
		f.want(t, "still one at a time", 18, 1)
		f.set(trips(time.Minute))
		time.Sleep(time.Second)
		f.set(nil)
		f.want(t, "tripped anew", 19, 1)
		time.Sleep(58 * time.Second)
		f.want(t, "still tripped", 19, 0)
		f.set(trips(0))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, now, most := f.diary.now(); now != 8 || most != 8 || n < 27 {
			t.Errorf("untripped: %d jobs were started, %d run, %d at most", n, now, most)
		}
		r.stopWell()
		if s := r.stats("x"); s.Doing != 0 || s.Dead != 0 || f.problem != nil {
			t.Errorf("%+v, %v", s, f.problem)
		}
	})
}

func TestATrippedInstanceHandsItsWakeUpsOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var f fuse
		worker.Handle(r.sup, "x", f.handle)
		f.set(trips(time.Hour))
		r.start()
		r.enqueue("x", nil)
		settle(2 * time.Second)
		other := r.second(worker.Config{})
		var g diary
		worker.Handle(other.sup, "x", g.takes("x", exactly(time.Millisecond)), worker.Concurrency(1))
		other.start()
		settle(7 * time.Second) // both wait to be woken, and the tripped one was there first
		for range 5 {
			r.enqueue("x", nil)
			settle(50 * time.Millisecond)
		}
		if n, _, _ := g.now(); n != 5 {
			t.Errorf("the other process has run %d jobs, want 5", n)
		}
		f.want(t, "tripped", 1, 0)
		other.stopWell()
		r.stopWell()
	})
}

func TestATrippedInstanceOfAPoolLeavesItsWorkersToTheOthers(t *testing.T) {
	for name, strict := range map[string]bool{"by weight": false, "strict": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, shared(4, strict))
				var f fuse
				var g diary
				worker.Handle(r.sup, "x", f.handle, worker.In("all", 9)) // the first in a strict pool
				worker.Handle(r.sup, "y", g.takes("y", exactly(time.Second)), worker.In("all", 1))
				f.set(trips(time.Minute))
				r.enqueueMany("x", 100)
				r.enqueueMany("y", 100)
				r.start()
				settle(20*time.Second + time.Second/2)
				x, _, _ := f.diary.now()
				y, running, _ := g.now()
				if x > 4 || x+y != 84 || running != 4 {
					t.Errorf("x has started %d jobs, y %d, of which %d run; want 4 at most, the rest of 84, and 4", x, y, running)
				}
				f.set(nil)
				time.Sleep(50 * time.Second) // y has run dry
				synctest.Wait()
				more, now, _ := f.diary.now()
				if more <= x || now != 1 {
					t.Errorf("after a minute x has started %d more and runs %d, want one at a time", more-x, now)
				}
				r.stopWell()
			})
		})
	}
}

func TestAnOutageWhileTrippedChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var f fuse
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(3))
		f.set(trips(time.Minute))
		r.enqueueMany("x", 100)
		r.start()
		f.want(t, "at first", 3, 3)
		f.set(nil)
		time.Sleep(10 * time.Second)
		r.fault.Unplug()
		time.Sleep(70 * time.Second)
		r.fault.Plug()
		time.Sleep(20 * time.Second)
		if n, _, most := f.diary.now(); n < 10 || n > 24 || most != 3 {
			t.Errorf("%d jobs were started, want one a second since Redis is back", n)
		}
		f.set(trips(-1))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, now, _ := f.diary.now(); now != 3 {
			t.Errorf("%d run, want 3", now)
		}
		r.stopWell()
	})
}

func TestTripIsForHandlersAlone(t *testing.T) {
	if err := worker.Trip(t.Context(), time.Second); !errors.Is(err, worker.ErrNoJob) {
		t.Errorf("%v", err)
	}
}
