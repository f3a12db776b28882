// Webhooks delivers events to other people's servers, which misbehave: an example of retries, Retry-After and a circuit breaker.
//
//	go run ./example/webhooks [-n events] [-url URL]
//
// Without -url it delivers to two receivers of its own, on loopback: one that is well, and one that answers 500 after it has taken the
// event, asks to come back later (429 with Retry-After), has gone for some events (410) and for a while closes every
// connection without an answer. Each receiver has an instance, and with it a breaker, of its own: while the one is down its
// events wait, unharmed, and those of the other are delivered as ever.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/stint-go/stint/middleware"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func main() {
	n := flag.Int("n", 50, "the number of `events` for each receiver")
	url := flag.String("url", "", "a receiver's `URL`, instead of the two built in")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	receivers := map[string]string{"given": *url}
	if *url == "" {
		steady, shaky := listen(steady{}), listen(&shaky{})
		defer steady.Close()
		defer shaky.Close()
		receivers = map[string]string{"steady": steady.URL, "shaky": shaky.URL}
	}
	if _, err := run(ctx, receivers, *n, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

// report is what became of the events of one receiver.
type report struct {
	Delivered, Dead int
	Attempts        int
	Opened          int           // how often its breaker did
	Longest         time.Duration // from an event's enqueue to its end
}

// run delivers n events to each receiver, by name, and returns what became of them when all have ended.
func run(ctx context.Context, receivers map[string]string, n int, out io.Writer) (map[string]*report, error) {
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		return nil, err
	}
	defer st.Close()
	reports := map[string]*report{}
	var mu sync.Mutex
	sup, err := worker.New(st, worker.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return nil, err
	}
	breaker := middleware.Breaker(middleware.BreakerConfig{
		Failures: 3, Pause: 300 * time.Millisecond, IsFailure: isOutage,
		OnChange: func(instance, state string) {
			fmt.Fprintf(out, "%s: the breaker is %s\n", instance, state)
			if state == "open" {
				mu.Lock()
				defer mu.Unlock()
				reports[instance].Opened++
			}
		},
	})
	var requests []worker.Request
	for name, url := range receivers {
		instance := "webhooks/" + name
		reports[instance] = &report{}
		worker.Handle(sup, instance, deliver, worker.Concurrency(4), worker.Timeout(10*time.Second), worker.Use(breaker),
			worker.Retry(retry.Limit(10, retry.Exponential(100*time.Millisecond, time.Minute))))
		for i := range n {
			requests = append(requests, worker.Request{Instance: instance, Payload: event{URL: url, Number: i}})
		}
	}
	if err := all(ctx, st, sup, requests, reports); err != nil {
		return nil, err
	}
	for instance, r := range reports {
		fmt.Fprintf(out, "%s: %d delivered, %d dead, %d attempts, the longest took %v\n",
			instance, r.Delivered, r.Dead, r.Attempts, r.Longest.Round(10*time.Millisecond))
	}
	return reports, nil
}

// all runs the supervisor until all the jobs have ended, and counts them.
func all(ctx context.Context, st *store.Store, sup *worker.Supervisor, requests []worker.Request, reports map[string]*report) error {
	client := worker.NewClient(st, worker.ClientConfig{})
	results, err := client.EnqueueMany(ctx, requests)
	if err != nil {
		return err
	}
	running, finish := context.WithCancel(ctx)
	defer finish()
	var supervising sync.WaitGroup
	var ran error
	supervising.Go(func() { ran = sup.Run(running) })
	for _, r := range results {
		job, waiting := client.Wait(ctx, r.ID)
		if err = waiting; err != nil {
			break
		}
		rep := reports[job.Instance]
		rep.Attempts += job.Attempt
		rep.Longest = max(rep.Longest, job.FinishedAt.Sub(job.EnqueuedAt))
		if job.State == store.Done {
			rep.Delivered++
		} else {
			rep.Dead++
		}
	}
	finish()
	supervising.Wait()
	return errors.Join(err, ran)
}
