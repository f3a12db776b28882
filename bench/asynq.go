package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

const taskType = "bench"

// peer is asynq, with its defaults but for what the fields say, and silent.
type peer struct {
	at       site
	client   *asynq.Client
	name     string        // the queue
	keep     time.Duration // how long what is done is kept; its default is not at all
	interval time.Duration // TaskCheckInterval
	idle     int           // queues without jobs that are served as well
}

// peerWith returns a way to open it in a configuration.
func peerWith(edit func(*peer)) func(site) (side, error) {
	return func(at site) (side, error) {
		p := &peer{at: at, name: at.name, client: asynq.NewClientFromRedisClient(at.near)}
		if edit != nil {
			edit(p)
		}
		return p, nil
	}
}

func (p *peer) close() {}

// producers is how many goroutines enqueue at once. The peer has no call for many jobs: this is its quickest way.
const producers = 50

func (p *peer) fill(ctx context.Context, first, n int) error {
	return produce(producers, first, n, func(i int) error { return p.enqueue(ctx, payload(i), time.Time{}) })
}

// produce calls f for first to first+n-1 from as many goroutines, and returns the first error.
func produce(goroutines, first, n int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make(chan error, goroutines)
	for g := range goroutines {
		all.Go(func() {
			for i := first + g; i < first+n; i += goroutines {
				if err := f(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

func (p *peer) enqueue(ctx context.Context, payload []byte, due time.Time) error {
	opts := []asynq.Option{asynq.Queue(p.name)}
	if p.keep > 0 {
		opts = append(opts, asynq.Retention(p.keep))
	}
	if !due.IsZero() {
		opts = append(opts, asynq.ProcessAt(due))
	}
	_, err := p.client.EnqueueContext(ctx, asynq.NewTask(taskType, payload), opts...)
	return err
}

func (p *peer) work(workers int, handle func([]byte)) (func() error, error) {
	queues := map[string]int{p.name: 1}
	for i := range p.idle {
		queues[fmt.Sprintf("idle-%d", i)] = 1
	}
	srv := asynq.NewServerFromRedisClient(p.at.far, asynq.Config{
		Concurrency: workers, Queues: queues, TaskCheckInterval: p.interval, LogLevel: asynq.FatalLevel,
	})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error { handle(t.Payload()); return nil }))
	return func() error { srv.Shutdown(); return nil }, err
}

func (p *peer) left(context.Context) (int, error) {
	q, err := asynq.NewInspectorFromRedisClient(p.at.near).GetQueueInfo(p.name)
	if err != nil {
		return 0, err
	}
	return q.Pending + q.Active + q.Scheduled + q.Retry + q.Archived, nil
}
