// Package metrics shows a process and its jobs to Prometheus.
//
//	var calls metrics.Calls
//	st, err := store.Open(rdb, store.Options{OnCall: calls.Observe})
//	col := metrics.New(st)
//	prometheus.MustRegister(col, &calls)
//	sup, err := worker.New(st, worker.Config{OnEvent: col.Observe})
//	client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
//	http.Handle("/metrics", promhttp.Handler())
//
// What this process has done comes from the events of its supervisors and clients, of which there may be any number, none
// included. What is in the store is asked for when it is scraped, at most once a second, and is the same in all processes: take
// the max of it, not the sum. docs/metrics.md lists the metrics.
//
// dashboard.json is a dashboard for Grafana, alerts.yml has rules for Prometheus.
package metrics
