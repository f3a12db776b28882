// Package stint is a worker-pool runtime for Go services, on Redis.
//
// An application registers plain Go functions by the name of an instance. A supervisor runs a pool of goroutines for each, which
// claim jobs, extend their leases while a function runs, and end them by what it returns. What a crash leaves behind is
// claimed again.
//
//	st, err := store.Open(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), store.Options{})
//	sup, err := worker.New(st, worker.Config{})
//	worker.Handle(sup, "mail", func(ctx context.Context, m Mail) error { return send(ctx, m) })
//	err = sup.Run(ctx) // until ctx ends, then drains
//
// and, there or in any other process,
//
//	client := worker.NewClient(st, worker.ClientConfig{})
//	id, err := client.Enqueue(ctx, "mail", Mail{To: "you@example.com"}, worker.Delay(time.Hour))
//
// This package holds no code, only the module's story as tests. The packages are:
//
//   - [github.com/stint-go/stint/worker]: supervisor, handlers, client
//   - [github.com/stint-go/stint/store]: what is kept in Redis; reading and administration; the embedded server
//   - [github.com/stint-go/stint/retry]: when a failed job runs again
//   - [github.com/stint-go/stint/middleware]: what can be wrapped around handlers: logging, reports of panics, a circuit breaker, encryption
//   - [github.com/stint-go/stint/tracing]: traces that go from who enqueues a job to who runs it, with OpenTelemetry
//   - [github.com/stint-go/stint/metrics]: for Prometheus; a dashboard and alerts
//   - [github.com/stint-go/stint/health]: liveness and readiness, for Kubernetes
//   - [github.com/stint-go/stint/worker/workertest]: for tests of your handlers, days of fake time included
//
// docs/architecture.md says how it works and where each promise is kept and tested, docs/decisions.md why it is as it is.
package stint
