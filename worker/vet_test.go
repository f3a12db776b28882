package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// vetted is a parent that is parked, and a child that waits: its instance is paused.
func vetted(t *testing.T, ran *[]time.Time, opts ...worker.HandleOption) *rig {
	r := newRig(t, worker.Config{})
	worker.Handle(r.sup, "order", parentOf("child", none{}, worker.MaxAttempts(1)))
	worker.Handle(r.sup, "child", func(ctx context.Context, _ none) error { *ran = append(*ran, time.Now()); return nil }, opts...)
	must(t, r.st.Pause(t.Context(), "child"))
	id := r.enqueue("order", none{})
	r.start()
	settle(time.Second)
	r.wantState(id, store.Parked, 0, "")
	return r
}

func (r *rig) resume(instance string) {
	r.t.Helper()
	must(r.t, r.st.Resume(context.Background(), instance))
}

func TestAChildWhoseParentCanNotBeAskedIsGivenBackUnchargedMoreAndMoreRarely(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Time
		r := vetted(t, &ran, once)
		mend := r.spoil("stint:{order}:deadlines") // so that every script of the parent's instance refuses
		r.resume("child")
		settle(15 * time.Minute)
		child := r.theOnly("child")
		if len(ran) != 0 || child.State != store.Scheduled && child.State != store.Todo || child.Attempt != 0 {
			t.Fatalf("the handler ran %d times, the child is %s after %d attempts: %s", len(ran), child.State, child.Attempt, child.LastError)
		}
		if want := "asking after its parent: "; len(child.LastError) < len(want) || child.LastError[:len(want)] != want {
			t.Errorf("it says %q", child.LastError)
		}
		if f := of[worker.JobFinished](r.events); len(f) < 15 || len(f) > 60 {
			t.Errorf("in a quarter of an hour it was claimed %d times, want a little more than once a minute", len(f))
		}
		mend()
		settle(2 * time.Minute)
		if child = r.theOnly("child"); len(ran) != 1 || child.State != store.Done || child.Attempt != 1 {
			t.Errorf("then it ran %d times and is %s after %d attempts: %s", len(ran), child.State, child.Attempt, child.LastError)
		}
		r.stopWell()
	})
}

func TestAChildWhoseParentsServerIsAwayForAMomentRunsSoonAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Time
		r := vetted(t, &ran, worker.Retry(retry.Limit(1, retry.Fixed(0))))
		failed := r.fault.FailNth(1, func(c []string) bool { // the vet names the parent, its step and the child
			return redistest.Mentions("stint:{order}:")(c) && c[len(c)-3] == "child"
		})
		start := time.Now()
		r.resume("child")
		settle(10 * time.Second)
		if !came(failed) {
			t.Fatal("no vet was seen")
		}
		if len(ran) != 1 || ran[0].Sub(start) > 5*time.Second || r.theOnly("child").Attempt != 1 {
			t.Errorf("it ran at %v, %d attempts", ran, r.theOnly("child").Attempt)
		}
		r.stopWell()
	})
}

func TestAChildThatRunGaveUpWhileItsParentWasAskedForIsNotCalled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Time
		r := vetted(t, &ran)
		r.stopWell()
		r.listen(worker.Config{DrainTimeout: time.Second, GraceTimeout: time.Second})
		worker.Handle(r.sup, "child", func(context.Context, none) error { ran = append(ran, time.Now()); return nil })
		r.intercept(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err, args := next(ctx, cmd), cmd.Args()
			if len(args) > 3 && strings.Contains(fmt.Sprint(args...), "stint:{order}:") && fmt.Sprintf("%s", args[len(args)-3]) == "child" { // the vet
				time.Sleep(4 * time.Second)
			}
			return err
		})
		r.resume("child")
		r.start()
		settle(100 * time.Millisecond)
		took, err := r.stopTook()
		if stuck, ok := errors.AsType[*worker.StuckError](err); !ok || len(stuck.Handlers) != 1 || took != 2*time.Second {
			t.Fatalf("it took %v and Run returned %v, want 2s and the child", took, err)
		}
		settle(10 * time.Second)
		if n := len(of[worker.JobStarted](r.events)); len(ran) != 0 || n != 0 {
			t.Errorf("after Run had given it up it was called %d times and told of %d times", len(ran), n)
		}
	})
}

func TestAskingAfterTheParentTakesNothingOfTheHandlersTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var left time.Duration
		worker.Handle(r.sup, "order", parentOf("child", none{}))
		worker.Handle(r.sup, "child", func(ctx context.Context, _ none) error {
			by, _ := ctx.Deadline()
			left = time.Until(by)
			return ctx.Err()
		}, worker.Timeout(500*time.Millisecond))
		r.latency(time.Second)
		id := r.enqueue("order", none{})
		r.start()
		settle(5 * time.Minute)
		r.wantState(id, store.Done, 1, "")
		if left != 500*time.Millisecond {
			t.Errorf("the handler had %v left, want its 500ms", left)
		}
		r.stopWell()
	})
}

func TestTheTimeOfAHandlerIsItsOwnAndNoneIfItWasNotCalled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []time.Time
		r := vetted(t, &ran)
		mend := r.spoil("stint:{order}:deadlines")
		r.latency(time.Second)
		r.resume("child")
		settle(time.Minute)
		children := func() (all []worker.JobFinished) {
			for _, e := range of[worker.JobFinished](r.events) {
				if e.Instance == "child" {
					all = append(all, e)
				}
			}
			return all
		}
		put := children()
		if len(put) == 0 || len(ran) != 0 {
			t.Fatalf("%d times the child was put off, %d times it ran", len(put), len(ran))
		}
		for _, e := range put {
			if e.Took != 0 {
				t.Errorf("a handler that was not called took %v", e.Took)
			}
		}
		mend()
		settle(5 * time.Minute)
		all := children()
		if last := all[len(all)-1]; len(ran) != 1 || last.Took != 0 || last.State != store.Done || last.Age < time.Minute {
			t.Errorf("it ran %d times, is %s, took %v at the age of %v: want nothing of the time to ask after its parent", len(ran), last.State, last.Took, last.Age)
		}
		r.stopWell()
	})
}

func TestAParentHearsAtOnceOfAChildThatEndsWithoutAWorker(t *testing.T) {
	for what, c := range map[string]struct {
		end    func(r *rig, client *worker.Client, child store.Job) error
		within time.Duration
	}{
		"cancelled": {func(r *rig, client *worker.Client, child store.Job) error {
			return client.Cancel(r.t.Context(), child.ID)
		}, time.Second},
		"deleted": {func(r *rig, _ *worker.Client, child store.Job) error { return r.st.Delete(r.t.Context(), child.ID) }, time.Second},
		"purged": {func(r *rig, _ *worker.Client, child store.Job) error {
			_, err := r.st.Purge(r.t.Context(), store.Filter{Instance: "child", State: store.Todo})
			return err
		}, time.Second},
		"past its deadline": { // in a second, and found by a pass of the reaper
			func(*rig, *worker.Client, store.Job) error { time.Sleep(58 * time.Second); return nil }, 7 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				var heard time.Time
				worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
					_, err := runChild[none](ctx, "child", "child", none{}, worker.Deadline(time.Now().Add(time.Minute)))
					heard = time.Now()
					return err
				})
				worker.Handle(r.sup, "child", returns(nil))
				must(t, r.st.Pause(t.Context(), "child"))
				r.enqueue("order", none{})
				r.start()
				settle(time.Second)
				heard = time.Time{}
				must(t, c.end(r, worker.NewClient(r.st, worker.ClientConfig{}), r.theOnly("child")))
				ended := time.Now()
				settle(time.Minute)
				if took := heard.Sub(ended); heard.IsZero() || took > c.within {
					t.Errorf("after %v, want %v at most", took, c.within)
				}
				r.stopWell()
			})
		})
	}
}
