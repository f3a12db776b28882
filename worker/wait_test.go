package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// waits waits for a job that must end within a day.
func (r *rig) waits(c *worker.Client, id uuid.UUID) store.Job {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 24*time.Hour)
	defer cancel()
	j, err := c.Wait(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

func TestWaitReturnsTheJobAsSoonAsItHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.HandleResult(r.sup, "double", func(_ context.Context, n int) (int, error) {
			switch {
			case n < 0:
				return 0, retry.Permanent(errors.New("negative"))
			case n > 99:
				time.Sleep(10 * time.Minute)
			}
			return 2 * n, nil
		})
		r.start()
		c := r.client()
		for _, tc := range []struct {
			n     int
			delay time.Duration
			state store.State
			after time.Duration
		}{
			{21, 0, store.Done, 0},
			{21, 90 * time.Second, store.Done, 90 * time.Second},
			{-1, 0, store.Dead, 0},
			{100, 0, store.Done, 10 * time.Minute},
		} {
			start := time.Now()
			id := r.accepts(c, "double", tc.n, worker.Delay(tc.delay))
			j := r.waits(c, id)
			if took := time.Since(start); j.ID != id || j.State != tc.state || took < tc.after || took > tc.after+10*time.Millisecond {
				t.Errorf("%d: %s after %v, want %s after %v", tc.n, j.State, took, tc.state, tc.after)
			}
			got, err := worker.ResultOf[int](j)
			if tc.state == store.Done && (err != nil || got != 2*tc.n) {
				t.Errorf("%d: result %d, %v", tc.n, got, err)
			}
		}
		r.stopWell()
	})
}

func TestWaitOfAJobThatHasEndedReturnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		id := r.accepts(c, "images", 1)
		if err := c.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		before := r.fault.Seen()
		if j := r.waits(c, id); j.State != store.Cancelled {
			t.Errorf("%s, want cancelled", j.State)
		}
		if n := r.fault.Seen() - before; n > 5 {
			t.Errorf("%d commands, want those of one reading", n)
		}
	})
}

func TestWaitIsAnsweredWhereNothingIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.HandleResult(r.sup, "double", func(_ context.Context, n int) (int, error) {
			time.Sleep(time.Minute)
			return 2 * n, nil
		}, worker.Retention(0, 0))
		r.start()
		c := r.client()
		id, other := r.accepts(c, "double", 21), r.accepts(c, "double", 1)
		if got, err := worker.ResultOf[int](r.waits(c, id)); got != 42 || err != nil {
			t.Errorf("result %d, %v; want 42", got, err)
		}
		synctest.Wait()
		if _, err := r.st.Get(t.Context(), other); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the job that nobody waited for: %v, want ErrNotFound", err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := r.st.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("two minutes later: %v, want ErrNotFound", err)
		}
		r.stopWell()
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		id := r.accepts(c, "images", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		start := time.Now()
		j, err := c.Wait(ctx, id)
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 90*time.Second {
			t.Errorf("%v after %v, want the context's error when that ends", err, took)
		}
		if j.ID != id || j.State != store.Todo {
			t.Errorf("%v, want the job as it stands", j)
		}
	})
}

func TestWaitForWhatIsNotThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		if _, err := c.Wait(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
		id := r.accepts(c, "images", 1)
		time.AfterFunc(time.Minute, func() {
			if err := r.st.Delete(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		j, err := c.Wait(t.Context(), id)
		if took := time.Since(start); !errors.Is(err, store.ErrNotFound) || j.ID != id || took > 80*time.Second {
			t.Errorf("%v, %v after %v; want ErrNotFound with the job as it was, 20 s after its deletion at most", j, err, took)
		}
	})
}

func TestWaitOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.HandleResult(r.sup, "double", func(_ context.Context, n int) (int, error) {
			time.Sleep(time.Minute)
			return 2 * n, nil
		})
		r.start()
		c := r.client()
		id := r.accepts(c, "double", 21)
		time.AfterFunc(55*time.Second, r.fault.Unplug) // and in this time it ends
		time.AfterFunc(64*time.Second, r.fault.Plug)   // soon enough for the lease
		start := time.Now()
		j := r.waits(c, id)
		if took := time.Since(start); j.State != store.Done || took < 64*time.Second || took > 74*time.Second {
			t.Errorf("%s after %v, want done within 10 s of the outage's end", j.State, took)
		}
		r.stopWell()
	})
}

func TestWaitDoesWithoutNotifications(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		id := r.accepts(c, "images", 1)
		// The end of the job is not announced, as when a subscriber was cut off at that moment without noticing.
		time.AfterFunc(31*time.Second, func() {
			redis := r.st.Runtime().Client()
			if err := redis.Del(context.Background(), "stint:{images}:awaited").Err(); err != nil {
				t.Error(err)
			}
			if err := c.Cancel(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		j := r.waits(c, id)
		if took := time.Since(start); j.State != store.Cancelled || took > 55*time.Second {
			t.Errorf("%s after %v, want cancelled within 20 s of its end", j.State, took)
		}
	})
}

func TestWaitWithRedisDownReturnsTheErrorInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.fault.Unplug()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := r.client().Wait(ctx, uuid.New())
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redistest.ErrFault) || took != 3*time.Second {
			t.Errorf("%v after %v; want the context's error, and Redis', when that ends", err, took)
		}
		start = time.Now()
		_, err = r.client().Wait(t.Context(), uuid.New())
		if took := time.Since(start); !errors.Is(err, redistest.ErrFault) || took < 10*time.Second || took > 12*time.Second {
			t.Errorf("%v after %v; want Redis' error after about 10 s", err, took)
		}
	})
}

// It is no bubble's: with this many commands at a time the Redis client takes timers from a pool that all tests share.
func TestManyWaitsAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	embedded := newRig(t, worker.Config{}).st
	real, _ := realStore(t)
	for name, st := range map[string]*store.Store{"embedded": embedded, "real": real} {
		t.Run(name, func(t *testing.T) {
			c := worker.NewClient(st, worker.ClientConfig{})
			reqs := slices.Repeat([]worker.Request{{Instance: "images"}}, 100)
			results, err := c.EnqueueMany(ctx, reqs)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for i := range 3 * len(results) { // three for each
				all.Go(func() {
					if j, err := c.Wait(ctx, results[i/3].ID); err != nil || j.State != store.Cancelled {
						t.Errorf("%s, %v; want cancelled", j.State, err)
					}
				})
			}
			for i := range results { // while some wait, some are about to, and some will find it cancelled
				if err := c.Cancel(ctx, results[i].ID); err != nil {
					t.Error(err)
				}
			}
			all.Wait()
		})
	}
}

func TestAllWaitsShareOneConnectionWhileTheyLast(t *testing.T) {
	st, _ := realStore(t)
	redis := st.Runtime().Client()
	c := worker.NewClient(st, worker.ClientConfig{})
	channels := func() int {
		t.Helper()
		found, err := redis.PubSubChannels(t.Context(), "*"+redistest.Prefix(t)[:20]+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	subscribers := func() int {
		t.Helper()
		list, err := redis.Do(t.Context(), "CLIENT", "LIST", "TYPE", "PUBSUB").Text()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(list, "\n")
	}
	ids := make([]uuid.UUID, 30)
	for i := range ids {
		var err error
		if ids[i], err = c.Enqueue(t.Context(), "images", i); err != nil {
			t.Fatal(err)
		}
	}
	before := subscribers()
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if j, err := c.Wait(ctx, id); err != nil || j.State != store.Cancelled {
				t.Errorf("%s, %v; want cancelled", j.State, err)
			}
		})
	}
	redistest.Eventually(t, "all are waited for", func() bool { return channels() == len(ids) })
	if n := subscribers() - before; n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	for _, id := range ids {
		if err := c.Cancel(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	redistest.Eventually(t, "nothing is listened to", func() bool { return subscribers() == before && channels() == 0 })
}

func TestWaitLeavesNoGoroutineBehind(t *testing.T) {
	st, _ := realStore(t)
	c := worker.NewClient(st, worker.ClientConfig{})
	id, err := c.Enqueue(t.Context(), "images", 0)
	if err != nil {
		t.Fatal(err)
	}
	ignore := goleak.IgnoreCurrent()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := c.Wait(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's error", err)
		}
		cancel()
	}
	goleak.VerifyNone(t, ignore)
}

func TestWaitSurvivesARestartOfRedis(t *testing.T) {
	server := redistest.Start(t, redistest.AOF())
	st, err := store.Open(server.Client(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := worker.NewClient(st, worker.ClientConfig{})
	id, err := c.Enqueue(t.Context(), "images", 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan store.Job, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		j, err := c.Wait(ctx, id)
		if err != nil {
			t.Error(err)
		}
		ended <- j
	})
	heard := func() bool {
		n, err := st.Runtime().Client().PubSubNumSub(t.Context(), st.Runtime().EndedChannel(id)).Result()
		return err == nil && n[st.Runtime().EndedChannel(id)] == 1
	}
	redistest.Eventually(t, "it is heard", heard)
	server.Restart()
	redistest.Eventually(t, "it is heard", heard)
	if err := c.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if j := <-ended; j.State != store.Cancelled {
		t.Errorf("%s, want cancelled", j.State)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v, want a notification", took)
	}
	waiting.Wait()
}

func TestCancelEndsWhatWaitsAndTellsWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		told := make(chan error, 1)
		worker.Handle(r.sup, "images", func(ctx context.Context, _ none) error {
			<-ctx.Done()
			told <- context.Cause(ctx)
			return ctx.Err()
		})
		c := r.client()
		later := r.accepts(c, "images", none{}, worker.Delay(time.Hour))
		doing := r.accepts(c, "images", none{})
		r.start()
		synctest.Wait()
		start := time.Now()
		for _, id := range []uuid.UUID{later, doing} {
			if err := c.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if j := r.waits(c, id); j.State != store.Cancelled {
				t.Errorf("%s, want cancelled", j.State)
			}
			if err := c.Cancel(t.Context(), id); !errors.Is(err, store.ErrTerminal) {
				t.Errorf("once more: %v, want ErrTerminal", err)
			}
		}
		if cause := <-told; !errors.Is(cause, worker.ErrCancelled) {
			t.Errorf("the handler was told %v, want ErrCancelled", cause)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v, want notifications", took)
		}
		if err := c.Cancel(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
		r.stopWell()
	})
}

func TestResultOfTellsWhyThereIsNone(t *testing.T) {
	id := uuid.New()
	done := store.Job{ID: id, Instance: "images", State: store.Done, Result: []byte(`{"Width":3}`)}
	type size struct{ Width int }
	if got, err := worker.ResultOf[size](done); err != nil || got.Width != 3 {
		t.Errorf("%v, %v; want 3", got, err)
	}
	if got, err := worker.ResultOf[*size](done); err != nil || got.Width != 3 {
		t.Errorf("%v, %v; want 3", got, err)
	}
	if got, err := worker.ResultOf[int](done); err == nil || got != 0 {
		t.Errorf("%v, %v; want an error", got, err)
	}
	for _, state := range []store.State{store.Dead, store.Cancelled, store.Todo, store.Doing, store.Scheduled} {
		_, err := worker.ResultOf[size](store.Job{ID: id, Instance: "images", State: state, LastError: "no memory"})
		var je *worker.JobError
		if !errors.As(err, &je) || *je != (worker.JobError{ID: id, Instance: "images", State: state, Reason: "no memory"}) {
			t.Errorf("%s: %v, want a JobError that says so", state, err)
		}
	}
	none := store.Job{ID: id, Instance: "images", State: store.Done}
	if _, err := worker.ResultOf[int](none); err == nil {
		t.Error("a job without a result gave one")
	}
	if _, err := worker.ResultOf[struct{}](none); err != nil {
		t.Errorf("%v, want nil: nothing was asked for", err)
	}
}
