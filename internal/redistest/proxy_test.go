package redistest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
)

func TestAProxySwallowsWithoutClosing(t *testing.T) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	s := redistest.Start(t)
	p := redistest.NewProxy(t, wg.Go, s.Addr())
	through := s.Client(t, func(o *redis.Options) {
		o.Addr, o.MaxRetries, o.PoolSize = p.Addr(), -1, 1
		o.ReadTimeout, o.ContextTimeoutEnabled = time.Minute, true
	})
	if n, err := through.Incr(t.Context(), "n").Result(); n != 1 || err != nil {
		t.Fatalf("passed on: %d, %v", n, err)
	}
	p.Swallow()
	for _, what := range []string{"a connection of before", "a new one"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		err := through.Incr(ctx, "n").Err()
		cancel()
		if err == nil || time.Since(start) < 100*time.Millisecond {
			t.Errorf("%s: %v after %v, want silence", what, err, time.Since(start))
		}
	}
	p.Pass()
	if n, err := through.Incr(t.Context(), "n").Result(); n != 2 || err != nil {
		t.Errorf("afterwards: %d, %v; what was swallowed must never arrive", n, err)
	}
}
