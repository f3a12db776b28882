package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/worker"
)

func TestWhateverSingleCommandFailsTheJobsOfASharedPoolRunOnce(t *testing.T) {
	for n := 1; n <= 24; n++ {
		for lose, arm := range map[bool]func(*redistest.Fault, int) <-chan struct{}{
			false: func(f *redistest.Fault, n int) <-chan struct{} { return f.FailNth(n) },
			true:  func(f *redistest.Fault, n int) <-chan struct{} { return f.LoseReplyNth(n) },
		} {
			bubble(t, func(t *testing.T) {
				r := newRig(t, shared(2, false))
				var d diary
				worker.Handle(r.sup, "a", d.takes("a", nothing), worker.In("all", 2))
				worker.Handle(r.sup, "b", d.takes("b", nothing), worker.In("all", 1))
				r.enqueueMany("a", 6)
				r.enqueueMany("b", 6)
				struck := arm(r.fault, n)
				r.start()
				settle(10 * time.Second)
				r.stopWell()
				if ended := len(of[worker.JobFinished](r.events)); len(d.starts) != 12 || ended != 12 {
					t.Errorf("command %d, reply lost %v: %d attempts, %d ended; want each job done once", n, lose, len(d.starts), ended)
				}
				if !came(struck) {
					t.Errorf("there was no command %d", n)
				}
			})
		}
	}
}

func TestAForeignKeyInOneInstanceOfASharedPoolLeavesItsWorkersToTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, strict := range []bool{true, false} {
			r := newRig(t, shared(4, strict))
			mend := r.spoil("stint:{bad}:todo")
			var d diary
			worker.Handle(r.sup, "bad", d.takes("bad", nothing), worker.In("all", 9))
			worker.Handle(r.sup, "good", d.takes("good", about(10*time.Millisecond)), worker.In("all", 1))
			r.enqueueMany("good", 1000)
			r.start()
			settle(5 * time.Second)
			if n := d.count(1000)["good"]; n != 1000 {
				t.Errorf("strict %v: %d jobs of the good instance were run in 5 s, want all 1,000", strict, n)
			}
			mend()
			r.enqueueMany("bad", 1)
			settle(10 * time.Second)
			if n := d.count(2000)["bad"]; n != 1 {
				t.Errorf("strict %v: %d jobs of the other were run when its key was gone, want 1", strict, n)
			}
			r.stopWell()
		}
	})
}

// outage fails the commands that name one instance, as a Cluster does while the node that has its slot is down.
type outage struct {
	instance string
	on       atomic.Bool
}

func (o *outage) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	var words []string
	for _, a := range cmd.Args() {
		words = append(words, fmt.Sprint(a))
	}
	if o.on.Load() && redistest.Mentions("{"+o.instance+"}")(words) {
		err := errors.New("CLUSTERDOWN Hash slot not served")
		cmd.SetErr(err)
		return err
	}
	return next(ctx, cmd)
}

// What holds jobs of that one, or may hold some, has to wait; the other slots need not.
func TestAnInstanceThatCannotBeReachedTakesNoMoreWorkersOfItsPool(t *testing.T) {
	for _, strict := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(6, strict))
			o := &outage{instance: "gone"}
			r.intercept(o.intercept)
			var d diary
			for _, instance := range []string{"gone", "good"} {
				worker.Handle(r.sup, instance, d.takes(instance, about(10*time.Millisecond)), worker.In("all", 1))
				r.enqueueMany(instance, 1000)
			}
			o.on.Store(strict) // from the beginning, or all workers would be at work for it
			r.start()
			settle(100 * time.Millisecond)
			o.on.Store(true)
			settle(30 * time.Second)
			if c := d.count(2000); c["good"] != 1000 || c["gone"] > 900 {
				t.Errorf("strict %v: while the other can't be reached %v were started, want all 1,000 of the good one", strict, c)
			}
			o.on.Store(false)
			settle(30 * time.Second)
			if c := d.count(3000); c["gone"] != 1000 {
				t.Errorf("strict %v: in the end %v were started, want 1,000 of each", strict, c)
			}
			r.stopWell()
		})
	}
}

func TestALookAtAnInstanceThatCannotBeReachedLeavesWorkersToTheOthers(t *testing.T) {
	for _, strict := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, shared(2, strict))
			o := &outage{instance: "gone"}
			r.intercept(o.intercept)
			var d diary
			for _, instance := range []string{"gone", "good"} {
				worker.Handle(r.sup, instance, d.takes(instance, nothing), worker.In("all", 1))
			}
			r.start()
			settle(time.Second)
			o.on.Store(true)
			settle(10 * time.Second) // it looks by itself meanwhile
			r.enqueueMany("good", 100)
			settle(time.Second)
			if c := d.count(200); c["good"] != 100 {
				t.Errorf("strict %v: %v were started, want all of the good one", strict, c)
			}
			o.on.Store(false)
			r.stopWell()
		})
	}
}
