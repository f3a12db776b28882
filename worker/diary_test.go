package worker_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stint-go/stint/worker"
)

// These handlers note when they are called, and take their time.

// serve registers a handler that notes when each attempt starts and then takes as long as it is told to.
func (r *rig) serve(instance string, take func() time.Duration, opts ...worker.HandleOption) (starts chan time.Time) {
	starts = make(chan time.Time, 10_000)
	worker.Handle(r.sup, instance, func(context.Context, none) error {
		starts <- time.Now()
		time.Sleep(take())
		return nil
	}, opts...)
	return starts
}

// diary notes which instances' jobs start, in their order, and how many run at once.
type diary struct {
	mu            sync.Mutex
	starts        []string
	running, most int
}

// takes returns a handler that notes its attempts, each of which takes as long as it is told to.
func (d *diary) takes(instance string, long func() time.Duration) func(context.Context, none) error {
	return func(context.Context, none) error {
		d.mu.Lock()
		d.starts = append(d.starts, instance)
		d.running++
		d.most = max(d.most, d.running)
		d.mu.Unlock()
		time.Sleep(long())
		d.mu.Lock()
		d.running--
		d.mu.Unlock()
		return nil
	}
}

// now returns how many have started, how many run, and how many ran at once at most.
func (d *diary) now() (starts, running, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.starts), d.running, d.most
}

// count is how many of the first n starts are of each instance.
func (d *diary) count(n int) map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := map[string]int{}
	for _, s := range d.starts[:min(n, len(d.starts))] {
		c[s]++
	}
	return c
}

// How long attempts take.

func nothing() time.Duration { return 0 }

func exactly(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func about(d time.Duration) func() time.Duration {
	return func() time.Duration { return d/2 + rand.N(d) }
}
