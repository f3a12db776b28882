package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

func TestTheReplicasOfTheRightNodeOfAClusterAreWaitedFor(t *testing.T) {
	c := redistest.StartCluster(t, 3, redistest.Config("repl-diskless-sync-delay 0"))
	st, err := store.Open(c.Client(t), store.Options{WaitReplicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	owner := c.Nodes[c.Owner(c.Slot("stint:{mail}:jobs"))]
	err = enqueue(st, t.Context())
	if _, ok := errors.AsType[*store.ReplicasError](err); !ok {
		t.Fatalf("enqueuing where no node has a replica: %v", err)
	}
	id, err := owner.Client(t).Do(t.Context(), "cluster", "myid").Text()
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, redistest.Config("cluster-enabled yes", "cluster-config-file nodes.conf"))
	joinCluster(t, replica.Client(t), owner.Addr(), id)

	var lane store.Lane
	job := aJob()
	redistest.Eventually(t, "the replica follows", func() bool { return send(t.Context(), st, &lane, job) == nil })
	if n, err := replica.Client(t).DBSize(t.Context()).Result(); err != nil || n == 0 { // that of keys it would send elsewhere
		t.Errorf("the replica has %d keys, %v", n, err)
	}

	// From Redis 7.2 on WAIT is about what was written for its connection: who changes nothing has to write something all the same.
	noError(t, "resuming what is not paused", st.Resume(t.Context(), "mail"))
	watch := &replicationWatch{replica: replica.Client(t)}
	rdb := c.Client(t)
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(watch) })
	st, err = store.Open(rdb, store.Options{WaitReplicas: 1})
	noError(t, "opening", err)
	noError(t, "resuming it again", st.Resume(t.Context(), "mail"))
	if watch.waits != 2 || watch.idle > 0 { // whether the replica follows, and what was asked
		t.Errorf("it was waited for %d times, %d times for nothing", watch.waits, watch.idle)
	}
}

// joinCluster makes a node a replica of the master with the id.
func joinCluster(t *testing.T, c *redis.Client, addr, id string) {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	if err := c.Do(t.Context(), "cluster", "meet", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "it has heard of its master", func() bool { return c.Do(t.Context(), "cluster", "replicate", id).Err() == nil })
}

// replicationWatch counts the pipelines that wait for a replica, and those of them by which it was sent nothing.
type replicationWatch struct {
	replica     *redis.Client
	waits, idle int
}

func (w *replicationWatch) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (w *replicationWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (w *replicationWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[len(cmds)-1].Name() != "wait" {
			return next(ctx, cmds)
		}
		w.replica.ConfigResetStat(ctx)
		err := next(ctx, cmds)
		w.waits++
		if !strings.Contains(w.replica.Info(ctx, "commandstats").Val(), "cmdstat_set:") {
			w.idle++
		}
		return err
	}
}
