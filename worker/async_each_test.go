package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestAThousandChildrenAreDispatchedInAFewCallsAndWakeTheirParentOnce(t *testing.T) {
	const n = 1000
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var calls, before, after int
		payloads := make([]int, n)
		for i := range payloads {
			payloads[i] = i
		}
		var results []int
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			calls++
			before = r.fault.Seen()
			fs, err := worker.AsyncEach[int](ctx, "square", "square", payloads)
			if calls == 1 {
				after = r.fault.Seen()
			}
			if err != nil {
				return err
			}
			results, err = worker.WaitAll(ctx, fs)
			return err
		})
		worker.HandleResult(r.sup, "square", func(_ context.Context, i int) (int, error) { return i * i, nil }, worker.Concurrency(100))
		must(t, r.st.Pause(t.Context(), "square")) // so that nothing else is counted
		r.start()
		settle(10 * time.Second) // until all that a process does at its start is done
		id := r.enqueue("order", none{})
		settle(time.Second)
		if calls != 1 || after-before > 10 {
			t.Errorf("dispatched with %d commands", after-before)
		}
		r.resume("square")
		settle(5 * time.Minute)
		r.wantState(id, store.Done, 1, "")
		if calls != 2 || len(results) != n {
			t.Fatalf("the handler was called %d times, %d results", calls, len(results))
		}
		for i, got := range results {
			if got != i*i {
				t.Fatalf("result %d is %d", i, got)
			}
		}
		r.stopWell()
	})
}

func TestOfManyChildrenThoseThatFailOrAreLostAreKnownByTheirIndex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var got error
		var ids []uuid.UUID
		var results []int
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			fs, err := worker.AsyncEach[int](ctx, "part", "part", []int{0, 1, 2, 3, 4, 5})
			if err != nil {
				return err
			}
			for _, f := range fs {
				ids = append(ids, f.ID())
			}
			results, got = worker.WaitAll(ctx, fs)
			return got
		})
		worker.HandleResult(r.sup, "part", func(ctx context.Context, i int) (int, error) {
			switch i {
			case 2:
				time.Sleep(time.Minute)
				return 0, errors.New("no ink")
			case 3:
				<-ctx.Done()
				return 0, ctx.Err()
			case 1, 4: // not held while somebody takes it away
				return 0, worker.Snooze(time.Hour)
			}
			return i + 10, nil
		}, once, worker.Concurrency(6))
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Second)
		r.wantState(id, store.Parked, 0, "")
		must(t, r.st.Pause(t.Context(), "order")) // so that it wakes to all of them
		must(t, r.st.Delete(t.Context(), ids[4]))
		must(t, r.st.Cancel(t.Context(), ids[1]))
		settle(2 * time.Minute)
		r.resume("order")
		settle(3 * time.Minute)
		r.wantState(id, store.Dead, 1, "3 children failed, 1 are open")
		var all *worker.ChildrenError
		if !errors.As(got, &all) || len(all.Failed) != 3 || len(all.Open) != 1 || all.Open[0] != 3 {
			t.Fatalf("it got %v", got)
		}
		for n, want := range []worker.ChildError{{Index: 1, Fate: store.FateCancelled}, {Index: 2, Fate: store.FateDead}, {Index: 4, Fate: store.FateGone}} {
			if f := all.Failed[n]; f.Index != want.Index || f.Fate != want.Fate || f.ID != ids[want.Index] {
				t.Errorf("number %d of those that failed is %d (%v), want %d, %q", n, f.Index, f, want.Index, want.Fate)
			}
		}
		if want := []int{10, 0, 0, 0, 0, 15}; !slices.Equal(results, want) {
			t.Errorf("results: %v, want %v", results, want)
		}
		settle(time.Minute)
		if s := r.stats("part"); s.Cancelled != 2 || s.Doing != 0 {
			t.Errorf("the child that was open is not cancelled: %+v", s)
		}
		r.stopWell()
	})
}

func TestCancellingAParentCancelsItsChildren(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var told error
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			fs, err := worker.AsyncEach[none](ctx, "part", "part", make([]int, 3))
			if err != nil {
				return err
			}
			_, err = worker.WaitAll(ctx, fs)
			return err
		})
		worker.Handle(r.sup, "part", func(ctx context.Context, _ int) error {
			<-ctx.Done()
			told = context.Cause(ctx)
			return told
		}, worker.Concurrency(1))
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Second)
		r.wantState(id, store.Parked, 0, "")
		must(t, r.st.Cancel(t.Context(), id))
		settle(time.Minute)
		r.wantState(id, store.Cancelled, 0, "")
		if s := r.stats("part"); s.Cancelled != 3 || !errors.Is(told, worker.ErrCancelled) {
			t.Errorf("the children are %+v, the one that ran was told %v", s, told)
		}
		r.stopWell()
	})
}

func TestARequeuedParentKeepsWhatIsCommittedAndDispatchesTheFailedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var mu sync.Mutex
		ran := map[string]int{}
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			ran[what]++
		}
		healed := false
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			if err := worker.Do(ctx, "charge", func(context.Context) error { note("charge"); return nil }); err != nil {
				return err
			}
			fs, err := worker.AsyncEach[string](ctx, "part", "part", []string{"good", "bad"})
			if err != nil {
				return err
			}
			got, err := worker.WaitAll(ctx, fs)
			if err == nil && fmt.Sprint(got) != "[good bad]" {
				t.Errorf("it got %v", got)
			}
			return err
		})
		worker.HandleResult(r.sup, "part", func(_ context.Context, in string) (string, error) {
			note(in)
			if in == "bad" && !healed {
				time.Sleep(time.Second)
				return "", errors.New("no ink")
			}
			return in, nil
		}, once)
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Dead, 1, "1 children failed, 0 are open")
		healed = true
		must(t, r.st.Requeue(t.Context(), id, store.RequeueMode{}))
		settle(time.Minute)
		r.wantState(id, store.Done, 1, "")
		if ran["charge"] != 1 || ran["good"] != 1 || ran["bad"] != 2 {
			t.Errorf("ran %v", ran)
		}
		r.stopWell()
	})
}

func TestChildrenGoOverAFewLanesHoweverManyJobsDispatchThem(t *testing.T) {
	const n = 300
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "order", parentOf("child", none{}), worker.Concurrency(100))
		worker.Handle(r.sup, "child", returns(nil), worker.Concurrency(100))
		r.enqueueMany("order", n)
		r.start()
		settle(time.Minute)
		if s := r.stats("order"); s.Done != n {
			t.Fatalf("%+v", s)
		}
		if lanes := r.st.Runtime().Client().Keys(t.Context(), "stint:{child}:lane:*").Val(); len(lanes) > 4 { // those of the claims are among them
			t.Errorf("%d jobs have left %d lanes of their children's instance", n, len(lanes))
		}
		r.stopWell()
	})
}
