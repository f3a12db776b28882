package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestAGlobalLimitHoldsOverProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.latency(time.Millisecond)
		other := r.second(worker.Config{})
		var d diary
		f := d.takes("x", about(10*time.Millisecond))
		worker.Handle(r.sup, "x", f, worker.GlobalLimit(3))
		worker.Handle(other.sup, "x", f, worker.GlobalLimit(3))
		r.start()
		other.start()
		r.enqueueMany("x", 300)
		settle(3 * time.Second) // 100 rounds of 10 ms and a few round trips
		if n, _, most := d.now(); most != 3 || n != 300 {
			t.Errorf("%d jobs were run, at most %d at once; want 300 and 3", n, most)
		}
		other.stopWell()
		r.stopWell()
	})
}

func TestALimitThatIsReachedBurnsNoAttemptAndFreesItselfAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: time.Second})
		starts := r.serve("x", nothing, worker.GlobalLimit(1))
		held := r.enqueue("x", nil)
		dead := store.Terms{Instance: "x", Process: theID, Lease: time.Second, MaxCrashes: 3, Limit: 1}
		var lane store.Lane
		got, err := r.st.Runtime().Exchange(t.Context(), &lane, dead, store.Exchange{Claims: workers(1)})
		if err != nil || len(got.Leases) != 1 {
			t.Fatalf("claimed %+v: %v", got, err)
		}
		r.start()
		id := r.enqueue("x", nil)
		settle(900 * time.Millisecond)
		if len(starts) != 0 {
			t.Error("a job was started beside the one that the limit allows")
		}
		r.wantState(id, store.Todo, 0, "")
		settle(3 * time.Second)
		r.wantState(id, store.Done, 1, "")
		r.wantState(held, store.Done, 1, "")
		r.stopWell()
	})
}

func TestARateHoldsOverProcessesAndSpreadsStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		other := r.second(worker.Config{})
		starts := make(chan time.Time, 1000)
		f := func(context.Context, none) error { starts <- time.Now(); return nil }
		worker.Handle(r.sup, "x", f, worker.Rate(100, time.Second))
		worker.Handle(other.sup, "x", f, worker.Rate(100, time.Second))
		r.enqueueMany("x", 1000)
		at := time.Now()
		r.start()
		other.start()
		settle(5 * time.Second)
		if n := len(starts); n < 475 || n > 525 {
			t.Errorf("%d starts in 5 s, want 500 within 5 %%", n)
		}
		early := 0
		for range len(starts) {
			if (<-starts).Sub(at) <= time.Second {
				early++
			}
		}
		if early < 90 || early > 115 {
			t.Errorf("%d of them within the first second, want them spread", early)
		}
		other.stopWell()
		r.stopWell()
	})
}

func TestALimitedInstanceOfASharedPoolHoldsNobodyUp(t *testing.T) {
	for _, strict := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(4, strict))
			var limited, paced, free diary
			worker.Handle(r.sup, "limited", limited.takes("limited", about(10*time.Millisecond)), worker.In("all", 100), worker.GlobalLimit(1))
			worker.Handle(r.sup, "paced", paced.takes("paced", about(10*time.Millisecond)), worker.In("all", 100), worker.Rate(10, time.Second))
			worker.Handle(r.sup, "free", free.takes("free", about(10*time.Millisecond)), worker.In("all", 1))
			for _, instance := range []string{"limited", "paced", "free"} {
				r.enqueueMany(instance, 300)
			}
			r.start()
			settle(time.Second)
			if n, _, _ := free.now(); n < 100 {
				t.Errorf("strict %v: %d of the jobs without a limit were run in a second, want those of about three workers", strict, n)
			}
			if n, _, most := limited.now(); most != 1 || n < 40 {
				t.Errorf("strict %v: %d limited jobs were run, at most %d at once; want those of a worker, one at a time", strict, n, most)
			}
			if n, _, _ := paced.now(); n < 9 || n > 13 {
				t.Errorf("strict %v: %d jobs of a rate of 10 a second were run, want 10", strict, n)
			}
			settle(time.Minute)
			r.stopWell()
		})
	}
}

func TestAttemptsEndByThePolicyOrByMaxAttemptsWhicheverIsFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		most, limit, want int
	}{
		"the job's":    {2, 5, 2},
		"the policy's": {5, 2, 2},
		"only one":     {1, 25, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				attempts := 0
				worker.Handle(r.sup, "x", func(context.Context, none) error { attempts++; return errBoom }, worker.Retry(limitTo(tc.limit)))
				r.start()
				id := r.accepts(r.client(), "x", nil, worker.MaxAttempts(tc.most))
				settle(time.Minute)
				if attempts != tc.want {
					t.Errorf("%d attempts, want %d", attempts, tc.want)
				}
				r.wantState(id, store.Dead, tc.want, "boom")
				r.stopWell()
			})
		})
	}
}
