package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"
)

// load is a queue that was filled before workers are let loose on it.
type load struct {
	workers int           // 0: 100
	delay   time.Duration // added to each round trip of the workers
	counted bool          // count commands and round trips on the wire, which costs time
	waiting int           // so many jobs wait at first, and only some of them are run; 0: all are
	rate    rates         // about how many jobs a second, if far from what is usual
}

// rates are about how many jobs a second there are.
type rates map[system]int

// Bounds of the jobs in a round.
const (
	minJobs = 300
	maxJobs = 600_000

	maxQuick = 100_000 // that wait in a quick run
)

// run fills the queue, starts the workers and looks at what the jobs cost after the first ones, when everything is warm.
func (l load) run(ctx context.Context, b *bench, v variant) (sample, error) {
	if b.quick && l.waiting > maxQuick {
		return nil, nil
	}
	srv, err := b.server(ctx, v.aof)
	if err != nil {
		return nil, err
	}
	if err := srv.flush(ctx); err != nil {
		return nil, err
	}
	var lines *wire
	if l.counted {
		lines = new(wire)
	}
	at, err := b.site(ctx, srv, l.delay, lines)
	if err != nil {
		return nil, err
	}
	defer at.far.Close()
	sd, err := v.open(at)
	if err != nil {
		return nil, err
	}
	defer sd.close()
	jobs, warm := l.jobs(b, v)
	total := max(jobs, l.waiting)
	memory, err := fillAndWeigh(ctx, srv, sd, total)
	if err != nil {
		return nil, fmt.Errorf("filling: %w", err)
	}
	workers := l.workers
	if workers == 0 {
		workers = 100
	}
	if b.commands {
		if err := srv.client.ConfigResetStat(ctx).Err(); err != nil {
			return nil, err
		}
	}
	t := newTally(total, warm, jobs)
	t.pause.Add(1)
	runtime.GC()
	stop, err := sd.work(workers, t.handle)
	if err != nil {
		return nil, err
	}
	s, err := watch(ctx, srv, t, lines)
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	left, leftErr := sd.left(ctx)
	if err == nil {
		err = leftErr
	}
	if s == nil {
		s = sample{}
	} else {
		b.remember(l, v, s["jobs/s"][0])
	}
	s["memory B"] = []float64{memory}
	maps.Copy(s, t.verdict(left))
	if b.commands {
		b.tellCommands(ctx, srv, v, t.jobs())
	}
	return s, err
}

// fillAndWeigh fills the queue and returns the memory that the server takes for a waiting job.
func fillAndWeigh(ctx context.Context, srv *server, sd side, n int) (float64, error) {
	before, err := srv.memory(ctx)
	if err != nil {
		return 0, err
	}
	if err := sd.fill(ctx, 0, n); err != nil {
		return 0, err
	}
	after, err := srv.memory(ctx)
	return (after - before) / float64(n), err
}

// jobs is how many make up a round, by the rate of the last one, and how many of them are to warm up.
func (l load) jobs(b *bench, v variant) (n, warm int) {
	rate := float64(v.perSecond)
	if r, ok := l.rate[v.of]; ok {
		rate = float64(r)
	}
	rate = b.recall(l, v, rate)
	n = min(max(int(rate*b.seconds), minJobs), maxJobs)
	warm = max(n/10, v.warm, 100)
	if l.waiting > 0 {
		n = min(n, l.waiting*9/10)
		warm = min(warm, n/10)
	}
	return n + warm, warm
}

// watch takes what is used between the first jobs and the last. It ends the pause of t when it has looked the first time: what is
// done before it looks isn't counted, and that would be a whole round if it is small and this goroutine wakes late.
func watch(ctx context.Context, srv *server, t *tally, lines *wire) (sample, error) {
	goOn := sync.OnceFunc(t.pause.Done)
	defer goOn()
	var use [2]usage
	var count [2]traffic
	for i, c := range []chan struct{}{t.started, t.reached} {
		select {
		case <-c:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d jobs of %d have run: %w", t.jobs(), t.goal, ctx.Err())
		}
		var err error
		count[i] = lines.traffic()
		if use[i], err = srv.use(ctx, t.jobs); err != nil {
			return nil, err
		}
		goOn()
	}
	s := use[1].since(use[0])
	if lines != nil {
		n := float64(use[1].jobs - use[0].jobs)
		s["commands"] = []float64{float64(count[1].commands-count[0].commands) / n}
		s["trips"] = []float64{float64(count[1].trips-count[0].trips) / n}
	}
	return s, nil
}
