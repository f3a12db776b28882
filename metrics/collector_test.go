package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

func TestTheNamesAreThoseThatPrometheusWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, calls := metered(t, worker.Config{})
		worker.Handle(p.sup, "mail", func(context.Context, none) error { return nil })
		p.sup.Schedule(worker.Cron{Key: "hourly", Spec: "@hourly", Instance: "mail"})
		workertest.Start(t, p.sup)
		calls.Observe("counting", time.Second, store.ErrServer)
		p.col.Observe(worker.LoopFailed{Loop: "reap"})
		p.enqueue("mail")
		synctest.Wait()
		families, err := p.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "stint_") {
				t.Errorf("%s is named as if it were not ours", f.GetName())
			}
			for _, l := range f.Metric[0].Label {
				if l.GetName() == "instance" || l.GetName() == "job" {
					t.Errorf("%s has the label %s, which Prometheus gives to what it scrapes", f.GetName(), l.GetName())
				}
			}
		}
		if len(families) < 33 {
			t.Errorf("only %d metrics", len(families))
		}
	})
}

func TestASecondCollectorOnARegistryIsRefused(t *testing.T) {
	st := workertest.Store(t)
	reg := registry(t, metrics.New(st))
	err := reg.Register(metrics.New(st))
	var already prometheus.AlreadyRegisteredError
	if !errors.As(err, &already) {
		t.Errorf("the second is registered with %v", err)
	}
	reg = registry(t)
	for _, label := range []string{"a", "b"} {
		if err := prometheus.WrapRegistererWith(prometheus.Labels{"store": label}, reg).Register(metrics.New(st)); err != nil {
			t.Errorf("each with a label of its own: %v", err)
		}
	}
	if _, err := reg.Gather(); err != nil {
		t.Error(err)
	}
}

func TestSeveralSupervisorsOfAProcessShareACollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		p := newProcess(t, st, worker.Config{Pools: []worker.Pool{{Name: "all", Concurrency: 3}}})
		other, err := worker.New(st, worker.Config{OnEvent: p.col.Observe})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		hold := func(context.Context, none) error { <-release; return nil }
		worker.Handle(p.sup, "a", hold, worker.In("all", 1))
		worker.Handle(p.sup, "b", hold, worker.In("all", 1))
		worker.Handle(other, "c", hold, worker.Concurrency(2))
		workertest.Start(t, p.sup)
		workertest.Start(t, other)
		synctest.Wait()
		wants(t, scrape(t, p.reg), map[string]float64{
			"stint_workers{pool=all,state=idle,stint_instance=}": 3, "stint_workers{pool=,state=idle,stint_instance=c}": 2,
		})
		for _, instance := range []string{"a", "b", "c", "c", "c"} {
			p.enqueue(instance)
		}
		time.Sleep(2 * time.Second)
		wants(t, scrape(t, p.reg), map[string]float64{
			"stint_workers{pool=all,state=idle,stint_instance=}": 1, "stint_workers{pool=all,state=busy,stint_instance=}": 2,
			"stint_workers{pool=,state=idle,stint_instance=c}": 0, "stint_workers{pool=,state=busy,stint_instance=c}": 2,
			"stint_live_workers{stint_instance=a}": 3, "stint_live_workers{stint_instance=c}": 2, "stint_live_processes{}": 2,
			"stint_jobs{state=todo,stint_instance=c}": 1, "stint_jobs_claimed_total{stint_instance=c}": 2,
		})
		close(release)
	})
}

func TestCallsTellTheReasonsOfFailuresFromEachOtherAndFromAnswers(t *testing.T) {
	calls := &metrics.Calls{}
	reg := registry(t, calls)
	few := &store.ReplicasError{Acknowledged: 0, Wanted: 1}
	for _, err := range []error{
		nil, store.ErrNotFound, fmt.Errorf("reading a job: %w", store.ErrTerminal), context.Canceled,
		store.ErrServer, &store.KeyError{}, errors.Join(&store.KeyError{}, &store.KeyError{}), fmt.Errorf("enqueuing: %w", few),
		errors.New("EOF"), context.DeadlineExceeded, fmt.Errorf("%w yet: %w", store.ErrUntold, context.DeadlineExceeded),
	} {
		calls.Observe("reading a job", time.Millisecond, err)
	}
	wants(t, scrape(t, reg), map[string]float64{
		"stint_store_call_seconds{op=reading a job}":                    11,
		"stint_store_errors_total{op=reading a job,reason=refused}":     1,
		"stint_store_errors_total{op=reading a job,reason=foreign_key}": 2,
		"stint_store_errors_total{op=reading a job,reason=replicas}":    1,
		"stint_store_errors_total{op=reading a job,reason=unanswered}":  2,
	})
}

// loopNames finds the loops whose outages are told.
var loopNames = regexp.MustCompile(`loop\.Name\{Loop: "([^"]+)"`)

func TestWhatCountsFailuresIsThereBeforeTheFirst(t *testing.T) {
	calls := &metrics.Calls{}
	calls.Observe("enqueuing", time.Millisecond, nil)
	got := scrape(t, registry(t, metrics.New(nil), calls))
	for _, reason := range []string{"refused", "foreign_key", "replicas", "unanswered"} {
		if _, there := got["stint_store_errors_total{op=enqueuing,reason="+reason+"}"]; !there {
			t.Errorf("there is no count of what is %s", reason)
		}
	}
	files, err := filepath.Glob("../worker/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	found := 0
	for _, file := range files {
		for _, m := range loopNames.FindAllStringSubmatch(read(t, file), -1) {
			if m[1] == "endings" { // a client's, which tells of no outage
				continue
			}
			found++
			if _, there := got["stint_outages_total{loop="+m[1]+"}"]; !there {
				t.Errorf("there is no count of the outages of %q", m[1])
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d loops", found)
	}
}

func TestALabelThatIsNoTextTakesNothingElseWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		p := newProcess(t, st, worker.Config{Pools: []worker.Pool{{Name: "\xff"}}})
		worker.Handle(p.sup, "mail", func(context.Context, none) error { return nil }, worker.In("\xff", 1))
		workertest.Start(t, p.sup)
		p.enqueue("mail")
		if err := st.Runtime().Client().SAdd(t.Context(), "stint:instances", "\xff\xfe").Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wants(t, scrape(t, p.reg), map[string]float64{
			"stint_store_up{}": 1, "stint_jobs{state=done,stint_instance=mail}": 1, "stint_jobs_claimed_total{stint_instance=mail}": 1,
		})
	})
}

func TestAProcessThatBeginsAnewTellsAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const began = "stint_start_time_seconds{}"
		now := float64(time.Now().UnixMilli()) / 1000
		reg := registry(t, metrics.New(nil))
		time.Sleep(time.Minute)
		wants(t, scrape(t, reg), map[string]float64{began: now})
		wants(t, scrape(t, registry(t, metrics.New(nil))), map[string]float64{began: now + 60})
	})
}

// Where each instance that goes is looked for among all, an event takes half a minute; it takes a few milliseconds at most.
func TestThousandsOfInstancesThatGoAtOnceHoldUpNobodyWhoCounts(t *testing.T) {
	col := metrics.New(workertest.Store(t))
	const n = 5000
	for i := range n {
		col.Observe(worker.JobEnqueued{Instance: fmt.Sprint("tenant", i)})
	}
	reg := registry(t, col)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := reg.Gather(); err != nil {
			t.Error(err)
		}
	}()
	slowest := time.Duration(0)
	for gone := false; !gone; {
		select {
		case <-done:
			gone = true
		default:
		}
		began := time.Now()
		col.Observe(worker.JobEnqueued{Instance: "busy"})
		slowest = max(slowest, time.Since(began))
	}
	if slowest > 2*time.Second {
		t.Errorf("an event took %v", slowest)
	}
	if got := len(scrape(t, reg)); got > 1000 {
		t.Errorf("%d series are left", got)
	}
}

func TestEveryEventIsCounted(t *testing.T) {
	col := metrics.New(nil)
	reg := registry(t, col)
	job := uuid.New()
	all := []worker.Event{
		worker.EntryRefused{}, worker.EntryReplaced{}, worker.RunStarted{}, worker.RunStopped{}, // these have no counter
		worker.JobEnqueued{Instance: "x", Job: job},
		worker.JobStarted{Instance: "x", Job: job, Waited: time.Second},
		worker.JobFinished{Instance: "x", Job: job, Outcome: worker.Retried, State: store.Scheduled, Took: time.Second},
		worker.JobFinished{Instance: "x", Job: job, Outcome: worker.Retried, State: store.Cancelled, Took: time.Second, Age: time.Minute},
		worker.JobFinished{Instance: "x", Job: job, Outcome: worker.Parked, State: store.Parked, Took: time.Second},
		worker.JobFinished{Instance: "x", Job: job, Outcome: "new", State: "new"}, // of a later version
		worker.JobReaped{Instance: "x", State: store.Todo}, worker.JobReaped{Instance: "x", State: store.Dead},
		worker.JobExpired{Instance: "x"}, worker.LeaseLost{Instance: "x"}, worker.StaleWrite{Instance: "x"},
		worker.Trimmed{Instance: "x", State: store.Dead, Count: 7}, worker.Trimmed{Instance: "x", Count: 3},
		worker.Inconsistent{Instance: "x"}, worker.Audited{Instance: "x", Jobs: []uuid.UUID{job, job}},
		worker.LeasesExtended{Instance: "x", Leases: 5, Late: time.Millisecond}, worker.LeasesExtended{Instance: "x", Err: errors.New("gone")},
		worker.StepCommitted{Instance: "x"}, worker.StepReplayed{Instance: "x"}, worker.StepReplayed{Instance: "x"}, worker.StepDropped{Instance: "x"}, worker.ChildDispatched{Instance: "x", To: "y"},
		worker.ChildSwept{Instance: "x", To: "y", Outcome: worker.SweptAgain}, worker.ChildSwept{Instance: "x", Outcome: worker.SweptLost}, worker.ChildSwept{Instance: "x", Outcome: "new"},
		worker.TickDispatched{Instance: "x", Status: store.StatusDispatched, Late: time.Second}, worker.TickDispatched{Instance: "x", Status: store.StatusDispatched, Late: -time.Second},
		worker.TickDispatched{Instance: "x", Status: store.StatusSkipped, Late: 300 * time.Hour}, worker.TickDispatched{Instance: "x", Status: store.StatusFailed}, worker.TickDispatched{Instance: "x", Status: "new"},
		worker.LoopFailed{Loop: "reap", Instance: "x"}, worker.LoopRecovered{Loop: "reap"}, worker.EventsDropped{Count: 11},
	}
	seen := map[string]bool{}
	for _, e := range all {
		col.Observe(e)
		seen[fmt.Sprintf("%T", e)] = true
	}
	for _, file := range []string{"event.go", "step_event.go"} {
		src, err := os.ReadFile("../worker/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func \((\w+)\) event\(\)`).FindAllSubmatch(src, -1) {
			if !seen["worker."+string(m[1])] {
				t.Errorf("worker.%s is not among them", m[1])
			}
		}
	}
	wants(t, scrape(t, reg), map[string]float64{
		"stint_jobs_enqueued_total{stint_instance=x}": 1, "stint_jobs_claimed_total{stint_instance=x}": 1, "stint_job_wait_seconds{stint_instance=x}": 1,
		"stint_jobs_finished_total{outcome=retried,stint_instance=x}": 1, "stint_jobs_finished_total{outcome=aborted,stint_instance=x}": 1,
		"stint_jobs_finished_total{outcome=parked,stint_instance=x}":    1,
		"stint_jobs_finished_total{outcome=completed,stint_instance=x}": 0, "stint_job_run_seconds{stint_instance=x}": 3, "stint_job_life_seconds{stint_instance=x}": 1,
		"stint_jobs_reaped_total{state=todo,stint_instance=x}": 1, "stint_jobs_reaped_total{state=dead,stint_instance=x}": 1,
		"stint_jobs_expired_total{stint_instance=x}": 1, "stint_leases_lost_total{stint_instance=x}": 1, "stint_stale_writes_total{stint_instance=x}": 1,
		"stint_jobs_trimmed_total{state=dead,stint_instance=x}": 7, "stint_jobs_trimmed_total{state=any,stint_instance=x}": 3,
		"stint_inconsistencies_total{stint_instance=x}": 1, "stint_jobs_audited_total{stint_instance=x}": 2,
		"stint_heartbeats_total{result=ok,stint_instance=x}": 1, "stint_heartbeats_total{result=failed,stint_instance=x}": 1,
		"stint_steps_total{outcome=committed,stint_instance=x}": 1, "stint_steps_total{outcome=replayed,stint_instance=x}": 2, "stint_steps_total{outcome=dropped,stint_instance=x}": 1,
		"stint_children_dispatched_total{stint_instance=x}": 1, "stint_children_swept_total{outcome=dispatched,stint_instance=x}": 1,
		"stint_children_swept_total{outcome=found,stint_instance=x}": 0, "stint_children_swept_total{outcome=lost,stint_instance=x}": 1,
		"stint_cron_ticks_total{status=dispatched,stint_instance=x}": 2, "stint_cron_ticks_total{status=skipped,stint_instance=x}": 1,
		"stint_cron_ticks_total{status=failed,stint_instance=x}": 1, "stint_cron_lag_seconds{stint_instance=x}": 2,
		"stint_heartbeat_lateness_seconds{stint_instance=x}": 1, "stint_outages_total{loop=reap}": 1, "stint_events_dropped_total{}": 11,
	})
}

func TestHistogramsHaveClassicAndNativeBuckets(t *testing.T) {
	col := metrics.New(nil)
	col.Observe(worker.JobStarted{Instance: "x", Waited: 7 * time.Millisecond})
	families, err := registry(t, col).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "stint_job_wait_seconds" {
			continue
		}
		h := f.Metric[0].Histogram
		first, last := h.Bucket[0].GetUpperBound(), h.Bucket[len(h.Bucket)-1].GetUpperBound()
		if first != 0.001 || last != 3600 || h.Schema == nil || len(h.PositiveSpan) == 0 {
			t.Errorf("buckets from %v to %v, native ones %v", first, last, h.PositiveSpan)
		}
		return
	}
	t.Error("there is no such metric")
}
