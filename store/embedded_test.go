package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// embedded returns a store on a server in the test's own process, which the test closes.
func embedded(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestTheEmbeddedServerEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a goroutine left behind fails the test
		st := embedded(t)
		noError(t, "enqueuing", enqueue(st, t.Context()))
		noError(t, "closing", st.Close())
		if err := enqueue(st, t.Context()); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after Close: %v, want an error", err)
		}
	})
}

func TestCloseOfTheEmbeddedServerLetsCallsUnderWayEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := embedded(t)
		noError(t, "enqueuing", enqueue(st, t.Context()))
		rdb := st.Runtime().Client().(*redis.Client)
		rdb.AddHook(redistest.Intercept(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "evalsha" { // is held back before it is sent
				time.Sleep(time.Second)
			}
			return next(ctx, cmd)
		}))
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { noError(t, "a call under way", enqueue(st, t.Context())) })
		}
		synctest.Wait()
		start := time.Now()
		noError(t, "closing", st.Close())
		if took := time.Since(start); took < time.Second || took > 2*time.Second {
			t.Errorf("Close took %v, want as long as the calls under way", took)
		}
		calls.Wait()
		start = time.Now()
		wantErr(t, "a call after Close", enqueue(st, t.Context()), store.ErrServer)
		if took := time.Since(start); took != 0 {
			t.Errorf("the call after Close took %v", took)
		}
	})
}

func TestManyCommandsAtOnceWorkInABubble(t *testing.T) {
	for range 2 { // what the first leaves behind outside of its bubble, the second would trip over
		synctest.Test(t, func(t *testing.T) {
			st := embedded(t)
			defer st.Close()
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					if _, err := st.Stats(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		})
	}
}

// A bubble whose test has returned has no clock any more: what still connects to the server while it is closed must not sleep.
func TestWhoConnectsWhileAnEmbeddedServerIsClosedDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for range 2000 {
			st := embedded(t)
			subs := make(chan *store.Subscription)
			for range 4 {
				go func() { subs <- st.Runtime().Subscribe("channel") }()
			}
			noError(t, "closing", st.Close())
			for range 4 {
				noError(t, "ending the subscription", (<-subs).Close())
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
