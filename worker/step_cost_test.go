package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 2, "again")
		if costs[0] < 30 || costs[0] > 34 || costs[1] != 0 { // the script's source travels once, and loops look around
			t.Errorf("30 steps cost %d requests, and their replay %d", costs[0], costs[1])
		}
		r.stopWell()
	})
}

func TestThousandsOfParkedJobsCostAnIdleProcessNextToNothing(t *testing.T) {
	const n = 2000
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error { return worker.Sleep(ctx, "nap", 1000*time.Hour) },
			worker.Concurrency(100))
		r.enqueueMany("x", n)
		r.start()
		settle(time.Minute)
		if s := r.stats("x"); s.Parked != n {
			t.Fatalf("%+v", s)
		}
		before := r.fault.Seen()
		settle(time.Minute)
		if got := r.fault.Seen() - before; got > 60 {
			t.Errorf("%d commands in a minute", got)
		}
		r.stopWell()
	})
}
