package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func Example() {
	var calls metrics.Calls
	st, _ := store.OpenEmbedded(store.Options{OnCall: calls.Observe})
	defer st.Close()
	col := metrics.New(st)
	registry := prometheus.NewRegistry()
	registry.MustRegister(col, &calls)

	client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
	_, _ = client.Enqueue(context.Background(), "mail", "hello")

	families, _ := registry.Gather() // or promhttp.HandlerFor(registry, ...)
	for _, f := range families {
		if name := f.GetName(); name == "stint_jobs_enqueued_total" || name == "stint_store_up" {
			fmt.Println(name, value(f.Metric[0]))
		}
	}
	// Output:
	// stint_jobs_enqueued_total 1
	// stint_store_up 1
}
