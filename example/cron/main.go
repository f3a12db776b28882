// Cron schedules two entries and shows what becomes of their ticks: one fires every two seconds, the other each night in Paris.
//
//	go run ./example/cron                          # ten seconds, on a server inside the process
//	go run ./example/cron -redis localhost:6379    # start it several times: each tick still runs once
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // the zones come with the program: a bare container has none

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Report is what the nightly job is about.
type Report struct{ Name string }

func entries() []worker.Cron {
	return []worker.Cron{
		{Key: "heartbeat", Spec: "@every 2s", Instance: "beats", CatchUp: worker.NoCatchUp},
		{Key: "report/nightly", Spec: "30 2 * * *", Zone: "Europe/Paris", Instance: "reports", Payload: Report{"sales"},
			SkipOverlap: true, Window: 12 * time.Hour},
	}
}

func main() {
	addr := flag.String("redis", "", "address of a Redis; without it a server inside the process is used")
	runFor := flag.Duration("for", 10*time.Second, "how long to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *runFor)
	defer cancel()
	if err := start(ctx, *addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func start(ctx context.Context, addr string, out io.Writer) error {
	var st *store.Store
	var err error
	if addr == "" {
		st, err = store.OpenEmbedded(store.Options{})
	} else {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		st, err = store.Open(rdb, store.Options{Prefix: "stint-cron"})
	}
	if err != nil {
		return err
	}
	defer st.Close()
	return run(ctx, st, out)
}

// run schedules the entries until ctx ends, and prints then what the registry has.
func run(ctx context.Context, st *store.Store, out io.Writer) error {
	sup, err := worker.New(st, worker.Config{Node: fmt.Sprint("process-", os.Getpid())})
	if err != nil {
		return err
	}
	worker.Handle(sup, "beats", func(ctx context.Context, _ any) error {
		tick, _ := worker.TickFrom(ctx)
		_, err := fmt.Fprintf(out, "beat of %s\n", tick.At.Format(time.TimeOnly))
		return err
	})
	worker.Handle(sup, "reports", func(ctx context.Context, r Report) error {
		tick, _ := worker.TickFrom(ctx) // false when it was run by hand
		_, err := fmt.Fprintf(out, "report on %s, on all since %v\n", r.Name, tick.Previous)
		return err
	})
	for _, c := range entries() {
		if err := explain(out, c); err != nil {
			return err
		}
	}
	sup.Schedule(entries()...)
	if err := sup.Run(ctx); err != nil {
		return err
	}
	page, err := st.Dispatches(context.WithoutCancel(ctx), store.DispatchFilter{Limit: 5})
	if err != nil {
		return err
	}
	for _, d := range page.Dispatches {
		fmt.Fprintf(out, "%s at %s: %s by %s, %v late\n", d.Entry, d.FireAt.Format(time.TimeOnly), d.Status, d.Node, d.DispatchedAt.Sub(d.FireAt))
	}
	return nil
}

// explain says in words when an entry fires, and when it does next.
func explain(out io.Writer, c worker.Cron) error {
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		return err
	}
	spec, err := worker.ParseSpec(c.Spec, zone)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %v\n", c.Key, spec)
	for _, tick := range spec.Upcoming(time.Now(), 3) {
		_, err = fmt.Fprintf(out, "  %v\n", tick)
	}
	return err
}
