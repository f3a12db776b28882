package main

import (
	"context"
	"fmt"
	"time"
)

// idle counts what a process says to Redis that serves one queue in which there is nothing.
func idle(ctx context.Context, b *bench, v variant) (sample, error) {
	srv, err := b.server(ctx, false)
	if err != nil {
		return nil, err
	}
	length := time.Minute
	if b.quick {
		length = 20 * time.Second
	}
	lines := new(wire)
	at, err := b.site(ctx, srv, 0, lines)
	if err != nil {
		return nil, err
	}
	defer at.far.Close()
	at.name = fmt.Sprintf("idle-%x", v.name) // others are idle beside it
	sd, err := v.open(at)
	if err != nil {
		return nil, err
	}
	defer sd.close()
	const warm = 10
	if err := sd.fill(ctx, 0, warm); err != nil {
		return nil, err
	}
	t := newTally(warm, 1, warm)
	stop, err := sd.work(10, t.handle)
	if err != nil {
		return nil, err
	}
	defer stop()
	select {
	case <-t.reached:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d jobs of %d have run: %w", t.jobs(), warm, ctx.Err())
	}
	pause(ctx, 2*time.Second) // until it is idle
	before := lines.traffic()
	pause(ctx, length)
	after := lines.traffic()
	return sample{"commands/s": {float64(after.commands-before.commands) / length.Seconds()}}, ctx.Err()
}
