package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestACommitCostsOneRequestAndAReplayNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var costs []int
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			before := r.fault.Seen()
			for i := range 30 {
				if err := worker.Do(ctx, fmt.Sprint("step ", i), noEffect); err != nil {
					return err
				}
			}
			costs = append(costs, r.fault.Seen()-before)
			if len(costs) < 2 {
				return errors.New("again")
			}
			return nil
		}, at1s)
		r.start()
		settle(time.Second) // what a start asks for is not counted
		id := r.enqueue("x", none{})
		settle(time.Minute)
		r.wantState(id, store.Done, 2, "again")
		if costs[0] < 30 || costs[0] > 34 || costs[1] != 0 { // the script's source travels once, and loops look around
			t.Errorf("30 steps cost %d requests, and their replay %d", costs[0], costs[1])
		}
		r.stopWell()
	})
}

func TestThousandsOfParkedJobsCostAnIdleProcessNextToNothing(t *testing.T) {
	n, most := redistest.Size(1000, 10_000), redistest.Size(500, 600) // an idle process alone has some 450
	sleeper := func(ctx context.Context, _ none) error { return worker.Sleep(ctx, "nap", 1000*time.Hour) }
	waiter := parentOf("nobody", none{}) // whom nobody serves
	for name, handler := range map[string]func(context.Context, none) error{"until a time": sleeper, "for a child": waiter} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				worker.Handle(r.sup, "x", handler, worker.Concurrency(100))
				r.start()
				for range n { // not all at once, lest looks come together by themselves
					r.enqueueMany("x", 1)
					settle(10 * time.Minute / time.Duration(n))
				}
				settle(12 * time.Minute)
				if s := r.stats("x"); s.Parked != int64(n) {
					t.Fatalf("%+v", s)
				}
				before := r.fault.Seen()
				settle(10 * time.Minute) // each open child is looked at once
				if got := r.fault.Seen() - before; got > most {
					t.Errorf("%d commands in ten minutes", got)
				} else {
					t.Logf("%d jobs cost %d commands in ten minutes", n, got)
				}
				r.stopWell()
			})
		})
	}
}
