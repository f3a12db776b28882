package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"time"
)

// filling is enqueuing while nobody works.
type filling struct {
	bulk bool // with the quickest that there is for many jobs; otherwise by 50 goroutines, one job a call
	rate int  // about how many a second
}

func (f filling) run(ctx context.Context, b *bench, v variant) (sample, error) {
	srv, err := b.server(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := srv.flush(ctx); err != nil {
		return nil, err
	}
	sd, err := v.open(site{srv.client, srv.client, queueName})
	if err != nil {
		return nil, err
	}
	defer sd.close()
	l := load{workers: -1} // whose rates are kept apart from those of jobs that run
	if f.bulk {
		l.workers = -2
	}
	n := min(max(int(b.recall(l, v, float64(f.rate))*b.seconds), minJobs), maxJobs)
	warm := max(n/10, 100)
	fill := func(first, n int) error {
		if f.bulk {
			return sd.fill(ctx, first, n)
		}
		return produce(producers, first, n, func(i int) error { return sd.enqueue(ctx, payload(i), time.Time{}) })
	}
	if err := fill(0, warm); err != nil {
		return nil, err
	}
	runtime.GC()
	before, err := srv.use(ctx, func() int { return 0 })
	if err != nil {
		return nil, err
	}
	if err := fill(warm, n); err != nil {
		return nil, err
	}
	after, err := srv.use(ctx, func() int { return n })
	if err != nil {
		return nil, err
	}
	s := after.since(before)
	b.remember(l, v, s["jobs/s"][0])
	left, err := sd.left(ctx)
	if err != nil {
		return s, fmt.Errorf("counting what is there: %w", err)
	}
	missing := float64(n + warm - left)
	maps.Copy(s, sample{"lost": {max(missing, 0)}, "doubled": {max(-missing, 0)}})
	return s, nil
}
