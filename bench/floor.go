package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// floor moves the same payloads with the fewest commands and no safety at all: what is popped is gone, whatever becomes of it, and
// nobody is told how it ended. Two requests are in flight, each for half of the workers, as with this library. It is the
// limit to compare with.
type floor struct {
	at   site
	push func(ctx context.Context, to *redis.Client, first, n int) error
	pop  func(ctx context.Context, from *redis.Client, n int) ([]string, error) // at most n payloads; none if there are none
	size func(ctx context.Context, at *redis.Client) (int64, error)
}

const (
	floorList = "floor:list"
	floorSet  = "floor:set"
	floorHash = "floor:hash"
)

// listFloor is a list; pop says how it is emptied.
func listFloor(pop func(ctx context.Context, from *redis.Client, n int) ([]string, error)) func(site) (side, error) {
	return func(at site) (side, error) {
		return &floor{at, pushList, pop, func(ctx context.Context, at *redis.Client) (int64, error) {
			return at.LLen(ctx, floorList).Result()
		}}, nil
	}
}

// setFloor is a sorted set of ids with their payloads in a hash: jobs with an identity and a priority, but no safety either.
func setFloor(at site) (side, error) {
	return &floor{at, pushSet, popSet, func(ctx context.Context, at *redis.Client) (int64, error) {
		return at.ZCard(ctx, floorSet).Result()
	}}, nil
}

func pushList(ctx context.Context, to *redis.Client, first, n int) error {
	some := make([]any, n)
	for i := range some {
		some[i] = payload(first + i)
	}
	return to.RPush(ctx, floorList, some...).Err()
}

func popMany(ctx context.Context, from *redis.Client, n int) ([]string, error) {
	got, err := from.LPopCount(ctx, floorList, n).Result()
	return got, present(err)
}

func popEach(ctx context.Context, from *redis.Client, n int) ([]string, error) {
	p := from.Pipeline()
	for range n {
		p.LPop(ctx, floorList)
	}
	cmds, err := p.Exec(ctx)
	got := make([]string, 0, n)
	for _, c := range cmds {
		if c.Err() == nil {
			got = append(got, c.(*redis.StringCmd).Val())
		}
	}
	return got, present(err)
}

func pushSet(ctx context.Context, to *redis.Client, first, n int) error {
	members, fields := make([]redis.Z, n), make([]any, 0, 2*n)
	for i := range members {
		id := strconv.Itoa(first + i)
		members[i] = redis.Z{Score: float64(first + i), Member: id}
		fields = append(fields, id, payload(first+i))
	}
	p := to.Pipeline()
	p.HSet(ctx, floorHash, fields...)
	p.ZAdd(ctx, floorSet, members...)
	_, err := p.Exec(ctx)
	return err
}

func popSet(ctx context.Context, from *redis.Client, n int) ([]string, error) {
	top, err := from.ZPopMin(ctx, floorSet, int64(n)).Result()
	if err != nil || len(top) == 0 {
		return nil, err
	}
	ids := make([]string, len(top))
	for i := range top {
		ids[i] = top[i].Member.(string)
	}
	p := from.Pipeline()
	found := p.HMGet(ctx, floorHash, ids...)
	p.HDel(ctx, floorHash, ids...)
	if _, err := p.Exec(ctx); err != nil {
		return nil, err
	}
	got := make([]string, len(ids))
	for i, v := range found.Val() {
		got[i] = v.(string)
	}
	return got, nil
}

// present is err, but nil if it only says that there was nothing.
func present(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

func (f *floor) close() {}

func (f *floor) fill(ctx context.Context, first, n int) error {
	for n > 0 {
		some := min(n, 1000)
		if err := f.push(ctx, f.at.near, first, some); err != nil {
			return err
		}
		first, n = first+some, n-some
	}
	return nil
}

func (f *floor) enqueue(ctx context.Context, payload []byte, _ time.Time) error {
	return f.push(ctx, f.at.near, number(payload), 1)
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
				// It is never cancelled half-way; an error is seen by what is missing in the end.
				got, _ := f.pop(context.Background(), f.at.far, max(workers/2, 1))
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

func (f *floor) left(ctx context.Context) (int, error) {
	n, err := f.size(ctx, f.at.near)
	return int(n), err
}
