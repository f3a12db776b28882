package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// stint is this library.
type stint struct {
	near, far *store.Store
	client    *worker.Client
	addr      string // of the server
	name      string // the instance
	keep      bool   // the default retention instead of none
	idle      int    // instances without jobs that share the workers
	embedded  bool
	held      int // jobs that another process holds all the time
	holder    *child
}

// stintWith returns a way to open it in a configuration.
func stintWith(edit func(*stint)) func(site) (side, error) {
	return func(at site) (side, error) {
		s := &stint{addr: at.near.Options().Addr, name: at.name}
		if edit != nil {
			edit(s)
		}
		var err error
		if s.embedded {
			s.near, err = store.OpenEmbedded(store.Options{})
			s.far = s.near
		} else if s.near, err = store.Open(at.near, store.Options{}); err == nil {
			s.far, err = store.Open(at.far, store.Options{})
		}
		if err != nil {
			return nil, err
		}
		s.client = worker.NewClient(s.near, worker.ClientConfig{})
		return s, nil
	}
}

func (s *stint) close() {
	if s.holder != nil {
		s.holder.kill()
	}
	if s.embedded {
		_ = s.near.Close()
	}
}

func (s *stint) fill(ctx context.Context, first, n int) error {
	if err := s.hold(ctx); err != nil {
		return err
	}
	const some = 20_000 // requests that are held in memory at once
	requests := make([]worker.Request, 0, min(n, some))
	for n > 0 {
		requests = requests[:0]
		for range min(n, some) {
			requests = append(requests, worker.Request{Instance: s.name, Payload: json.RawMessage(payload(first))})
			first++
		}
		if _, err := s.client.EnqueueMany(ctx, requests); err != nil {
			return err
		}
		n -= len(requests)
	}
	return nil
}

// hold starts the process that holds other jobs of the instance, and returns when it has them all.
func (s *stint) hold(ctx context.Context) (err error) {
	n := s.held
	if n == 0 || s.holder != nil {
		return nil
	}
	s.held = 0
	if err := s.fill(ctx, 0, n); err != nil {
		return err
	}
	s.held = n
	s.holder, err = hold(ctx, us, s.addr, s.name, n)
	return err
}

func (s *stint) enqueue(ctx context.Context, payload []byte, due time.Time) error {
	var opts []worker.EnqueueOption
	if !due.IsZero() {
		opts = append(opts, worker.At(due))
	}
	_, err := s.client.Enqueue(ctx, s.name, json.RawMessage(payload), opts...)
	return err
}

func (s *stint) work(workers int, handle func([]byte)) (func() error, error) {
	cfg := worker.Config{Logger: slog.New(slog.DiscardHandler)}
	var opts []worker.HandleOption
	if !s.keep {
		opts = append(opts, worker.Retention(0, 0))
	}
	if s.idle > 0 {
		cfg.Pools = []worker.Pool{{Name: "all", Concurrency: workers}}
		opts = append(opts, worker.In("all", 1))
	} else {
		opts = append(opts, worker.Concurrency(workers))
	}
	sup, err := worker.New(s.far, cfg)
	if err != nil {
		return nil, err
	}
	run := func(_ context.Context, in json.RawMessage) error { handle(in); return nil }
	worker.Handle(sup, s.name, run, opts...)
	for i := range s.idle {
		worker.Handle(sup, fmt.Sprintf("idle-%d", i), run, opts...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sup.Run(ctx) }()
	return func() error { cancel(); return <-ended }, nil
}

func (s *stint) left(ctx context.Context) (int, error) {
	all, err := s.near.Stats(ctx)
	n := int64(0)
	for _, i := range all {
		n += i.Todo + i.Scheduled + i.Doing + i.Parked + i.Dead
	}
	return int(n) - s.held, err
}
