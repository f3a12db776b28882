package stint_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Work and workers of this process, which a test can look into.

// runs counts how often a handler was called for each job.
type runs struct {
	mu sync.Mutex
	of map[string]int
}

func (r *runs) handle(ctx context.Context, _ struct{}) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]int{}
	}
	r.of[jobID(ctx)]++
	return nil
}

func (r *runs) check(t *testing.T, jobs int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.of) != jobs {
		t.Errorf("%d jobs of %d ran", len(r.of), jobs)
	}
	for id, n := range r.of {
		if n != 1 {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
}

// handlers are those of a supervisor in this process, by instance.
type handlers map[string]func(context.Context, struct{}) error

// serve runs handlers in this process until the test has ended, or what it returns is called.
func serve(t *testing.T, st *store.Store, lease time.Duration, all handlers) (stop func()) {
	t.Helper()
	sup, err := worker.New(st, worker.Config{Lease: lease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for instance, f := range all {
		worker.Handle(sup, instance, f, worker.Concurrency(20), worker.Retry(retry.Limit(25, retry.Fixed(0))))
	}
	return run(t, sup)
}

// run runs a supervisor until the test has ended, or what it returns is called.
func run(t *testing.T, sup *worker.Supervisor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := sup.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// load enqueues a job every few milliseconds, until what it returns is called, which tells how many were accepted. None is refused,
// whatever happens in between: the client tries until it has its answer.
func (s *stage) load(t *testing.T, instance string) (end func() int) {
	t.Helper()
	done := make(chan struct{})
	n := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			_, err := s.client.Enqueue(ctx, instance, struct{}{})
			cancel()
			if err != nil {
				t.Errorf("enqueuing: %v", err)
				return
			}
			n++
		}
	})
	end = sync.OnceValue(func() int { close(done); wg.Wait(); return n })
	t.Cleanup(func() { end() })
	return end
}

// drained waits until every accepted job is done, and nothing else is there.
func (s *stage) drained(t *testing.T, n int) {
	t.Helper()
	s.until(t, fmt.Sprintf("%d done", n), func(now store.Stats) bool { return now.Done == int64(n) })
	if now := s.stats(t); now.Total != int64(n) {
		t.Errorf("%+v, want %d done and nothing else", now, n)
	}
}
