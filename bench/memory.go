package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// inFlight is how many jobs a process holds whose memory is looked at.
const inFlight = 1000

// resident is the memory of a process that holds jobs, as the system counts it.
func resident(ctx context.Context, b *bench, v variant) (sample, error) {
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
	if err := sd.fill(ctx, 0, inFlight); err != nil {
		return nil, err
	}
	c, err := hold(ctx, v.name, srv.addr, queueName, inFlight)
	if err != nil {
		return nil, err
	}
	defer c.kill()
	said, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(c.cmd.Process.Pid)).Output()
	if err != nil {
		return nil, fmt.Errorf("asking for its memory: %w", err)
	}
	kb, err := strconv.ParseFloat(strings.TrimSpace(string(said)), 64)
	return sample{"rss MB": {kb / 1024}}, err
}

// Many jobs in one process, and how often it is looked at meanwhile.
const (
	manyJobs  = 1_000_000
	manyQuick = 200_000
	looks     = 100
)

// many runs so many jobs in this process, with the default retention, and looks at what is alive in its heap, and at its goroutines.
func many(ctx context.Context, b *bench, v variant) (sample, error) {
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
	n := manyJobs
	if b.quick {
		n = manyQuick
	}
	if err := sd.fill(ctx, 0, n); err != nil {
		return nil, err
	}
	t := newTally(n, 1, n)
	stop, err := sd.work(100, t.handle)
	if err != nil {
		return nil, err
	}
	s, err := look(ctx, t, n)
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
	if len(s["ran"]) < looks {
		return s, err
	}
	early, late := looks/10, looks/2 // what is before that is for warming up
	s["heap growth"] = []float64{(1 << 20) * (quarter(s["heap MB"][late:]) - quarter(s["heap MB"][early:late])) / (float64(n) * 0.45)}
	s["goroutine growth"] = []float64{quarter(s["goroutines"][late:]) - quarter(s["goroutines"][early:late])}
	return s, err
}

// look takes what is alive each time that another hundredth of the jobs has run.
func look(ctx context.Context, t *tally, n int) (sample, error) {
	own := float64(4 * n) // the tally's, which is there from the beginning
	s := sample{}
	for i := range looks {
		for t.jobs() < n*(i+1)/(looks+1) {
			if ctx.Err() != nil {
				return s, fmt.Errorf("%d jobs of %d have run: %w", t.jobs(), n, ctx.Err())
			}
			time.Sleep(time.Millisecond)
		}
		runtime.GC()
		runtime.GC() // what pools keep in reserve goes with the second
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		s["ran"] = append(s["ran"], float64(t.jobs()))
		s["heap MB"] = append(s["heap MB"], (float64(mem.HeapAlloc)-own)/(1<<20))
		s["goroutines"] = append(s["goroutines"], float64(runtime.NumGoroutine()))
	}
	select {
	case <-t.reached:
		return s, nil
	case <-ctx.Done():
		return s, fmt.Errorf("%d jobs of %d have run: %w", t.jobs(), n, ctx.Err())
	}
}

// quarter is the figure that a quarter of them is not above: jobs under way only add to what is alive.
func quarter(v []float64) float64 {
	f, _ := spread(v, 0.25)
	return f.value
}
