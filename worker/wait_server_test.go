package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

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
	must(t, c.Cancel(t.Context(), id))
	start := time.Now()
	if j := <-ended; j.State != store.Cancelled {
		t.Errorf("%s, want cancelled", j.State)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v, want a notification", took)
	}
	waiting.Wait()
}
