package metrics_test

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// speed runs n jobs that do nothing, all there before, with 100 workers on a real server, and returns how many it does in a second.
func speed(t *testing.T, n int, observed bool) float64 {
	t.Helper()
	var calls metrics.Calls
	o := store.Options{Prefix: redistest.Prefix(t)}
	if observed {
		o.OnCall = calls.Observe
	}
	st, err := store.Open(redistest.Shared(t).Client(t), o)
	if err != nil {
		t.Fatal(err)
	}
	reqs := slices.Repeat([]worker.Request{{Instance: "x", Payload: "a payload of thirty-two bytes..."}}, n)
	if _, err := worker.NewClient(st, worker.ClientConfig{}).EnqueueMany(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	col := metrics.New(st)
	var cfg worker.Config
	if observed {
		cfg.OnEvent = col.Observe
	}
	sup, err := worker.New(st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(n))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	worker.Handle(sup, "x", func(context.Context, none) error {
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}, worker.Concurrency(100), worker.Retention(0, 0))
	start := time.Now()
	if err := sup.Run(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if observed { // at full speed, too, nothing is missing
		wants(t, scrape(t, registry(t, col)), map[string]float64{
			"stint_jobs_finished_total{outcome=completed,stint_instance=x}": float64(n), "stint_jobs_claimed_total{stint_instance=x}": float64(n),
			"stint_job_wait_seconds{stint_instance=x}": float64(n), "stint_events_dropped_total{}": 0,
		})
	}
	if err := st.DeleteInstance(context.Background(), "x", true); err != nil {
		t.Fatal(err)
	}
	return float64(n) / took.Seconds()
}

// Metrics cost at most a twentieth of the throughput: with and without are measured in turns, so that whatever else the machine does meets
// both. It meets single rounds by far more than what is measured; so there are many, and the fifths with the greatest and the least ratios
// don't count. The short form finds only what is grossly wrong: an Observe of ten times the cost passes it. That Observe leaves no garbage is
// found without a clock, below.
func TestMetricsCostAtMostATwentiethOfTheThroughput(t *testing.T) {
	n, rounds, least := redistest.Size(5_000, 30_000), redistest.Size(1, 120), redistest.Size(0.1, 0.95)
	speed(t, n/2, true)                               // to warm up
	type round struct{ without, with, ratio float64 } // jobs a second
	var all []round
	for i := range rounds {
		var did [2]float64 // without, with
		for k := range 2 {
			which := (i + k) % 2
			did[which] = speed(t, n, which == 1)
		}
		all = append(all, round{did[0], did[1], did[1] / did[0]})
	}
	slices.SortFunc(all, func(a, b round) int { return cmp.Compare(a.ratio, b.ratio) })
	var sum round
	counted := all[rounds/5 : rounds-rounds/5]
	for _, r := range counted {
		sum = round{sum.without + r.without, sum.with + r.with, sum.ratio + r.ratio}
	}
	k := float64(len(counted))
	ratio := sum.ratio / k
	t.Logf("%.3f, from %.2f to %.2f; %.0f jobs a second with metrics, %.0f without", ratio, all[0].ratio, all[rounds-1].ratio, sum.with/k, sum.without/k)
	if ratio < least {
		t.Errorf("with metrics it does %.3f of what it does without, want %.2f", ratio, least)
	}
}

// Labels by name, or a text that is made for one, would allocate. (WithLabelValues does not; only its time tells.)
func TestObserveAllocatesNothing(t *testing.T) {
	col := metrics.New(nil)
	for _, e := range []worker.Event{
		worker.JobEnqueued{Instance: "x"}, worker.JobStarted{Instance: "x", Waited: time.Second},
		worker.JobFinished{Instance: "x", Outcome: worker.Completed, State: store.Done, Took: time.Millisecond, Age: time.Second},
		worker.LeasesExtended{Instance: "x", Leases: 5, Late: time.Millisecond}, worker.StepCommitted{Instance: "x"}, worker.StepReplayed{Instance: "x"},
	} {
		col.Observe(e) // the series are made
		if n := testing.AllocsPerRun(100, func() { col.Observe(e) }); n > 0 {
			t.Errorf("%T: %v allocations", e, n)
		}
	}
}
