package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/worker/workertest"
)

// shared is written by handlers of two pools.
type shared struct {
	mu sync.Mutex
	strings.Builder
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Builder.Write(b)
}

func TestANightOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(85 * time.Minute) // a bubble begins at midnight, UTC
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var out shared
		if err := run(ctx, workertest.Store(t), &out); err != nil {
			t.Fatal(err)
		}
		said := out.String()
		for text, times := range map[string]int{
			"at 02:30 every day, Europe/Paris time": 1,
			"every 2s, counted from 1970":           1,
			"beat of ":                              299, // the last comes as the process stops
			"report on sales":                       1,
			"heartbeat at ":                         5,
		} {
			if n := strings.Count(said, text); n < times || n > times+1 {
				t.Errorf("it said %q %d times, want %d", text, n, times)
			}
		}
	})
}
