package metrics_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

type none = struct{}

// process is a supervisor with its clients and its collector, as a process has them.
type process struct {
	t      *testing.T
	st     *store.Store
	col    *metrics.Collector
	sup    *worker.Supervisor
	client *worker.Client
	reg    *prometheus.Registry
}

func newProcess(t *testing.T, st *store.Store, cfg worker.Config) *process {
	t.Helper()
	p := &process{t: t, st: st, col: metrics.New(st)}
	cfg.OnEvent = p.col.Observe
	var err error
	if p.sup, err = worker.New(st, cfg); err != nil {
		t.Fatal(err)
	}
	p.client = worker.NewClient(st, worker.ClientConfig{OnEvent: p.col.Observe})
	p.reg = registry(t, p.col)
	return p
}

// fresh is a process with a store of its own.
func fresh(t *testing.T) *process {
	t.Helper()
	return newProcess(t, workertest.Store(t), worker.Config{})
}

// metered is a process whose registry has the calls of its store as well.
func metered(t *testing.T, cfg worker.Config) (*process, *metrics.Calls) {
	t.Helper()
	calls := &metrics.Calls{}
	st, err := store.OpenEmbedded(store.Options{OnCall: calls.Observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	p := newProcess(t, st, cfg)
	p.reg.MustRegister(calls)
	return p, calls
}

func (p *process) enqueue(instance string, opts ...worker.EnqueueOption) {
	p.t.Helper()
	if _, err := p.client.Enqueue(p.t.Context(), instance, nil, opts...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) deleteInstance(instance string) {
	p.t.Helper()
	if err := p.st.DeleteInstance(p.t.Context(), instance, true); err != nil {
		p.t.Fatal(err)
	}
}

// hook has h come between the process and its server.
func (p *process) hook(h redis.Hook) { p.st.Runtime().Client().(*redis.Client).AddHook(h) }

// registry returns a fresh one.
func registry(t *testing.T, all ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return reg
}

// scrape returns the values of all counters and gauges, and the counts of histograms, by name and labels in the order of their names.
func scrape(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			values[name(f, m)] = value(m)
		}
	}
	return values
}

func name(f *dto.MetricFamily, m *dto.Metric) string {
	labels := make([]string, len(m.Label))
	for i, l := range m.Label {
		labels[i] = l.GetName() + "=" + l.GetValue()
	}
	return f.GetName() + "{" + strings.Join(labels, ",") + "}"
}

func value(m *dto.Metric) float64 {
	if m.Histogram != nil {
		return float64(m.Histogram.GetSampleCount())
	}
	return m.Counter.GetValue() + m.Gauge.GetValue()
}

// wants checks some of the values; what is not there reads as 0.
func wants(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			t.Errorf("%s is %v, want %v", k, got[k], want[k])
		}
	}
}

// start runs a supervisor and returns what stops it.
func start(t *testing.T, sup *worker.Supervisor) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := sup.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); run.Wait() }
}
