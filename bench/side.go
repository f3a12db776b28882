package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// side is a system that is measured, on one server, for one round.
type side interface {
	// fill makes jobs first to first+n-1 wait, in the quickest way that the system has.
	fill(ctx context.Context, first, n int) error
	// enqueue adds one job, which is due at once if due is zero. It is called from many goroutines.
	enqueue(ctx context.Context, payload []byte, due time.Time) error
	// work runs jobs on as many workers until stop is called, which returns when all is settled.
	work(workers int, handle func(payload []byte)) (stop func() error, err error)
	// left is how many jobs are neither done nor gone.
	left(ctx context.Context) (int, error)
	// close ends what belongs to the side; the clients don't.
	close()
}

// site is where a side works.
type site struct {
	near *redis.Client // to the server itself; for whatever prepares a measurement
	far  *redis.Client // for what is measured: by the way that the trial wants, or the same
	name string        // of the queue, or instance
}

// queueName is the name where one queue is enough.
const queueName = "bench"

// system tells whose side it is.
type system int

const (
	ours system = iota
	peers
	floors // nobody's: the least that can be done
)

// variant is a side in one of its configurations.
type variant struct {
	name      string
	of        system
	aof       bool // the server keeps an append-only file, appendfsync everysec
	warm      int  // jobs that have to be done before it is warm, if more than usual
	perSecond int  // about how many jobs it does, for the size of the first round
	open      func(site) (side, error)
}
