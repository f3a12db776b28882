package stint_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// A real Redis Cluster: instances live in different slots of different nodes.

// across returns names of instances, one at each node of a cluster, and the slots of their keys.
func across(c *redistest.Cluster, prefix string) (names []string, slots []int) {
	names, slots = make([]string, len(c.Nodes)), make([]int, len(c.Nodes))
	for i, found := 0, 0; found < len(names); i++ {
		name := fmt.Sprintf("story-%d", i)
		slot := c.Slot(prefix + ":{" + name + "}:jobs")
		if at := c.Owner(slot); names[at] == "" {
			names[at], slots[at] = name, slot
			found++
		}
	}
	return names, slots
}

func TestOnAClusterASlotMovesUnderLoadAndNothingIsLostOrRepeated(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	s := &stage{role: role{Prefix: "story"}}
	open := func(rdb redis.UniversalClient) *store.Store {
		st, err := store.Open(rdb, store.Options{Prefix: s.Prefix})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	s.st = open(cluster.Client(t))
	s.client = worker.NewClient(s.st, worker.ClientConfig{})
	names, slots := across(cluster, s.Prefix)
	var ran runs
	var elsewhere atomic.Int64 // jobs of the instances that stay where they are
	all := handlers{names[0]: ran.handle}
	for _, name := range names[1:] {
		all[name] = func(ctx context.Context, in struct{}) error {
			elsewhere.Add(1)
			return ran.handle(ctx, in)
		}
	}
	for range 2 {
		serve(t, open(cluster.Client(t)), 5*time.Second, all)
	}
	var ends []func() int
	for _, name := range names {
		ends = append(ends, s.load(t, name))
	}
	s.until(t, "at work", func(now store.Stats) bool { return now.Done > 100 })

	// While the slot of the first is half here and half there, the others go on.
	enough := elsewhere.Load() + 50
	cluster.Migrate(slots[0], 0, 1, func() {
		for deadline := time.Now().Add(hang); elsewhere.Load() < enough; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the other instances have come to a stop while the slot moves")
			}
		}
	})

	moved := time.Now()
	ended := func() int64 {
		t.Helper()
		all, err := s.st.Stats(t.Context())
		if err != nil || len(all) != len(names) {
			t.Fatalf("%+v, %v", all, err)
		}
		for _, one := range all {
			if one.Instance == names[0] {
				return one.Done
			}
		}
		return 0
	}
	at := ended()
	s.until(t, "at work again", func(store.Stats) bool { return ended() > at+20 })
	took := time.Since(moved)
	t.Logf("the instance went on %v after its slot had moved", took.Round(time.Millisecond))
	if took > resumes {
		t.Error("that is too late")
	}
	n := 0
	for _, end := range ends {
		n += end()
	}
	s.drained(t, n)
	ran.check(t, n)
}
