package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// BenchmarkSupervisor runs jobs that do nothing, all there before it starts, on a real server: 100 workers of one process.
func BenchmarkSupervisor(b *testing.B) {
	for name, opts := range map[string][]worker.HandleOption{
		"keeping none":      {worker.Retention(0, 0)},
		"default retention": nil,
	} {
		b.Run(name, func(b *testing.B) { benchSupervisor(b, opts) })
	}
}

func benchSupervisor(b *testing.B, opts []worker.HandleOption) {
	server := redistest.Start(b)
	st, err := store.Open(server.Client(b), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	prefill(b, st, "x", b.N)
	sup, err := worker.New(st, worker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	ctx, cancel := context.WithCancel(context.Background())
	worker.Handle(sup, "x", func(context.Context, struct{}) error {
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}, append(opts, worker.Concurrency(100))...)
	b.ReportAllocs()
	b.ResetTimer()
	must(b, sup.Run(ctx))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func prefill(b *testing.B, st *store.Store, instance string, n int) {
	b.Helper()
	var lane store.Lane
	for n > 0 {
		jobs := make([]store.NewJob, min(n, store.MaxCall))
		for i := range jobs {
			jobs[i] = store.NewJob{ID: uuid.New(), Payload: json.RawMessage(`"a payload of thirty-two bytes.."`)}
		}
		if _, err := st.Runtime().Enqueue(context.Background(), &lane, instance, jobs); err != nil {
			b.Fatal(err)
		}
		n -= len(jobs)
	}
}

func BenchmarkEnqueueByFiftyGoroutines(b *testing.B) {
	st, err := store.Open(redistest.Start(b).Client(b), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := worker.NewClient(st, worker.ClientConfig{})
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 50 {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if _, err := c.Enqueue(context.Background(), "bench", "a payload of some thirty bytes"); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func BenchmarkEnqueueMany(b *testing.B) {
	st, err := store.Open(redistest.Start(b).Client(b), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	reqs := slices.Repeat([]worker.Request{{Instance: "bench", Payload: "a payload of some thirty bytes"}}, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := worker.NewClient(st, worker.ClientConfig{}).EnqueueMany(b.Context(), reqs); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
