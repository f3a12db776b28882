// Service is an HTTP service that does its work in jobs: it counts the words of texts.
//
//	go run ./example/service [-addr localhost:8080] [-redis addr] [-report spec]
//
//	curl -d 'to be or not to be' localhost:8080/texts      # {"id":"..."}, at once
//	curl localhost:8080/texts/ID                           # {"state":"done","words":6,"distinct":4}
//	curl --data-binary @book localhost:8080/books          # each chapter is a job of its own; then as a text
//	curl localhost:8080/metrics                            # for Prometheus
//	curl localhost:8080/healthz localhost:8080/readyz      # for Kubernetes
//
// Without -redis the jobs are in this process and end with it. With it they are in Redis, and any number of these processes share
// them. SIGTERM drains: /readyz says no from then on, jobs that run are finished, then it exits with status 0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/health"
	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/middleware"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "the `address` to listen on")
	spec := flag.String("report", "@hourly", "when a report is written to the log, as a `line` of cron")
	redisAddr := flag.String("redis", "", "the `address` of a Redis, such as localhost:6379, that keeps the jobs")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, *addr, *redisAddr, *spec); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then finishes what it has begun.
func run(ctx context.Context, addr, redisAddr, spec string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var calls metrics.Calls
	st, err := open(redisAddr, store.Options{OnCall: calls.Observe})
	if err != nil {
		return err
	}
	defer st.Close()

	col := metrics.New(st)
	registry := prometheus.NewRegistry()
	registry.MustRegister(col, &calls)

	sup, err := worker.New(st, worker.Config{
		Logger: log, OnEvent: col.Observe,
		Middleware: []worker.Middleware{middleware.Logging(nil)},
	})
	if err != nil {
		return err
	}
	worker.HandleResult(sup, instance, count, worker.Concurrency(20), worker.Retry(retry.Limit(5, nil)))
	worker.HandleResult(sup, books, countBook)
	worker.Handle(sup, reports, report(st, log))
	sup.Schedule(worker.Cron{Key: "report", Spec: spec, Instance: reports, Payload: struct{}{}})
	client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})

	mux := http.NewServeMux()
	(&api{client, st}).register(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", health.Live(sup))
	mux.Handle("GET /readyz", health.Ready(sup))
	return serve(ctx, addr, mux, sup)
}

func open(addr string, o store.Options) (*store.Store, error) {
	if addr == "" {
		return store.OpenEmbedded(o)
	}
	return store.Open(redis.NewClient(&redis.Options{Addr: addr}), o)
}

// serve runs the server and the supervisor. The server stays until the supervisor has drained: whoever asks is told that the
// process is no longer ready, and the last of the metrics can be fetched.
func serve(ctx context.Context, addr string, h http.Handler, sup *worker.Supervisor) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}

	running, finish := context.WithCancel(ctx) // ends with ctx, or when the server can't go on
	defer finish()
	var serving sync.WaitGroup
	var served error
	serving.Go(func() {
		defer finish()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			served = err
		}
	})
	err = sup.Run(running)
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(closing))
	serving.Wait()
	return errors.Join(err, served)
}
