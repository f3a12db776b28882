package worker_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
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
		f, starts := startTimes(nothing)
		worker.Handle(r.sup, "x", f, worker.Concurrency(1))
		r.start()
		r.enqueue("x", nil)
		synctest.Wait()
		idle := of[worker.JobStarted](r.events)[0].Worker
		// Somebody claims in its name, as if a claim of ours had been carried out after we gave it up.
		if err := r.st.Runtime().Client().Del(t.Context(), "stint:{x}:waiting").Err(); err != nil {
			t.Fatal(err) // so that nobody is woken
		}
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

func TestExpiredLeasesOfADeadProcessAreReapedWithinAQuarter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		f, starts := startTimes(nothing)
		worker.Handle(r.sup, "x", f)
		id := r.enqueue("x", nil)
		r.claimAs(uuid.New(), "x", 4*time.Second)
		at := time.Now()
		r.start()
		if d := (<-starts).Sub(at); d > 5*time.Second {
			t.Errorf("it runs again after %v, want a lease and a quarter at most", d)
		}
		synctest.Wait()
		if e := of[worker.JobReaped](r.events); len(e) != 1 || e[0].Job != id || e[0].Crashes != 1 || e[0].State != store.Todo {
			t.Errorf("events %+v, want one", e)
		}
		r.wantState(id, store.Done, 1, "")
		r.stopWell()
	})
}

func TestTrimmedJobsAndAnInconsistencyAreEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil), worker.Retention(10*time.Second, 3))
		r.start()
		r.enqueueMany("x", 10)
		settle(time.Minute)
		n := 0
		for _, e := range of[worker.Trimmed](r.events) {
			n += e.Count
		}
		if s := r.stats("x"); n != 10 || s.Total != 0 {
			t.Errorf("%d trimmed, %+v; want all", n, s)
		}
		if e := of[worker.Inconsistent](r.events); len(e) != 0 {
			t.Errorf("events %+v, want none", e)
		}
		if err := r.st.Runtime().Client().HSet(t.Context(), "stint:{x}:jobs", "a stray", "record").Err(); err != nil {
			t.Fatal(err)
		}
		settle(6 * time.Second)
		if e := of[worker.Inconsistent](r.events); len(e) == 0 || e[0].Missing != 1 || e[0].Instance != "x" {
			t.Errorf("events %+v, want some", e)
		}
		r.stopWell()
	})
}

func TestAProcessIsListedWhileItRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Node: "here", Lease: time.Second, Pools: []worker.Pool{{Name: "both", Concurrency: 3}}})
		worker.Handle(r.sup, "x", returns(nil), worker.In("both", 2))
		worker.Handle(r.sup, "y", returns(nil), worker.In("both", 1))
		worker.Handle(r.sup, "z", returns(nil))
		r.start()
		settle(time.Minute)
		ps, err := r.st.Processes(t.Context())
		if err != nil || len(ps) != 1 || ps[0].Node != "here" || !slices.Equal(ps[0].Instances, []string{"x", "y", "z"}) {
			t.Fatalf("processes %+v: %v", ps, err)
		}
		want := []store.Pool{{Name: "both", Concurrency: 3, Instances: []string{"x", "y"}}, {Concurrency: 10, Instances: []string{"z"}}}
		if !reflect.DeepEqual(ps[0].Pools, want) {
			t.Errorf("pools %+v, want %+v", ps[0].Pools, want)
		}
		r.stopWell()
		if ps, err = r.st.Processes(t.Context()); err != nil || len(ps) != 0 {
			t.Errorf("processes %+v after the stop: %v", ps, err)
		}
	})
}

func TestAResultIsKeptAndOneThatCantBeMakesTheJobDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.HandleResult(r.sup, "x", func(_ context.Context, n int) (any, error) {
			switch n {
			case 1:
				return make(chan int), nil
			case 2:
				return make([]byte, store.MaxPayload), nil
			case 3:
				return 1, errBoom
			}
			return map[string]int{"n": n}, nil
		}, worker.Retry(limitOne))
		r.start()
		want := []struct{ result, text string }{
			{`{"n":0}`, ""}, {"", "encoding the result: json: unsupported type: chan int"}, {"", "invalid: the result has "}, {"", "boom"},
		}
		for n, w := range want {
			id := r.enqueue("x", n)
			synctest.Wait()
			state := store.Dead
			if w.text == "" {
				state = store.Done
			}
			r.wantState(id, state, 1, w.text)
			if got := string(r.job(id).Result); got != w.result {
				t.Errorf("result %s, want %s", got, w.result)
			}
		}
		r.stopWell()
	})
}

func TestABrokenRecordIsBuriedWithoutAHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		f, starts := startTimes(nothing)
		worker.Handle(r.sup, "x", f)
		broken := r.enqueue("x", nil)
		good := r.enqueue("x", nil)
		if err := r.st.Runtime().Client().HSet(t.Context(), "stint:{x}:jobs", string(broken[:]), "garbage").Err(); err != nil {
			t.Fatal(err)
		}
		r.start()
		settle(time.Second)
		if s := r.stats("x"); s.Dead != 1 || s.Done != 1 || len(starts) != 1 {
			t.Errorf("%+v after %d attempts, want one dead and one done", s, len(starts))
		}
		r.wantState(good, store.Done, 1, "")
		r.stopWell()
	})
}

func TestAPayloadThatDoesNotDecodeIsDeadAtOnceAndTheReasonNamesTheField(t *testing.T) {
	type in struct {
		Size struct{ Width int }
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var got []in
		worker.Handle(r.sup, "x", func(_ context.Context, i in) error { got = append(got, i); return nil }, worker.Concurrency(1))
		r.start()
		bad := r.enqueue("x", json.RawMessage(`{"Size":{"Width":"wide"}}`))
		whole := r.enqueue("x", json.RawMessage(`[1]`))
		good := r.enqueue("x", json.RawMessage(`{"Size":{"Width":3}}`))
		settle(time.Second)
		r.wantState(bad, store.Dead, 1, `decoding the payload: field "Size.Width" is no int`)
		r.wantState(whole, store.Dead, 1, `decoding the payload: it is no worker_test.in`)
		r.wantState(good, store.Done, 1, "")
		if len(got) != 1 || got[0].Size.Width != 3 {
			t.Errorf("handled %+v, want the good one", got)
		}
		r.stopWell()
	})
}

func TestRawPayloadsPassThroughAndNoneIsNotLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var raw string
		worker.Handle(r.sup, "raw", func(_ context.Context, m json.RawMessage) error { raw = string(m); return nil })
		worker.Handle(r.sup, "none", returns(nil))
		r.start()
		a, b := r.enqueue("raw", []any{1, "a", nil}), r.enqueue("none", []int{1, 2})
		settle(time.Second)
		if raw != `[1,"a",null]` {
			t.Errorf("payload %s", raw)
		}
		r.wantState(a, store.Done, 1, "")
		r.wantState(b, store.Done, 1, "")
		r.stopWell()
	})
}

func TestADeploymentWithAnotherLeaseRunsNothingTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		other := r.second(worker.Config{Lease: 2 * time.Second})
		var d diary
		f := d.takes("x", func() time.Duration { return time.Minute })
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
