package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// cluster is two nodes, of which the first has all slots.
type cluster struct {
	nodes [2]*redis.Client
	ids   [2]string
	rdb   *redis.ClusterClient
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctx := t.Context()
	c := &cluster{}
	var addrs []string
	for i := range c.nodes {
		server := redistest.Start(t, redistest.Config("cluster-enabled yes", "cluster-node-timeout 5000"))
		addrs = append(addrs, server.Addr())
		c.nodes[i] = server.Client(t)
		c.ids[i] = c.nodes[i].Do(ctx, "CLUSTER", "MYID").Val().(string)
	}
	noError(t, "giving out slots", c.nodes[0].ClusterAddSlotsRange(ctx, 0, 16383).Err())
	host, port, _ := net.SplitHostPort(addrs[1])
	noError(t, "joining", c.nodes[0].ClusterMeet(ctx, host, port).Err())
	redistest.Eventually(t, "both nodes know the cluster", func() bool {
		for i, n := range c.nodes {
			if info := n.ClusterInfo(ctx).Val(); !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:2") {
				return false
			}
			if !strings.Contains(n.ClusterNodes(ctx).Val(), c.ids[1-i]) {
				return false
			}
		}
		return true
	})
	c.rdb = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs[:1], MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.rdb.Close() })
	return c
}

// content is what both nodes hold together: node and key to what DUMP says of it.
func (c *cluster) content(t *testing.T, pattern string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i, n := range c.nodes {
		keys, err := n.Keys(t.Context(), pattern).Result()
		noError(t, "listing keys", err)
		for _, key := range keys {
			pipe := n.Pipeline()
			pipe.Do(t.Context(), "ASKING") // or a node does not tell of a slot that is on its way to it
			dump := pipe.Dump(t.Context(), key)
			_, _ = pipe.Exec(t.Context())
			noError(t, "dumping "+key, dump.Err())
			all[fmt.Sprint(i, key)] = dump.Val()
		}
	}
	return all
}

// setSlot tells both nodes about a slot.
func (c *cluster) setSlot(t *testing.T, slot int64, first, second []any) {
	t.Helper()
	for i, args := range [][]any{first, second} {
		err := c.nodes[i].Do(t.Context(), append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err()
		noError(t, fmt.Sprint("telling a node about a slot ", args), err)
	}
}

// requests are made while the slot moves, and again when it has.
type requests struct {
	e        *storetest.Env
	lane     store.Lane
	jobs     []store.NewJob
	work     store.Lane
	exchange store.Exchange
	held     *store.Lease // held all the time
}

func (r *requests) enqueue(ctx context.Context) error {
	outcome, err := r.e.Runtime.Enqueue(ctx, &r.lane, "mail", r.jobs)
	return errors.Join(append(outcome, err)...)
}

func (r *requests) swap(ctx context.Context) (store.Exchanged, error) {
	return r.e.Runtime.Exchange(ctx, &r.work, r.e.Terms(), r.exchange)
}

// whileMoving makes all requests, which may fail, but then for a reason that passes, and having changed nothing.
func (c *cluster) whileMoving(t *testing.T, when string, r *requests) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	pattern := r.e.Prefix + ":{mail}:*"
	for _, request := range []func() error{
		func() error { return r.enqueue(ctx) },
		func() error { _, err := r.swap(ctx); return err },
		func() error {
			_, _, err := r.e.Runtime.Heartbeat(ctx, r.e.Terms(), []store.Beat{{Lease: r.held, Progress: []byte(`1`)}}, nil)
			return err
		},
		func() error { _, err := r.e.Runtime.Reap(ctx, r.e.Terms()); return err },
		func() error { _, err := r.e.Store.Get(ctx, r.held.Job.ID); return err },
		func() error { return r.e.Store.Pause(ctx, "mail") },
	} {
		before := c.content(t, pattern)
		err := request()
		if err == nil {
			continue
		}
		if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrExists) {
			t.Errorf("%s: %v", when, err)
		}
		if after := c.content(t, pattern); !maps.Equal(before, after) {
			t.Errorf("%s: a request has failed with %v, and something has changed", when, err)
		}
	}
}

// While a slot migrates an instance may wait; it never loses, and nothing is done by halves.
func TestAMigratingSlotMakesAnInstanceWaitAndLosesNothing(t *testing.T) {
	c := startCluster(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	st := open(t, c.rdb, prefix)
	e := &storetest.Env{Store: st, Runtime: st.Runtime(), Process: uuid.New(), Prefix: prefix}
	for _, name := range []string{"a", "b", "c"} { // other slots
		e.EnqueueTo(t, name, make([]store.NewJob, 3)...)
	}
	ids := e.Add(t, 10)
	held := e.Claim(t, 2)
	if len(held) != 2 {
		t.Fatalf("claimed %d jobs, want 2", len(held))
	}
	e.Want(t, store.Todo, ids[9])
	r := &requests{e: e, held: held[1], jobs: []store.NewJob{{ID: uuid.New(), Payload: []byte(`1`)}}, exchange: store.Exchange{
		Finishes: []store.Finish{{Lease: held[0], Verb: store.Complete}}, Claims: []uuid.UUID{held[0].Worker(), uuid.New()},
	}}
	slot := c.nodes[0].ClusterKeySlot(ctx, e.Key("mail", "jobs")).Val()
	moving := func() { c.setSlot(t, slot, []any{"MIGRATING", c.ids[1]}, []any{"IMPORTING", c.ids[0]}) }

	moving()
	c.whileMoving(t, "a move that is called off", r)
	c.setSlot(t, slot, []any{"STABLE"}, []any{"STABLE"})
	r.settle(t)

	r.jobs[0].ID = uuid.New()
	r.exchange = store.Exchange{Claims: []uuid.UUID{uuid.New(), uuid.New()}}
	keys, err := c.nodes[0].Keys(ctx, prefix+":{mail}:*").Result()
	noError(t, "listing keys", err)
	moving()
	host, port, _ := net.SplitHostPort(c.nodes[1].Options().Addr)
	for moved, key := range keys {
		if moved == 0 || moved == 1 || moved == len(keys)/2 {
			c.whileMoving(t, fmt.Sprintf("with %d of %d keys moved", moved, len(keys)), r)
		}
		noError(t, "moving a key", c.nodes[0].Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
	}
	c.whileMoving(t, "with all keys moved", r)
	c.setSlot(t, slot, []any{"NODE", c.ids[1]}, []any{"NODE", c.ids[1]})
	if left, err := c.nodes[0].Keys(ctx, prefix+":{mail}:*").Result(); err != nil || len(left) != 0 {
		t.Errorf("%d keys have not moved, %v", len(left), err)
	}
	r.settle(t)

	if s := e.Stats(t); s.Total != 12 || s.Done != 1 || s.Doing != 5 || s.Todo != 6 {
		t.Errorf("stats are %+v, want 12 jobs: 1 done, 5 doing, 6 todo", s)
	}
	if m := e.Reap(t); m.Missing != 0 {
		t.Errorf("%d are missing", m.Missing)
	}
}

// settle makes the requests until they are answered, as if nothing had been: each has happened once.
func (r *requests) settle(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	redistest.Eventually(t, "the slot serves", func() bool { return r.e.Store.Resume(ctx, "mail") == nil })
	noError(t, "enqueuing", r.enqueue(ctx))
	out, err := r.swap(ctx)
	if err != nil || len(out.Leases) != 2 || len(out.Ended) != len(r.exchange.Finishes) || slices.Contains(out.Ended, "") {
		t.Errorf("an exchange is answered with %+v, %v; want two jobs, and all finished", out, err)
	}
	verdicts, _, err := r.e.Runtime.Heartbeat(ctx, r.e.Terms(), []store.Beat{{Lease: r.held, Progress: []byte(`2`)}}, nil)
	if err != nil || verdicts[0] != store.Held {
		t.Errorf("a heartbeat got %v, %v", verdicts, err)
	}
	r.e.Want(t, store.Todo, r.jobs[0].ID)
}
