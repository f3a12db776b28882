package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// crashed enqueues n jobs and lets their leases run out so often that they are suspects.
func (r *rig) crashed(instance string, n int) []uuid.UUID {
	r.t.Helper()
	var ids []uuid.UUID
	for range n {
		ids = append(ids, r.enqueue(instance, nil))
	}
	terms := store.Terms{Instance: instance, Process: uuid.New(), Lease: time.Second, MaxCrashes: 3}
	for range 2 {
		var lane store.Lane
		got, err := r.st.Runtime().Exchange(context.Background(), &lane, terms, store.Exchange{Claims: workers(n)})
		if err != nil || len(got.Leases) != n {
			r.t.Fatalf("claimed %d: %v", len(got.Leases), err)
		}
		settle(2 * time.Second)
		if m, err := r.st.Runtime().Reap(context.Background(), terms); err != nil || len(m.Reaped) != n {
			r.t.Fatalf("reaped %+v: %v", m, err)
		}
	}
	return ids
}

// A poison job of one instance must not take those with it that it took twice from another.
func TestAProcessRunsOneSuspectAtATimeWhateverItsInstance(t *testing.T) {
	for _, oneCommonPool := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(5, false))
			var suspects, others diary
			second := exactly(time.Second)
			for _, instance := range []string{"a", "b", "c"} {
				var opts []worker.HandleOption
				if oneCommonPool {
					opts = append(opts, worker.In("all", 1))
				}
				worker.Handle(r.sup, instance, func(ctx context.Context, in none) error {
					if j, _ := worker.JobFrom(ctx); j.Crashes == 0 {
						return others.takes(instance, second)(ctx, in)
					}
					return suspects.takes(instance, second)(ctx, in)
				}, opts...)
				r.crashed(instance, 2)
				r.enqueueMany(instance, 5)
			}
			r.start()
			settle(8 * time.Second)
			if n, _, most := suspects.now(); n != 6 || most != 1 {
				t.Errorf("in common: %v: %d suspects were run in 8 s, %d at once; want all 6, one at a time", oneCommonPool, n, most)
			}
			if n, _, most := others.now(); n != 15 || most < 3 {
				t.Errorf("in common: %v: %d others were run beside them, %d at once; want all 15, several at once", oneCommonPool, n, most)
			}
			r.stopWell()
		})
	}
}

func TestASuspectThatALimitHoldsBackHoldsNoOtherBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var d diary
		for _, instance := range []string{"a", "b", "c"} {
			r.crashed(instance, 2)
		}
		r.startLimited(&d, "a", "c")
		settle(time.Second)
		before := r.fault.Seen()
		settle(10 * time.Second)
		if n := r.fault.Seen() - before; n > 100 {
			t.Errorf("%d commands in 10 s, want few", n)
		}
		if c := d.count(6); c["b"] != 2 || c["a"]+c["c"] != 0 {
			t.Errorf("%v were run, want those of b", c)
		}
		settle(20 * time.Second) // the leases that take up the limit are over
		if c := d.count(10); c["a"] != 3 || c["b"] != 2 || c["c"] != 3 {
			t.Errorf("%v were run in the end, want all", c)
		}
		r.stopWell()
	})
}

// startLimited runs handlers of a, b and c, of which some have a limit of one job that another process takes up for 20 s.
func (r *rig) startLimited(d *diary, limited ...string) {
	r.t.Helper()
	for _, instance := range []string{"a", "b", "c"} {
		var opts []worker.HandleOption
		for _, l := range limited {
			if l == instance {
				opts = append(opts, worker.GlobalLimit(1))
				r.enqueue(instance, nil, func(j *store.NewJob) { j.Priority = 10 })
				r.claimAs(uuid.New(), instance, 20*time.Second)
			}
		}
		worker.Handle(r.sup, instance, d.takes(instance, exactly(100*time.Millisecond)), opts...)
	}
	r.start()
}
