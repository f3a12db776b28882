package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// These tests are about families whose other half is on a server that is away, as a node of a Cluster can be: it takes connections and
// never answers.

// away is a hook: commands with a key of one of its instances get no answer, until their context ends or the Redis client gives them up.
type away struct {
	mu        sync.Mutex
	instances []string
}

// patient is for how long the Redis client tries.
const patient = time.Minute

func (r *rig) takeAway(instances ...string) *away {
	a := &away{instances: instances}
	r.intercept(a.intercept)
	return a
}

func (a *away) back() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.instances = nil
}

func (a *away) silent(cmd redis.Cmder) bool {
	if cmd.Name() == "hexists" {
		return false // a job is looked for in all instances by its id, which is not what these tests are about
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		s, _ := arg.(string)
		return slices.ContainsFunc(a.instances, func(i string) bool { return strings.HasPrefix(s, "stint:{"+i+"}:") })
	})
}

func (a *away) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if !a.silent(cmd) {
		return next(ctx, cmd)
	}
	select {
	case <-ctx.Done():
		cmd.SetErr(ctx.Err())
	case <-time.After(patient):
		cmd.SetErr(context.DeadlineExceeded)
	}
	return cmd.Err()
}

// parents has n jobs of each instance dispatch a child, which is told to take so long, and park. Nobody serves them any more then.
func (r *rig) parents(n int, takes time.Duration, instances ...string) {
	r.t.Helper()
	r.listen(worker.Config{})
	for _, instance := range instances {
		worker.Handle(r.sup, instance, parentOf("child", takes), worker.Concurrency(n))
		r.enqueueMany(instance, n)
	}
	r.start()
	settle(time.Second)
	r.stopWell()
	for _, instance := range instances {
		if s := r.stats(instance); s.Parked != int64(n) {
			r.t.Fatalf("%s: %+v", instance, s)
		}
	}
	r.listen(worker.Config{DrainTimeout: 10 * time.Second, GraceTimeout: time.Second})
}

func takesTime(_ context.Context, d time.Duration) error { time.Sleep(d); return nil }

func TestAsyncHoldsItsWorkerNoLongerThanItsPatienceThoughTheChildsServerIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var took [3]time.Duration
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			var last *worker.Future[none]
			for i := range took {
				start := time.Now()
				f, err := worker.Async[none](ctx, fmt.Sprint("child ", i), "far", none{})
				if err != nil {
					return err
				}
				took[i], last = time.Since(start), f
			}
			_, err := last.Wait(ctx)
			return err
		})
		far := r.takeAway("far")
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Parked, 0, "")
		if took[0] > 11*time.Second || took[1] > time.Second || took[2] > time.Second {
			t.Errorf("three calls took %v, want 10s, and next to nothing once it is known", took)
		}
		if n := r.logs.count("children could not be enqueued"); n != 1 {
			t.Errorf("%d lines say so, want one, of the call that has asked", n)
		}
		far.back()
		settle(time.Minute)
		if s := r.stats("far"); s.Todo != 3 {
			t.Errorf("when the server is back the children are %+v, want 3 todo", s)
		}
		r.stopWell()
	})
}

func TestAServerIsNotTakenToBeAwaySinceAnAttemptEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		async := parentOf("far", none{})
		worker.Handle(r.sup, "brief", async, worker.Timeout(1200*time.Millisecond), once)
		worker.Handle(r.sup, "order", async)
		far := r.takeAway("far")
		r.enqueue("brief", none{})
		r.start()
		settle(2 * time.Second)
		far.back()
		r.enqueue("order", none{})
		settle(time.Second)
		if s := r.stats("far"); s.Total == 0 {
			t.Errorf("the child of another parent is not there")
		}
		r.stopWell()
	})
}

func TestParentsWhoseServerIsAwayHoldUpNoOtherFamilysOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		far := []string{"far/1", "far/2", "far/3", "far/4", "far/5"}
		r.parents(10, time.Minute, far...)
		worker.Handle(r.sup, "order", parentOf("child", 61*time.Second))
		worker.Handle(r.sup, "child", takesTime, worker.Concurrency(100))
		r.start()
		id := r.enqueue("order", none{})
		settle(30 * time.Second)
		server := r.takeAway(far...)
		settle(32 * time.Second)
		r.wantState(id, store.Done, 1, "")
		server.back()
		settle(time.Minute)
		for _, instance := range far {
			if s := r.stats(instance); s.Todo != 10 {
				t.Errorf("when the server is back the parents of %s are %+v, want 10 todo", instance, s)
			}
		}
		r.stopWell()
	})
}

func TestOutcomesForParentsWhoseServerIsAwayKeepNobodyFromStopping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.parents(20, 0, "far")
		end := make(chan struct{})
		worker.HandleResult(r.sup, "child", func(context.Context, time.Duration) (string, error) {
			<-end
			return strings.Repeat("x", 600_000), nil // one fills a request
		}, worker.Concurrency(100))
		r.start()
		settle(10 * time.Second)
		server := r.takeAway("far")
		close(end)
		settle(time.Second)
		if took, err := r.stopTook(); took > 6*time.Second || err != nil {
			t.Errorf("stopping took %v and Run returned %v, want 5s at most for the outcomes, and nil", took, err)
		}
		server.back()
		if s := r.stats("child"); s.Done != 20 {
			t.Errorf("the children are %+v", s)
		}
	})
}

func TestChildrenWhoseParentCanNotBeAskedLeaveThePoolToTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.parents(40, 0, "far")
		worker.Handle(r.sup, "order", parentOf("child", 0))
		worker.Handle(r.sup, "child", takesTime, worker.Concurrency(4))
		far := r.takeAway("far")
		r.start()
		settle(10 * time.Second)
		start, slowest := time.Now(), time.Duration(0)
		for range 20 {
			id := r.enqueue("order", none{})
			at := time.Now()
			for r.job(id).State != store.Done && time.Since(at) < time.Minute {
				time.Sleep(100 * time.Millisecond)
			}
			slowest = max(slowest, time.Since(at))
			time.Sleep(time.Second)
		}
		if slowest > 2*time.Second {
			t.Errorf("within %v the slowest of 20 other families took %v", time.Since(start), slowest)
		}
		far.back()
		settle(2 * time.Minute)
		if s := r.stats("child"); s.Done != 60 {
			t.Errorf("when the server is back the children are %+v, want 60 done", s)
		}
		r.stopWell()
	})
}

func TestACancelDoesNotWaitForAServerThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.parents(1, 0, "order")
		id := r.theOnly("order").ID
		server := r.takeAway("child")
		start := time.Now()
		err := r.st.Cancel(t.Context(), id)
		if took := time.Since(start); took > 6*time.Second || !errors.Is(err, store.ErrUntold) {
			t.Errorf("after %v: %v, want ErrUntold after 5s", took, err)
		}
		r.wantState(id, store.Cancelled, 0, "")
		server.back()
		worker.Handle(r.sup, "order", parentOf("child", 0))
		r.start()
		settle(5 * time.Minute)
		if s := r.stats("child"); s.Cancelled != 1 {
			t.Errorf("when the server is back the children are %+v, want one cancelled", s)
		}
		r.stopWell()
	})
}

func TestAServerThatIsAwayLeavesTheSweeperTimeForTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		far := []string{"far/1", "far/2", "far/3"}
		lost := slices.Concat(far, []string{"near"})
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			for _, to := range lost {
				if _, err := worker.Async[none](ctx, to, to, none{}, worker.Delay(time.Hour)); err != nil {
					return err
				}
			}
			return worker.Sleep(ctx, "a day", 24*time.Hour)
		})
		r.enqueue("order", none{})
		r.start()
		settle(time.Second)
		for _, instance := range lost {
			r.loseChildren(instance)
		}
		server := r.takeAway(far...)
		settle(30 * time.Second) // the sweeper looks after 10 s
		if n := r.st.Runtime().Client().ZCard(t.Context(), "stint:{near}:scheduled").Val(); n != 1 {
			t.Errorf("within half a minute the child that can be dispatched again is not")
		}
		server.back()
		r.stopWell()
	})
}
