package redistest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
)

func TestUnpluggedEverythingFailsUntilPlugged(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		key := redistest.Prefix(t)
		sub := r.c.Subscribe(t.Context(), key)
		defer sub.Close()
		if _, err := sub.ReceiveTimeout(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		r.fault.Unplug()
		if _, err := sub.ReceiveTimeout(t.Context(), time.Minute); err == nil {
			t.Error("the subscription is still there")
		}
		if err := r.c.Incr(t.Context(), key).Err(); !errors.Is(err, redistest.ErrFault) {
			t.Errorf("a command: %v", err)
		}
		if _, err := r.c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Incr(t.Context(), key)
			return nil
		}); !errors.Is(err, redistest.ErrFault) {
			t.Errorf("a pipeline: %v", err)
		}
		if err := r.c.Subscribe(t.Context(), key).Ping(t.Context()); err == nil {
			t.Error("a new subscription is made")
		}
		r.fault.Plug()
		if n, err := r.c.Incr(t.Context(), key).Result(); n != 1 || err != nil {
			t.Errorf("afterwards: %d, %v", n, err)
		}
		if _, err := sub.ReceiveTimeout(t.Context(), time.Minute); err != nil {
			t.Errorf("the subscription afterwards: %v", err)
		}
	})
}

func TestUnplugBreaksACommandThatWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		key := redistest.Prefix(t)
		done := make(chan error, 1)
		go func() { done <- r.c.BLPop(t.Context(), time.Minute, key).Err() }()
		if !within(10*time.Second, func() bool { return r.fault.Seen() > 0 }) {
			t.Fatal("the command never came")
		}
		r.fault.Unplug()
		select {
		case err := <-done:
			if err == nil {
				t.Error("it got something")
			}
		case <-time.After(30 * time.Second):
			t.Error("it still waits")
		}
		r.fault.Plug()
	})
}
