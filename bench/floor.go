package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// floor moves the same payloads through a list, with no safety at all: what is popped is gone, whatever becomes of it. Two
// requests are in flight, each for half of the workers, as with this library. It has no ids, no retries, no priorities: it is the limit to
// compare with.
type floor struct {
	at   site
	each bool // a command a job, pipelined; otherwise one command for as many jobs as there are workers in a half
}

func floorWith(each bool) func(site) (side, error) {
	return func(at site) (side, error) { return &floor{at, each}, nil }
}

const list = "floor"

func (f *floor) close() {}

func (f *floor) fill(ctx context.Context, first, n int) error {
	for n > 0 {
		some := make([]any, min(n, 1000))
		for i := range some {
			some[i] = payload(first + i)
		}
		if err := f.at.near.RPush(ctx, list, some...).Err(); err != nil {
			return err
		}
		first, n = first+len(some), n-len(some)
	}
	return nil
}

func (f *floor) enqueue(ctx context.Context, payload []byte, _ time.Time) error {
	return f.at.near.RPush(ctx, list, payload).Err()
}

func (f *floor) work(workers int, handle func([]byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(context.Background())
	jobs := make(chan string, workers)
	var fetchers, all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for j := range jobs {
				handle([]byte(j))
			}
		})
	}
	for range 2 {
		fetchers.Go(func() {
			for ctx.Err() == nil {
				got, _ := f.pop(ctx, max(workers/2, 1)) // whatever is lost is found by the tally
				for _, j := range got {
					jobs <- j
				}
				if len(got) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	return func() error {
		cancel()
		fetchers.Wait()
		close(jobs)
		all.Wait()
		return nil
	}, nil
}

func (f *floor) pop(ctx context.Context, n int) ([]string, error) {
	if !f.each {
		return f.at.far.LPopCount(ctx, list, n).Result()
	}
	p := f.at.far.Pipeline()
	for range n {
		p.LPop(ctx, list)
	}
	cmds, err := p.Exec(ctx)
	got := make([]string, 0, n)
	for _, c := range cmds {
		if c.Err() == nil {
			got = append(got, c.(*redis.StringCmd).Val())
		}
	}
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return got, err
}

func (f *floor) left(ctx context.Context) (int, error) {
	n, err := f.at.near.LLen(ctx, list).Result()
	return int(n), err
}
