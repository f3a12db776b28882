package workertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Store returns a fresh store with an embedded server, which ends with the test. In a bubble it must be called inside.
func Store(t testing.TB) *store.Store {
	t.Helper()
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		t.Fatalf("opening an embedded store: %v", err)
	}
	st.Runtime().SetSole()
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return st
}

// Start runs a supervisor until the test, or its bubble, ends; then the jobs that run may finish, as at any stop. An error of
// Run, for instance of a registration, fails the test. Start it after Store, so that it ends before.
func Start(t testing.TB, sup *worker.Supervisor) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := sup.Run(ctx); err != nil {
			t.Errorf("running the supervisor: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		run.Wait()
	})
}

// How Drain looks, and when it gives up.
const (
	minPause, maxPause = time.Millisecond, time.Minute // a tenth of the time in which nothing has changed, within these
	nobodyServes       = 30 * time.Second
	atMost             = 366 * 24 * time.Hour
)

// Drain returns when no job of any instance is todo, doing, scheduled or parked. It waits for retries and for jobs of a later
// time, which in a bubble takes no time. What became of the jobs is the test's to check.
//
// It ends the test when that can't come about: when jobs wait in an instance that is paused, or that nobody takes them from
// for 30 seconds, and when there are still jobs after a year.
func Drain(t testing.TB, st *store.Store) {
	t.Helper()
	start := time.Now()
	var last []store.Stats
	var moved time.Time // when something last changed
	for {
		open, now := unfinished(t, st), time.Now()
		if len(open) == 0 {
			return
		}
		if !slices.Equal(open, last) {
			last, moved = open, now
		}
		if why := hopeless(open, now.Sub(start), now.Sub(moved)); why != "" {
			t.Fatalf("draining: %s: %s", why, describe(open))
		}
		pause := min(max(now.Sub(moved)/10, minPause), maxPause)
		if d := untilNext(t, st, open); d > pause {
			pause, last = d, nil
		}
		time.Sleep(pause)
	}
}

// unfinished returns the counts of the instances that have jobs to come.
func unfinished(t testing.TB, st *store.Store) []store.Stats {
	t.Helper()
	all, err := st.Stats(context.Background())
	if err != nil {
		t.Fatalf("draining: %v", err)
	}
	for i := range all {
		all[i].OldestTodo = 0 // moves by itself
	}
	return slices.DeleteFunc(all, func(s store.Stats) bool { return s.Todo+s.Doing+s.Scheduled+s.Parked == 0 })
}

// hopeless says why the jobs will not come to an end, or "" if they may.
func hopeless(open []store.Stats, since, still time.Duration) string {
	if since > atMost {
		return "there are still jobs after a year"
	}
	for _, s := range open {
		if s.Doing > 0 { // it may take its time
			return ""
		}
	}
	for _, s := range open {
		switch {
		case s.Todo > 0 && s.Paused:
			return "instance " + s.Instance + " is paused"
		case s.Todo > 0 && still > nobodyServes:
			return "nobody takes the jobs of " + s.Instance
		}
	}
	return ""
}

// untilNext is how long nothing can happen but that a scheduled job gets due: 0 if something else may happen.
func untilNext(t testing.TB, st *store.Store, open []store.Stats) time.Duration {
	t.Helper()
	var next time.Time
	for _, s := range open {
		if s.Todo+s.Doing+s.Parked > 0 {
			return 0
		}
		page, err := st.List(context.Background(), store.Filter{Instance: s.Instance, State: store.Scheduled, Limit: 1})
		if err != nil {
			t.Fatalf("draining: %v", err)
		}
		if len(page.Jobs) == 0 {
			return 0 // it has just become due
		}
		if at := page.Jobs[0].RunAt; next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return time.Until(next)
}

func describe(open []store.Stats) string {
	lines := make([]string, len(open))
	for i, s := range open {
		lines[i] = fmt.Sprintf("%s has %d todo, %d doing, %d scheduled, %d parked", s.Instance, s.Todo, s.Doing, s.Scheduled, s.Parked)
	}
	return strings.Join(lines, "; ")
}
