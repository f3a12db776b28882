package metrics_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// tally is what handlers know to have happened.
type tally struct {
	mu sync.Mutex
	n  map[string]float64
}

func (y *tally) add(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.n[what]++
}

func (y *tally) of(what string) float64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.n[what]
}

// handle does what the payload asks for, and notes it.
func (y *tally) handle(ctx context.Context, want string) (err error) {
	y.add("claimed")
	time.Sleep(time.Millisecond)
	job, _ := worker.JobFrom(ctx)
	outcome := "completed"
	defer func() {
		y.add(outcome)
		if outcome == "completed" || outcome == "buried" || outcome == "aborted" {
			y.add("ended")
		}
	}()
	if want == "linger" {
		<-ctx.Done()
		outcome = "aborted"
		if context.Cause(ctx) == worker.ErrShutdown { //nolint:errorlint // it is that very error
			outcome = "released"
		}
		return ctx.Err()
	}
	if job.Progress != nil || want == "complete" { // it is tried again
		return nil
	}
	if err := worker.Progress(ctx, "tried"); err != nil {
		return err
	}
	switch outcome = map[string]string{"fail": "retried", "panic": "retried", "snooze": "snoozed", "bury": "buried"}[want]; want {
	case "fail":
		return errors.New("failed")
	case "panic":
		panic("oops")
	case "snooze":
		return worker.Snooze(time.Minute)
	default:
		return retry.Permanent(errors.New("hopeless"))
	}
}

// terms are those of a process of its own.
func terms(instance string) store.Terms {
	return store.Terms{Instance: instance, Process: uuid.New(), Lease: worker.DefaultLease, MaxCrashes: 3, Period: 5 * time.Second}
}

// strand claims jobs in the name of a process that dies with them.
func strand(t *testing.T, st *store.Store, instance string, n int) []*store.Lease {
	t.Helper()
	workers := make([]uuid.UUID, n)
	for i := range workers {
		workers[i] = uuid.New()
	}
	got, err := st.Runtime().Exchange(t.Context(), &store.Lane{}, terms(instance), store.Exchange{Claims: workers})
	if err != nil || len(got.Leases) != n {
		t.Fatalf("%d jobs of %s were claimed, %v", len(got.Leases), instance, err)
	}
	return got.Leases
}

func sum(all ...map[string]float64) map[string]float64 {
	total := map[string]float64{}
	for _, one := range all {
		for k, v := range one {
			if strings.HasPrefix(k, "stint_jobs{") || strings.HasPrefix(k, "stint_live") { // the same in all
				total[k] = v
			} else {
				total[k] += v
			}
		}
	}
	return total
}

func TestCountersAreExactAfterTenThousandJobsOfEveryOutcomeInOneProcess(t *testing.T) {
	countersAreExact(t, 1, redistest.Size(5_000, 10_000)) // the three processes have all of them in a short run, too
}

func TestCountersAreExactAfterTenThousandJobsOfEveryOutcomeSummedOverThreeProcesses(t *testing.T) {
	countersAreExact(t, 3, 10_000)
}

func countersAreExact(t *testing.T, processes, total int) {
	const aWhile = 25 * time.Minute // a supervisor that believes to be alone looks every 10
	const lingering, stranded, fragile, late = 60, 30, 10, 25
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		truth := &tally{n: map[string]float64{}}
		cfg := worker.Config{DrainTimeout: time.Millisecond, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
		var all []*process
		var stops []func()
		for range processes + 1 { // the one more is a process that ends in between, whose last scrape counts as well
			p := newProcess(t, st, cfg)
			worker.Handle(p.sup, "x", truth.handle, worker.Concurrency(80), worker.Retry(retry.Fixed(time.Second)), worker.Retention(0, total/2), worker.Timeout(0))
			worker.Handle(p.sup, "fragile", truth.handle, worker.MaxCrashes(1))
			all = append(all, p)
		}
		enqueue := func(instance, what string, n int, opts ...worker.EnqueueOption) {
			t.Helper()
			reqs := make([]worker.Request, n)
			for i := range reqs {
				reqs[i] = worker.Request{Instance: instance, Payload: what, Options: opts}
			}
			if _, err := all[n%processes].client.EnqueueMany(t.Context(), reqs); err != nil {
				t.Fatal(err)
			}
		}
		enqueue("x", "complete", stranded)
		enqueue("fragile", "complete", fragile)
		strand(t, st, "x", stranded)
		strand(t, st, "fragile", fragile)
		enqueue("x", "linger", lingering, worker.Priority(10))
		enqueue("x", "complete", late, worker.Delay(time.Hour), worker.Deadline(time.Now().Add(time.Minute)))
		for what, n := range map[string]int{"fail": 1500, "panic": 100, "snooze": 1000, "bury": 500} {
			enqueue("x", what, n)
		}
		enqueue("x", "complete", total-stranded-fragile-lingering-late-3100)

		leave := start(t, all[processes].sup)
		defer leave()
		for truth.of("claimed") < lingering { // the first of all, so that it is the one that holds what lingers
			time.Sleep(100 * time.Microsecond)
		}
		for _, p := range all[:processes] {
			stop := start(t, p.sup)
			defer stop()
			stops = append(stops, stop)
		}
		time.Sleep(aWhile)
		leave()
		time.Sleep(aWhile)
		page, err := st.List(t.Context(), store.Filter{Instance: "x", State: store.Doing, Limit: 1000})
		if err != nil || len(page.Jobs) != lingering {
			t.Fatalf("%d jobs linger, %v", len(page.Jobs), err)
		}
		for _, job := range page.Jobs {
			if err := st.Cancel(t.Context(), job.ID); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(aWhile)
		got := make([]map[string]float64, len(all))
		for i, p := range all {
			got[i] = scrape(t, p.reg)
		}
		for _, stop := range stops {
			stop()
		}
		values := sum(got...)
		want := map[string]float64{
			"stint_jobs_enqueued_total{stint_instance=x}": float64(total - fragile), "stint_jobs_enqueued_total{stint_instance=fragile}": fragile,
			"stint_jobs_claimed_total{stint_instance=x}": truth.of("claimed"), "stint_job_wait_seconds{stint_instance=x}": truth.of("claimed"),
			"stint_job_run_seconds{stint_instance=x}": truth.of("claimed"), "stint_job_life_seconds{stint_instance=x}": truth.of("ended"),
			"stint_jobs_expired_total{stint_instance=x}":           late,
			"stint_jobs_reaped_total{state=todo,stint_instance=x}": stranded, "stint_jobs_reaped_total{state=dead,stint_instance=x}": 0,
			"stint_jobs_reaped_total{state=dead,stint_instance=fragile}": fragile, "stint_jobs_claimed_total{stint_instance=fragile}": 0,
			"stint_stale_writes_total{stint_instance=x}": 0, "stint_leases_lost_total{stint_instance=x}": 0, "stint_events_dropped_total{}": 0,
		}
		for _, outcome := range []string{"completed", "retried", "snoozed", "released", "buried", "aborted"} {
			if truth.of(outcome) == 0 {
				t.Errorf("no job was %s", outcome)
			}
			want["stint_jobs_finished_total{outcome="+outcome+",stint_instance=x}"] = truth.of(outcome)
		}
		stats, err := st.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x := stats[1]
		want["stint_jobs{state=done,stint_instance=x}"], want["stint_jobs{state=dead,stint_instance=x}"] = float64(x.Done), float64(x.Dead)
		wants(t, values, want)
		trimmed := 0.0
		for k := range maps.Keys(values) {
			if strings.HasPrefix(k, "stint_jobs_trimmed_total{") && strings.HasSuffix(k, "stint_instance=x}") {
				trimmed += values[k]
			}
		}
		if kept := float64(x.Total); x.Done != int64(total/2) || trimmed+kept != float64(total-fragile) {
			t.Errorf("%v jobs were trimmed, %v are kept (%d done), of %d", trimmed, kept, x.Done, total-fragile)
		}
	})
}
