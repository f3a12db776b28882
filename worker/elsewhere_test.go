package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// What sweeps meet on other servers is a trouble of its own: the process' Redis is well.

func TestAChildsServerThatIsAwayIsOneTroubleUntilItIsOver(t *testing.T) {
	for what, over := range map[string]func(r *rig, parent store.Job){
		"it answers":                     func(*rig, store.Job) {},
		"another process has seen to it": func(r *rig, parent store.Job) { must(r.t, r.st.Cancel(context.Background(), parent.ID)) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				worker.Handle(r.sup, "order", func(ctx context.Context, to string) error {
					_, err := runChild[none](ctx, "child", to, none{}, worker.Delay(24*time.Hour))
					return err
				})
				id := r.enqueue("order", "far")
				r.start()
				settle(time.Second)
				server := r.takeAway("far")
				want := func(when string, failed, recovered int) {
					t.Helper()
					f, o := of[worker.LoopFailed](r.events), of[worker.LoopRecovered](r.events)
					if len(f) != failed || len(o) != recovered || failed > 0 && (f[0].Loop != "sweep" || f[0].Instance != "far") {
						t.Fatalf("%s: %d and %d of them, want %d and %d: %+v", when, len(f), len(o), failed, recovered, f)
					}
				}
				for range 20 { // its child is looked after, and those of the others at other times
					r.enqueue("order", "near")
					settle(17 * time.Second)
					if st := r.sup.Status(); !st.Reachable {
						t.Fatalf("the process' own Redis is well: %+v", st)
					}
				}
				want("while it is away", 1, 0)
				server.back()
				over(r, r.job(id))
				settle(30 * time.Minute)
				want("when it is back", 1, 1)
				r.stopWell()
			})
		})
	}
}

func TestManyInstancesThatAreAwayLeaveTheProcessReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 70
		r := newRig(t, worker.Config{})
		far := make([]string, n)
		for i := range far {
			far[i] = fmt.Sprint("far/", i)
		}
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			for _, to := range far {
				if _, err := worker.Async[none](ctx, to, to, none{}); err != nil {
					return err
				}
			}
			return worker.Sleep(ctx, "a day", 24*time.Hour)
		})
		r.enqueue("order", none{})
		r.start()
		settle(time.Second)
		server := r.takeAway(far...)
		for range 60 {
			settle(10 * time.Second)
			if st := r.sup.Status(); !st.Reachable || st.Behind > 6*time.Second {
				t.Fatalf("%+v", st)
			}
		}
		server.back()
		settle(11 * time.Minute)
		if f, o := of[worker.LoopFailed](r.events), of[worker.LoopRecovered](r.events); len(f) != 1 || len(o) != 1 {
			t.Errorf("%d troubles, %d over, want one: %+v", len(f), len(o), f)
		}
		r.stopWell()
	})
}
