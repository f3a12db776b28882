package stint_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// onNodes returns a store on a Cluster of three nodes, a supervisor that is yet to run, and the names of instances, one at each node.
func onNodes(t *testing.T, prefix string) (st *store.Store, sup *worker.Supervisor, names []string) {
	t.Helper()
	cluster := redistest.StartCluster(t, 3)
	st, err := store.Open(cluster.Client(t), store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if sup, err = worker.New(st, worker.Config{Lease: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	names, _ = across(cluster, prefix)
	return st, sup, names
}

// Parents and children at different nodes of a real Cluster: no script reaches both.
func TestOnAClusterParentsAndChildrenAreAtDifferentNodes(t *testing.T) {
	t.Parallel()
	const parents, each = 30, 4
	st, sup, names := onNodes(t, "family")
	worker.HandleResult(sup, names[0], func(ctx context.Context, n int) (int, error) {
		var all []*worker.Future[int]
		for i, where := range names[1:] {
			fs, err := worker.AsyncEach[int](ctx, fmt.Sprint("part ", i), where, make([]int, each))
			if err != nil {
				return 0, err
			}
			all = append(all, fs...)
		}
		got, err := worker.WaitAll(ctx, all)
		sum := n
		for _, g := range got {
			sum += g
		}
		return sum, err
	})
	for _, name := range names[1:] {
		worker.HandleResult(sup, name, func(context.Context, int) (int, error) { return 1, nil })
	}
	run(t, sup)
	client := worker.NewClient(st, worker.ClientConfig{})
	var ids []uuid.UUID
	for i := range parents {
		id, err := client.Enqueue(t.Context(), names[0], 100*i)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, id := range ids {
		job, err := client.Wait(waiting, id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := worker.ResultOf[int](job); err != nil || got != 100*i+2*each {
			t.Errorf("parent %d has %d, %v", i, got, err)
		}
	}
	// One whose children nobody runs is cancelled, and they are.
	for _, name := range names[1:] {
		if err := st.Pause(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	id, err := client.Enqueue(t.Context(), names[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "parked", func() bool { j, err := st.Get(t.Context(), id); return err == nil && j.State == store.Parked })
	if err := st.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "without open children", func() bool {
		n := int64(0)
		all, err := st.Stats(t.Context())
		for _, s := range all {
			n += s.Cancelled
		}
		return err == nil && n == 1+2*each
	})
}

// A thousand children at another node: their parent is woken once, for all or for the first that fails.
func TestOnAClusterAThousandChildrenAreAtAnotherNodeThanTheirParent(t *testing.T) {
	t.Parallel()
	const n, bad = 1000, 617
	st, sup, names := onNodes(t, "fan")
	var runs atomic.Int64 // of parents
	worker.HandleResult(sup, names[0], func(ctx context.Context, fails bool) (int, error) {
		runs.Add(1)
		in := make([]int, n)
		for i := range in {
			in[i] = i
			if fails && i == bad {
				in[i] = -1
			}
		}
		all, err := worker.AsyncEach[int](ctx, "square", names[1], in)
		if err != nil {
			return 0, err
		}
		got, err := worker.WaitAll(ctx, all)
		if failed, ok := errors.AsType[*worker.ChildrenError](err); ok {
			return failed.Failed[0].Index, nil
		}
		for i := range got {
			if err == nil && got[i] != i*i {
				return 0, retry.Permanent(fmt.Errorf("child %d has %d", i, got[i]))
			}
		}
		return len(got), err
	})
	worker.HandleResult(sup, names[1], func(_ context.Context, i int) (int, error) {
		if i < 0 {
			return 0, retry.Permanent(errors.New("no square"))
		}
		return i * i, nil
	}, worker.Concurrency(50))
	run(t, sup)
	client := worker.NewClient(st, worker.ClientConfig{})
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for fails, want := range map[bool]int{false: n, true: bad} {
		runs.Store(0)
		id, err := client.Enqueue(waiting, names[0], fails)
		if err != nil {
			t.Fatal(err)
		}
		job, err := client.Wait(waiting, id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := worker.ResultOf[int](job); err != nil || got != want || runs.Load() != 2 {
			t.Errorf("with one that fails (%v) the parent has %d, %v, after %d runs; want %d after 2", fails, got, err, runs.Load(), want)
		}
	}
}
