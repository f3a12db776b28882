package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// An order whose first attempt fails after its card was charged: the second goes on there.
func ExampleStep() {
	finish := example(func(sup *worker.Supervisor) {
		failed := false
		worker.HandleResult(sup, "order", func(ctx context.Context, number int) (string, error) {
			receipt, err := worker.Step(ctx, "charge", func(context.Context) (string, error) {
				fmt.Println("charging")
				return fmt.Sprint("receipt ", number), nil
			})
			if err != nil {
				return "", err
			}
			if !failed {
				failed = true
				return "", errors.New("the network is down")
			}
			return receipt, worker.Do(ctx, "notify", func(context.Context) error {
				fmt.Println("sending", receipt)
				return nil
			})
		}, worker.Retry(retry.Fixed(time.Millisecond)))
	})
	fmt.Println(finish("order", 7))
	// Output:
	// charging
	// sending receipt 7
	// receipt 7
}

// A job that has others do its parts, and holds no worker while it waits for them.
func ExampleWaitAll() {
	finish := example(func(sup *worker.Supervisor) {
		worker.HandleResult(sup, "sum", func(ctx context.Context, numbers []int) (int, error) {
			fs, err := worker.AsyncEach[int](ctx, "square", "square", numbers)
			if err != nil {
				return 0, err
			}
			squares, err := worker.WaitAll(ctx, fs)
			if err != nil {
				return 0, err // worker.ErrParked, at first
			}
			sum := 0
			for _, n := range squares {
				sum += n
			}
			return sum, nil
		})
		worker.HandleResult(sup, "square", func(_ context.Context, n int) (int, error) { return n * n, nil })
	})
	fmt.Println(finish("sum", []int{1, 2, 3}))
	// Output:
	// 14
}

// example runs a supervisor on an embedded store; what it returns runs one job to its end and gives its result.
func example(register func(sup *worker.Supervisor)) (finish func(instance string, payload any) string) {
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	sup, err := worker.New(st, worker.Config{})
	if err != nil {
		log.Fatal(err)
	}
	register(sup)
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- sup.Run(ctx) }()
	return func(instance string, payload any) string {
		defer st.Close()
		client := worker.NewClient(st, worker.ClientConfig{})
		id, err := client.Enqueue(ctx, instance, payload)
		if err != nil {
			log.Fatal(err)
		}
		job, err := client.Wait(ctx, id)
		stop()
		if err := errors.Join(err, <-over); err != nil {
			log.Fatal(err)
		}
		if job.State != store.Done {
			return job.LastError
		}
		var out any
		if out, err = worker.ResultOf[any](job); err != nil {
			log.Fatal(err)
		}
		return fmt.Sprint(out)
	}
}
