package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

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
		must(t, c.Cancel(t.Context(), id))
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
