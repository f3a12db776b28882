package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestAJobOfTenLeaseLengthsRunsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: time.Second})
		runs := 0
		long := func(ctx context.Context, _ none) error {
			runs++
			time.Sleep(10 * time.Second)
			return ctx.Err()
		}
		worker.Handle(r.sup, "x", long)
		r.start()
		other := r.second(worker.Config{Lease: time.Second})
		worker.Handle(other.sup, "x", long)
		other.start()
		id := r.enqueue("x", nil)
		settle(15 * time.Second)
		if runs != 1 {
			t.Errorf("it ran %d times", runs)
		}
		r.wantState(id, store.Done, 1, "")
		r.stopWell()
		other.stopWell()
	})
}

// heaviest notes how many bytes a request had at most.
type heaviest struct{ bytes atomic.Int64 }

func (h *heaviest) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	n := int64(0)
	for _, arg := range cmd.Args() {
		if b, ok := arg.([]byte); ok {
			n += int64(len(b))
		}
	}
	for old := h.bytes.Load(); n > old && !h.bytes.CompareAndSwap(old, n); old = h.bytes.Load() {
	}
	return next(ctx, cmd)
}

func TestARequestHasAboutAMiBHoweverMuchWorkersReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const workers, size = 200, store.MaxProgress - 2
		report := strings.Repeat("x", size)
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		var most heaviest
		r.intercept(most.intercept)
		worker.HandleResult(r.sup, "x", func(ctx context.Context, _ none) (string, error) {
			if err := worker.Progress(ctx, report); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Second)
			return report, nil
		}, worker.Concurrency(workers))
		r.start()
		r.enqueueMany("x", workers)
		settle(1500 * time.Millisecond)
		reported := 0
		for cursor := ""; ; {
			page, err := r.st.List(t.Context(), store.Filter{Instance: "x", State: store.Doing, Limit: 1000, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				if len(j.Progress) == size+2 {
					reported++
				}
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if reported != workers {
			t.Errorf("%d of %d reports have arrived with a heartbeat", reported, workers)
		}
		settle(10 * time.Second)
		if s := r.stats("x"); s.Done != workers {
			t.Errorf("stats are %+v, want %d done", s, workers)
		}
		if got := most.bytes.Load(); got > 2<<20 {
			t.Errorf("the largest request has %d bytes, want about a MiB", got)
		}
		r.stopWell()
	})
}

func TestProgressTravelsWithTheNextHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			for i := range 4 {
				if err := worker.Progress(ctx, map[string]int{"part": i}); err != nil {
					t.Error(err)
				}
				time.Sleep(1500 * time.Millisecond)
			}
			return worker.Progress(ctx, "last")
		})
		r.start()
		id := r.enqueue("x", nil)
		settle(2600 * time.Millisecond)
		if p := string(r.job(id).Progress); p != `{"part":1}` {
			t.Errorf("progress %s after the second heartbeat", p)
		}
		settle(time.Minute)
		if j := r.job(id); string(j.Progress) != `"last"` || j.State != store.Done {
			t.Errorf("the job is %s with progress %s", j.State, j.Progress)
		}
		r.stopWell()
	})
}

func TestTheNextAttemptSeesTheProgressOfTheLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var seen []string
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			j, _ := worker.JobFrom(ctx)
			if seen = append(seen, string(j.Progress)+j.LastError); len(seen) == 2 {
				return nil
			}
			_ = worker.Progress(ctx, 7)
			return errBoom
		})
		r.start()
		r.enqueue("x", nil)
		settle(3 * time.Second)
		if len(seen) != 2 || seen[1] != "7boom" {
			t.Errorf("seen %q, want the progress and the error", seen)
		}
		r.stopWell()
	})
}

// steal ends the lease of a job behind its worker's back, as a reaper would have if the process had been stopped.
func (r *rig) steal(instance string, id uuid.UUID) {
	r.t.Helper()
	ctx, rt := context.Background(), r.st.Runtime()
	terms := store.Terms{Instance: instance, Process: uuid.New(), Lease: time.Second, MaxCrashes: 3}
	_, found, err := rt.Heartbeat(ctx, terms, nil, []uuid.UUID{r.job(id).Worker})
	if err != nil || len(found) != 1 || found[0].Job.ID != id {
		r.t.Fatalf("found %v: %v", found, err)
	}
	var lane store.Lane
	got, err := rt.Exchange(ctx, &lane, terms, store.Exchange{Finishes: []store.Finish{{Lease: found[0], Verb: store.Release}}})
	if err != nil || got.Ended[0] != store.Todo {
		r.t.Fatalf("ended %v: %v", got, err)
	}
}

// claimAs claims a job for a worker of some other process.
func (r *rig) claimAs(w uuid.UUID, instance string, lease time.Duration) {
	r.t.Helper()
	var lane store.Lane
	terms := store.Terms{Instance: instance, Process: uuid.New(), Lease: lease, MaxCrashes: 3}
	got, err := r.st.Runtime().Exchange(context.Background(), &lane, terms, store.Exchange{Claims: []uuid.UUID{w}})
	if err != nil || len(got.Leases) != 1 {
		r.t.Fatalf("claimed %v: %v", got, err)
	}
}

func TestALostLeaseIsToldByTheHeartbeatAndTheLateFinishIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		runs := 0
		var cause, progress error
		var took time.Duration
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			if runs++; runs == 2 {
				time.Sleep(10 * time.Second)
				return nil
			}
			start := time.Now()
			<-ctx.Done()
			cause, took = context.Cause(ctx), time.Since(start)
			progress = worker.Progress(ctx, "late")
			return nil
		})
		r.start()
		id := r.enqueue("x", nil)
		settle(2500 * time.Millisecond)
		first := r.job(id).Worker
		r.steal("x", id)
		settle(time.Second)
		if cause != worker.ErrLeaseLost || took > 3*time.Second || progress != worker.ErrLeaseLost {
			t.Errorf("cause %v after %v, progress: %v; want ErrLeaseLost with the next heartbeat", cause, took, progress)
		}
		if runs != 2 {
			t.Fatalf("%d attempts, want the job taken by another worker", runs)
		}
		r.wantState(id, store.Doing, 1, "")
		if e := of[worker.StaleWrite](r.events); len(e) != 1 || e[0].Worker != first || e[0].Outcome != worker.Completed {
			t.Errorf("events %+v, want one late completion", e)
		}
		if e := of[worker.LeaseLost](r.events); len(e) != 1 || e[0].Worker != first || e[0].Job != id {
			t.Errorf("events %+v, want one", e)
		}
		settle(10 * time.Second)
		r.wantState(id, store.Done, 1, "")
		r.stopWell()
	})
}

func TestWhatAnIdleWorkerHoldsWithoutKnowingIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		starts := r.serve("x", nothing, worker.Concurrency(1))
		r.start()
		r.enqueue("x", nil)
		synctest.Wait()
		idle := of[worker.JobStarted](r.events)[0].Worker
		// Somebody claims in its name, as if a claim of ours had been carried out after we gave it up.
		must(t, r.st.Runtime().Client().Del(t.Context(), "stint:{x}:waiting").Err()) // so that nobody is woken
		id := r.enqueue("x", nil)
		r.claimAs(idle, "x", 4*time.Second)
		r.wantState(id, store.Doing, 1, "")
		settle(3500 * time.Millisecond) // the heartbeat that asks for such, before the next look for jobs
		r.wantState(id, store.Done, 1, "")
		if j := r.job(id); len(starts) != 2 || j.Crashes != 0 {
			t.Errorf("%d attempts, %d crashes; want 2 and none", len(starts), j.Crashes)
		}
		r.stopWell()
	})
}

func TestADeploymentWithAnotherLeaseRunsNothingTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		other := r.second(worker.Config{Lease: 2 * time.Second})
		var d diary
		f := d.takes("x", exactly(time.Minute))
		worker.Handle(r.sup, "x", f)
		worker.Handle(other.sup, "x", f)
		r.enqueueMany("x", 1)
		r.start()
		settle(time.Second)
		other.start()
		settle(3 * time.Minute)
		n, _, most := d.now()
		if n != 1 {
			t.Errorf("a job ran %d times, %d at once", n, most)
		}
		other.stopWell()
		r.stopWell()
	})
}
