package main

import (
	"context"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// usage is what has been spent so far.
type usage struct {
	at      time.Time
	jobs    int           // whose handlers have been called
	redis   time.Duration // CPU of the server: all of its threads, in user and in system mode
	self    time.Duration // CPU of this process
	mallocs uint64
	bytes   float64 // to and from the server
}

// use takes the figures of this moment.
func (s *server) use(ctx context.Context, jobs func() int) (usage, error) {
	at, n := time.Now(), jobs()
	info, err := s.info(ctx, "cpu", "stats")
	if err != nil {
		return usage{}, err
	}
	number := func(name string) float64 {
		v, _ := strconv.ParseFloat(info[name], 64)
		return v
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return usage{
		at:      at,
		jobs:    n,
		redis:   time.Duration((number("used_cpu_user") + number("used_cpu_sys")) * float64(time.Second)),
		self:    selfCPU(),
		mallocs: mem.Mallocs,
		bytes:   number("total_net_input_bytes") + number("total_net_output_bytes"),
	}, nil
}

func selfCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// since tells what the jobs between two moments cost.
func (u usage) since(before usage) sample {
	n := float64(u.jobs - before.jobs)
	return sample{
		"jobs/s":   {n / u.at.Sub(before.at).Seconds()},
		"redis µs": {micros(u.redis-before.redis) / n},
		"go µs":    {micros(u.self-before.self) / n},
		"allocs":   {float64(u.mallocs-before.mallocs) / n},
		"bytes":    {(u.bytes - before.bytes) / n},
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
