package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// bench is a run of this program.
type bench struct {
	rounds   int
	seconds  float64 // about how long a round is
	quick    bool    // some things are done on a smaller scale
	commands bool    // tell what Redis spends its time with
	sides    *regexp.Regexp
	log      io.Writer
	began    time.Time

	mu      sync.Mutex
	got     map[*trial]*brought
	faults  map[system]map[string]float64
	rates   map[string]float64
	servers map[bool]*server
	proxies map[string]*child
}

func newBench(log io.Writer) *bench {
	return &bench{
		log: log, began: time.Now(),
		got:     map[*trial]*brought{},
		faults:  map[system]map[string]float64{ours: {}, peers: {}, floors: {}},
		rates:   map[string]float64{},
		servers: map[bool]*server{},
		proxies: map[string]*child{},
	}
}

// close ends all that was started.
func (b *bench) close() {
	for _, p := range b.proxies {
		p.kill()
	}
	for _, s := range b.servers {
		s.stop()
	}
}

// server returns the server with an append-only file, or the one without.
func (b *bench) server(ctx context.Context, aof bool) (*server, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.servers[aof]; s != nil {
		return s, nil
	}
	var lines []string
	if aof {
		lines = []string{"appendonly yes", "appendfsync everysec"}
	}
	s, err := startServer(ctx, lines...)
	if err == nil {
		b.servers[aof] = s
	}
	return s, err
}

// site is where a side works on a server. Its far client is the caller's to close. Both have the options that
// everybody has who sets none.
func (b *bench) site(ctx context.Context, srv *server, delay time.Duration, lines *wire) (site, error) {
	o := &redis.Options{Addr: srv.addr}
	if delay > 0 {
		addr, err := b.proxy(ctx, srv.addr, delay)
		if err != nil {
			return site{}, err
		}
		o.Addr = addr
	}
	if lines != nil {
		o.Dialer = lines.dial
	}
	return site{srv.client, redis.NewClient(o), queueName}, nil
}

// proxy returns the address of a process that stands before a server and delays what is said to it.
func (b *bench) proxy(ctx context.Context, to string, delay time.Duration) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := to + delay.String()
	p := b.proxies[key]
	if p == nil {
		var err error
		if p, err = startChild(ctx, "proxy", to, delay.String()); err != nil {
			return "", err
		}
		b.proxies[key] = p
	}
	return p.said, nil
}

// remember notes how many jobs a second there were, so that the next round is as long as it should be.
func (b *bench) remember(l load, v variant, rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rates[l.key(v)] = rate
}

func (b *bench) recall(l load, v variant, otherwise float64) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.rates[l.key(v)]; ok {
		return r
	}
	return otherwise
}

func (l load) key(v variant) string { return fmt.Sprint(v.name, l) }

// tellCommands says what Redis spent its time with since the workers began, by command, for each job. The time of a script
// includes that of the commands that it calls.
func (b *bench) tellCommands(ctx context.Context, srv *server, v variant, jobs int) {
	info, err := srv.info(ctx, "commandstats")
	if err != nil || jobs == 0 {
		return
	}
	type command struct {
		name        string
		calls, usec float64 // a job
	}
	var all []command
	for name, text := range info {
		c := command{name: strings.TrimPrefix(name, "cmdstat_")}
		for field := range strings.SplitSeq(text, ",") {
			k, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseFloat(value, 64)
			switch k {
			case "calls":
				c.calls = n / float64(jobs)
			case "usec":
				c.usec = n / float64(jobs)
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y command) int { return cmp.Compare(y.usec, x.usec) })
	fmt.Fprintf(b.log, "%s, for each of %d jobs:\n", v.name, jobs)
	for _, c := range all[:min(len(all), 15)] {
		fmt.Fprintf(b.log, "    %-28s %8.3f calls %8.3f µs\n", c.name, c.calls, c.usec)
	}
}
