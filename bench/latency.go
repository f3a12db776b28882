package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// starts is about when a handler is called after its job was enqueued, or was due, while there is nothing else to do.
type starts struct {
	scheduled bool           // all jobs are enqueued first, each due at some time
	lanes     map[string]int // of variants that take long: so many idle systems, each with a queue of its own, at once
}

// The samples of all rounds together, at least, and of each round.
const (
	minSamples = 200
	minInRound = 60
)

// lateBy is how long a job may take to start before it is taken for lost.
const lateBy = 30 * time.Second

func (l starts) run(ctx context.Context, b *bench, v variant) (sample, error) {
	srv, err := b.server(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := srv.flush(ctx); err != nil {
		return nil, err
	}
	lanes := max(l.lanes[v.name], 1)
	n := max((minSamples+b.rounds-1)/b.rounds, minInRound)
	if l.scheduled {
		n = minSamples
	}
	each := (n + lanes - 1) / lanes
	all := sample{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			s, laneErr := l.lane(ctx, srv, v, fmt.Sprintf("%s-%d", queueName, lane), each, lanes > 1)
			mu.Lock()
			defer mu.Unlock()
			for name, figures := range s {
				all[name] = append(all[name], figures...)
			}
			if laneErr != nil {
				err = laneErr
			}
		})
	}
	wg.Wait()
	return all, err
}

// lane takes n samples with one queue.
func (l starts) lane(ctx context.Context, srv *server, v variant, name string, n int, slow bool) (sample, error) {
	sd, err := v.open(site{srv.client, srv.client, name})
	if err != nil {
		return nil, err
	}
	defer sd.close()
	t := newTally(n, 1, n)
	began := make(chan start, n)
	stop, err := sd.work(10, func(p []byte) {
		began <- start{number(p), time.Now()}
		t.handle(p)
	})
	if err != nil {
		return nil, err
	}
	var s sample
	if l.scheduled {
		s, err = late(ctx, sd, n, began)
	} else {
		s, err = between(ctx, sd, n, began, slow)
	}
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	left, leftErr := sd.left(ctx)
	if err == nil {
		err = leftErr
	}
	for name, figures := range t.verdict(left) {
		s[name] = figures
	}
	return s, err
}

// start is when job i was started.
type start struct {
	i  int
	at time.Time
}

// between enqueues one job after the other, with a gap of random length that the system is idle in.
func between(ctx context.Context, sd side, n int, began chan start, slow bool) (sample, error) {
	gap := 80 * time.Millisecond
	if slow { // the gaps are not to fall in step with a poll once a second
		gap = 2 * time.Second
	}
	s := sample{}
	for i := range n {
		pause(ctx, 5*time.Millisecond+rand.N(gap))
		from := time.Now()
		if err := sd.enqueue(ctx, payload(i), time.Time{}); err != nil {
			return s, err
		}
		select {
		case got := <-began:
			s["ms"] = append(s["ms"], millis(got.at.Sub(from)))
		case <-time.After(lateBy):
			return s, fmt.Errorf("job %d did not start", i)
		}
	}
	return s, nil
}

// late enqueues jobs that are due at random times, and waits for them.
func late(ctx context.Context, sd side, n int, began chan start) (sample, error) {
	due := make([]time.Time, n)
	for i := range due {
		due[i] = time.Now().Add(2*time.Second + rand.N(5*time.Second))
	}
	if err := produce(producers, 0, n, func(i int) error { return sd.enqueue(ctx, payload(i), due[i]) }); err != nil {
		return sample{}, err
	}
	s := sample{"early": {0}}
	for range n {
		select {
		case got := <-began:
			ms := millis(got.at.Sub(due[got.i]))
			s["ms"] = append(s["ms"], ms)
			if ms < 0 {
				s["early"][0]++
			}
		case <-time.After(lateBy):
			return s, fmt.Errorf("a job did not start")
		}
	}
	return s, nil
}
