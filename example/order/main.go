// Order is a job of several steps that survives a crash between any two of its lines.
//
//	go run ./example/order [-redis addr] [-order n] [-crash-at step]
//
// It charges a card, reserves the goods, has a label rendered by another instance, waits a moment, and sends a mail. With -crash-at the process
// kills itself (SIGKILL) right after that step; run the same command without it and the order goes on where it was: what is
// committed is not done again. The effects are lines in a file, so that they can be counted.
//
// It takes a Redis of version 7 or later. To start one that is gone when you are done:
//
//	redis-server --port 6379 --save "" --appendonly no
//	docker run --rm -p 6379:6379 redis:7
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

type options struct {
	redis   string
	order   string
	effects string
	crashAt string
	pause   time.Duration
}

// steps are the names that -crash-at takes.
var steps = []string{"charge", "reserve", "render", "cool-off", "notify"}

func main() {
	var o options
	flag.StringVar(&o.redis, "redis", "localhost:6379", "the `address` of a Redis")
	flag.StringVar(&o.order, "order", "1", "which order")
	flag.StringVar(&o.effects, "effects", "effects.log", "the `file` that effects are written to")
	flag.StringVar(&o.crashAt, "crash-at", "", "kill this process after a `step`: "+strings.Join(steps, ", "))
	flag.DurationVar(&o.pause, "pause", 2*time.Second, "how long the order cools off")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "order:", err)
		os.Exit(1)
	}
}

// run works until the order has ended, or ctx has.
func run(ctx context.Context, o options) error {
	if o.crashAt != "" && !slices.Contains(steps, o.crashAt) {
		return fmt.Errorf("-crash-at %s: there is no such step; there are %s", o.crashAt, strings.Join(steps, ", "))
	}
	rdb := redis.NewClient(&redis.Options{Addr: o.redis})
	defer rdb.Close()
	st, err := store.Open(rdb, store.Options{Prefix: "stint-order"})
	if err != nil {
		return err
	}
	defer st.Close()
	sup, err := worker.New(st, worker.Config{Lease: 2 * time.Second}) // a crash is made up for in 2.5 s
	if err != nil {
		return err
	}
	register(sup, &shop{o})

	client := worker.NewClient(st, worker.ClientConfig{})
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte("order "+o.order)) // so that a second run finds the first one's job
	_, err = client.Enqueue(ctx, "order", order{o.order, 42}, worker.ID(id))
	switch {
	case errors.Is(err, store.ErrExists):
		fmt.Println("order", o.order, "goes on")
	case err != nil:
		return err
	default:
		fmt.Println("order", o.order, "begins")
	}

	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- sup.Run(running) }()
	job, err := client.Wait(ctx, id)
	stop()
	if err := errors.Join(err, <-stopped); err != nil {
		return err
	}
	receipt, err := worker.ResultOf[string](job)
	if err != nil {
		return err
	}
	fmt.Println("order", o.order, "is done:", receipt)
	return nil
}
