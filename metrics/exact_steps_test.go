package metrics_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// order is a handler that does all that can be done with steps, and notes it.
func (y *tally) order(ctx context.Context, fails bool) error {
	ran := false
	_, err := worker.Step(ctx, "charge", func(context.Context) (int, error) {
		ran = true
		y.add("committed")
		return 1, nil
	})
	if err != nil {
		return err
	}
	if !ran {
		y.add("replayed")
	}
	at, save, err := worker.Cursor[int](ctx, "rows")
	if err != nil {
		return err
	}
	if at > 0 {
		y.add("replayed")
	}
	for ; at < 3; at++ {
		if fails && at == 2 && !y.once(ctx) {
			return errors.New("failed")
		}
		if err := save(ctx, at+1); err != nil {
			return err
		}
		y.add("committed")
	}
	fs, err := worker.AsyncEach[int](ctx, "kid", "kid", []int{0, 1})
	if err != nil {
		return err
	}
	results, err := worker.WaitAll(ctx, fs)
	if err != nil {
		return y.parked(err)
	}
	for range results {
		y.add("replayed")
	}
	if err := worker.Sleep(ctx, "cool-off", time.Minute); err != nil {
		return y.parked(err)
	}
	y.add("replayed")
	return nil
}

// once is false for the first attempt of a job that comes here, true for those after it.
func (y *tally) once(ctx context.Context) bool {
	job, _ := worker.JobFrom(ctx)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.n[job.ID.String()]++
	return y.n[job.ID.String()] > 1
}

func (y *tally) parked(err error) error {
	if errors.Is(err, worker.ErrParked) {
		y.add("parked")
	}
	return err
}

// strandParents claims orders in the name of a process that dies with them, right after it has written down a child: before that was
// enqueued, or after the child has ended and its outcome was lost.
func strandParents(t *testing.T, st *store.Store, nowhere, ended int) {
	t.Helper()
	rt := st.Runtime()
	for i, l := range strand(t, st, "order", nowhere+ended) {
		const name = "kid/0"
		child := store.NewJob{ID: store.ChildID(&l.Job, name, l.Steps.Generation), Payload: []byte("0"),
			Parent: store.Parent{ID: l.Job.ID, Instance: "order", Step: name, Generation: l.Steps.Generation}}
		write := store.StepWrite{Name: name, Kind: store.AsyncStep, Instance: "kid", Child: child}
		if _, err := rt.Commit(t.Context(), l, store.StepLimits{Count: store.MaxSteps, Bytes: store.MaxStepBytes}, write); err != nil {
			t.Fatal(err)
		}
		if i < nowhere {
			continue
		}
		if _, err := rt.Enqueue(t.Context(), new(store.Lane), "kid", []store.NewJob{child}); err != nil {
			t.Fatal(err)
		}
		kid := strand(t, st, "kid", 1)[0]
		end := store.Finish{Lease: kid, Verb: store.Complete, Result: []byte("1")}
		if _, err := rt.Exchange(t.Context(), &store.Lane{}, terms("kid"), store.Exchange{Finishes: []store.Finish{end}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.Client().Del(t.Context(), "stint:{kid}:outbox").Err(); err != nil {
		t.Fatal(err)
	}
}

func TestStepsAndTicksAreCountedExactlyInOneProcess(t *testing.T) { stepsAndTicksAreExact(t, 1) }

func TestStepsAndTicksAreCountedExactlySummedOverThreeProcesses(t *testing.T) {
	stepsAndTicksAreExact(t, 3)
}

func stepsAndTicksAreExact(t *testing.T, processes int) {
	const orders, failing, nowhere, ended = 100, 40, 20, 10
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		truth := &tally{n: map[string]float64{}}
		var all []*process
		for range 2 * processes { // one half after the other
			p := newProcess(t, st, worker.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			worker.Handle(p.sup, "order", truth.order, worker.Concurrency(20), worker.Retry(retry.Fixed(time.Second)))
			worker.HandleResult(p.sup, "kid", func(context.Context, int) (int, error) { return 1, nil })
			worker.Handle(p.sup, "quick", func(context.Context, none) error { return nil })
			worker.Handle(p.sup, "slow", func(ctx context.Context, _ none) error {
				select {
				case <-time.After(12 * time.Minute):
				case <-ctx.Done():
				}
				return ctx.Err()
			})
			p.sup.Schedule(worker.Cron{Key: "quick", Spec: "@every 5m", Instance: "quick"},
				worker.Cron{Key: "slow", Spec: "@every 5m", Instance: "slow", SkipOverlap: true},
				worker.Cron{Key: "spoilt", Spec: "@every 5m", Instance: "spoilt"})
			all = append(all, p)
		}
		reqs := make([]worker.Request, orders)
		for i := range reqs {
			reqs[i] = worker.Request{Instance: "order", Payload: i < failing}
		}
		if _, err := all[0].client.EnqueueMany(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		strandParents(t, st, nowhere, ended)

		failed := 0
		for half := range 2 {
			var stops []func()
			for _, p := range all[half*processes : (half+1)*processes] {
				stops = append(stops, start(t, p.sup))
			}
			time.Sleep(time.Hour)
			if half == 0 {
				rdb := st.Runtime().Client()
				if err := rdb.SAdd(t.Context(), "stint:{spoilt}:parked", "not ours").Err(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(6 * time.Minute)
				failed = ticks(t, st, store.StatusFailed)["spoilt"]
				if err := rdb.Del(t.Context(), "stint:{spoilt}:parked").Err(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Hour)
			for _, stop := range stops {
				stop()
			}
			time.Sleep(2 * time.Hour) // nobody is there
		}
		var got []map[string]float64
		for _, p := range all {
			got = append(got, scrape(t, p.reg))
		}
		want := map[string]float64{
			"stint_steps_total{outcome=committed,stint_instance=order}":           truth.of("committed"),
			"stint_steps_total{outcome=replayed,stint_instance=order}":            truth.of("replayed"),
			"stint_steps_total{outcome=dropped,stint_instance=order}":             0,
			"stint_jobs_finished_total{outcome=parked,stint_instance=order}":      truth.of("parked"),
			"stint_jobs_finished_total{outcome=completed,stint_instance=order}":   orders,
			"stint_children_dispatched_total{stint_instance=order}":               2*orders - nowhere - ended,
			"stint_children_swept_total{outcome=dispatched,stint_instance=order}": nowhere,
			"stint_children_swept_total{outcome=found,stint_instance=order}":      ended,
			"stint_children_swept_total{outcome=lost,stint_instance=order}":       0,
			"stint_jobs_finished_total{outcome=completed,stint_instance=kid}":     2*orders - ended,
			"stint_cron_ticks_total{status=failed,stint_instance=spoilt}":         float64(failed),
			"stint_cron_ticks_total{status=failed,stint_instance=quick}":          0,
			"stint_events_dropped_total{}":                                        0,
		}
		if truth.of("committed") != 4*orders || failed == 0 {
			t.Errorf("%v steps were committed, want %d; %d ticks failed, want some", truth.of("committed"), 4*orders, failed)
		}
		for _, instance := range []string{"quick", "slow", "spoilt"} {
			done, skipped := ticks(t, st, store.StatusDispatched)[instance], ticks(t, st, store.StatusSkipped)[instance]
			skipped += ticks(t, st, store.StatusFailed)[instance] // what failed and then was not made up for keeps its record
			if done == 0 || skipped == 0 {
				t.Errorf("%d ticks of %s were dispatched, %d skipped", done, instance, skipped)
			}
			want["stint_cron_ticks_total{status=dispatched,stint_instance="+instance+"}"] = float64(done)
			want["stint_cron_ticks_total{status=skipped,stint_instance="+instance+"}"] = float64(skipped)
			want["stint_cron_lag_seconds{stint_instance="+instance+"}"] = float64(done)
		}
		wants(t, sum(got...), want)
	})
}

// ticks counts the records of ticks with a status, by entry.
func ticks(t *testing.T, st *store.Store, status string) map[string]int {
	t.Helper()
	n, f := map[string]int{}, store.DispatchFilter{Status: status, Limit: store.MaxCall}
	for {
		page, err := st.Dispatches(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Dispatches {
			n[d.Entry]++
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return n
		}
	}
}
