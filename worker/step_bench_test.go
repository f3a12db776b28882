package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// A job of ten steps must not cost more than twelve empty jobs: both are measured in one run, alternating.
func TestTenStepsCostNoMoreThanTwelveEmptyJobs(t *testing.T) {
	server := redistest.Start(t)
	st, err := store.Open(server.Client(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	client := worker.NewClient(st, worker.ClientConfig{})
	n := redistest.Size(500, 3000)
	run := func(round int, steps int) time.Duration {
		instance := fmt.Sprintf("x%d-%d", steps, round)
		reqs := make([]worker.Request, n)
		for i := range reqs {
			reqs[i] = worker.Request{Instance: instance, Payload: none{}}
		}
		if _, err := client.EnqueueMany(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		sup, err := worker.New(st, worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{}, n)
		worker.Handle(sup, instance, func(ctx context.Context, _ none) error {
			for i := range steps {
				if err := worker.Do(ctx, stepsByNumber[i], noEffect); err != nil {
					return err
				}
			}
			done <- struct{}{}
			return nil
		}, worker.Concurrency(100))
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		start := time.Now()
		go func() { over <- sup.Run(ctx) }()
		for range n {
			<-done
		}
		took := time.Since(start)
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
		return took
	}
	var empty, ten time.Duration
	for round := range 5 {
		empty += run(round, 0)
		ten += run(round, 10)
	}
	ratio := float64(ten) / float64(empty)
	t.Logf("%d jobs: empty %v, with ten steps %v: %.1f times", 5*n, empty.Round(time.Millisecond), ten.Round(time.Millisecond), ratio)
	if bound := redistest.Size(120.0, 12.0); ratio > bound {
		t.Errorf("ten steps cost %.1f empty jobs, want %v at most", ratio, bound)
	}
}

var stepsByNumber = [10]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
