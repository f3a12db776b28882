package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// kills is how many processes are killed.
const kills = 20

// recovery kills processes that run a job, with SIGKILL, and sees how long it takes until the job runs again. All have the
// default configuration, each a queue of its own; so the kills don't meet, and can be done beside each other. Every other one
// leaves another process of the same kind alive; the rest were alone and are started again a second later, as an init system does.
func recovery(ctx context.Context, b *bench, v variant) (sample, error) {
	if b.quick && v.of == peers {
		return nil, nil // it takes minutes
	}
	srv, err := b.server(ctx, false)
	if err != nil {
		return nil, err
	}
	s := sample{}
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	for i := range kills {
		all.Go(func() {
			took, err := crash(ctx, srv, v, fmt.Sprintf("crash-%d", i), i%2 == 0)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				s["lost"] = append(s["lost"], 1)
				return
			}
			s["s"] = append(s["s"], took.Seconds())
		})
	}
	all.Wait()
	return s, errors.Join(errs...)
}

// crash kills a process once and returns the time from then until another one starts its job.
func crash(ctx context.Context, srv *server, v variant, name string, survivor bool) (time.Duration, error) {
	sd, err := v.open(site{srv.client, srv.client, name})
	if err != nil {
		return 0, err
	}
	defer sd.close()
	if err := sd.enqueue(ctx, payload(0), time.Time{}); err != nil {
		return 0, err
	}
	victim, err := startHolder(ctx, v.name, srv.addr, name, 10)
	if err != nil {
		return 0, err
	}
	defer victim.kill()
	if _, err := victim.line(ctx); err != nil {
		return 0, err
	}
	var other *child
	if survivor {
		if other, err = startHolder(ctx, v.name, srv.addr, name, 10); err != nil {
			return 0, err
		}
	}
	pause(ctx, time.Second+rand.N(6*time.Second)) // at any moment between two heartbeats
	killed := time.Now()
	victim.kill()
	if !survivor {
		pause(ctx, time.Second)
		if other, err = startHolder(ctx, v.name, srv.addr, name, 10); err != nil {
			return 0, err
		}
	}
	defer other.kill()
	line, err := other.line(ctx)
	if err != nil {
		return 0, fmt.Errorf("the job did not run again: %w", err)
	}
	ns, err := strconv.ParseInt(line, 10, 64)
	return time.Unix(0, ns).Sub(killed), err
}
