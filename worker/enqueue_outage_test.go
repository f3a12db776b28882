package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestOneCallersEndIsNotThatOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		r.fault.Unplug()
		start := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				_, err := c.Enqueue(ctx, "images", i)
				took := time.Since(start)
				if i%2 == 0 && (!errors.Is(err, context.DeadlineExceeded) || took != time.Second) {
					t.Errorf("after %v: %v; want its own deadline's error when that is due", took, err)
				}
				if i%2 == 1 && err != nil {
					t.Errorf("after %v: %v; want the job accepted", took, err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		r.fault.Plug()
		all.Wait()
		if took := time.Since(start); took > 7*time.Second {
			t.Errorf("it took %v, want a moment after the 5 s of the outage", took)
		}
	})
}

func TestWithRedisDownEnqueueReturnsTheErrorInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		limit func(context.Context) (context.Context, context.CancelFunc)
		after time.Duration
		want  error
	}{
		"within its deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 300*time.Millisecond)
		}, 300 * time.Millisecond, context.DeadlineExceeded},
		"when it is cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(2*time.Second, cancel)
			return ctx, cancel
		}, 2 * time.Second, context.Canceled},
		"after ten seconds": {context.WithCancel, 10 * time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				r.fault.Unplug()
				ctx, cancel := tc.limit(t.Context())
				defer cancel()
				start := time.Now()
				_, err := r.client().Enqueue(ctx, "images", 1)
				if took := time.Since(start); took != tc.after {
					t.Errorf("it took %v, want %v", took, tc.after)
				}
				if !errors.Is(err, tc.want) || !errors.Is(err, redistest.ErrFault) {
					t.Errorf("%v; want %v and what is wrong with Redis", err, tc.want)
				}
			})
		})
	}
}

func TestEnqueueOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.fault.Unplug()
		time.AfterFunc(8*time.Second, r.fault.Plug)
		start := time.Now()
		r.accepts(r.client(), "images", 1)
		if took := time.Since(start); took > 9*time.Second {
			t.Errorf("it took %v, want at most a second after the outage", took)
		}
		if n := r.fault.Seen(); n > 40 {
			t.Errorf("%d commands in 9 s", n)
		}
	})
}

func TestManyGiveUpTogetherWhenRedisIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.fault.Unplug()
		reqs := slices.Repeat([]worker.Request{{Instance: "images"}}, 10_000)
		start := time.Now()
		results, err := r.client().EnqueueMany(t.Context(), reqs)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("it took %v, want 10 s for each of at most 3 parts under way", took)
		}
		if !errors.Is(err, redistest.ErrFault) || !strings.Contains(err.Error(), "10000 of 10000") {
			t.Errorf("%v, want all of them, and why", err)
		}
		if last := results[9999].Err; last == nil || !strings.Contains(last.Error(), "not sent") {
			t.Errorf("%v, want it to say that it was not sent", last)
		}
		synctest.Wait()
	})
}

func TestNobodyRepeatsWhatNobodyWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		lost := r.fault.LoseReplyNth(1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-lost; cancel() }()
		id, err := c.Enqueue(ctx, "images", 1)
		if !errors.Is(err, context.Canceled) || id == uuid.Nil {
			t.Fatalf("%v, %v; want the context's error and the id of what may be there", id, err)
		}
		seen := r.fault.Seen()
		time.Sleep(time.Minute)
		if n := r.fault.Seen(); n != seen {
			t.Errorf("%d commands were sent after the last caller had gone", n-seen)
		}
		// It was accepted, and what is enqueued next must not get its answer.
		if _, err := c.Enqueue(t.Context(), "images", 1, worker.ID(id)); !errors.Is(err, store.ErrExists) {
			t.Errorf("%v, want ErrExists", err)
		}
		r.job(r.accepts(c, "images", 2))
		if n := r.stats("images").Todo; n != 3 {
			t.Errorf("%d jobs, want 3", n)
		}
	})
}

// A repetition that comes after the lane was forgotten would be another request: the job may have run meanwhile, and be gone.
func TestARequestIsNotRepeatedForLongerThanItIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "mail", 1)                                                   // the server knows the script
		raw := redis.NewClient(r.st.Runtime().Client().(*redis.Client).Options()) // goes on in the outage
		defer raw.Close()
		lost := r.fault.LoseReplyNth(1, redistest.Mentions("{images}"))
		go func() { <-lost; r.fault.Unplug() }()
		time.AfterFunc(70*time.Minute, r.fault.Plug)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		time.AfterFunc(time.Minute, func() { // as if it had run, and nothing were kept
			n, err := raw.ZCard(ctx, "stint:{images}:todo").Result()
			if err == nil && n != 1 {
				err = fmt.Errorf("%d jobs were accepted", n)
			}
			ended <- errors.Join(err, raw.Del(ctx, "stint:{images}:todo", "stint:{images}:jobs").Err())
		})
		id, err := c.Enqueue(ctx, "images", 1)
		if took := time.Since(start); took < 50*time.Minute || took > 51*time.Minute {
			t.Errorf("it took %v, want 50 minutes", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redistest.ErrFault) ||
			!strings.Contains(fmt.Sprint(err), "whether it was accepted is not known") || id == uuid.Nil {
			t.Errorf("%v, %v; want the id, and that the outcome is not known", id, err)
		}
		must(t, <-ended)
		time.Sleep(time.Hour) // until long after the outage
		if s := r.stats("images"); s.Total != 0 {
			t.Errorf("%d jobs: the one that has ended is there again", s.Total)
		}
		r.job(r.accepts(c, "images", 2))
	})
}
