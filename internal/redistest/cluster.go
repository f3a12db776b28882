package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	slots          = 16384
	clusterTimeout = 30 * time.Second // of its making, many times what that takes
	settlePause    = 20 * time.Millisecond
)

// Cluster is a Redis Cluster of masters only.
type Cluster struct {
	Nodes []*Server
	tb    testing.TB
	links []*redis.Client // one a node
	ids   []string
}

// StartCluster runs a Cluster of n nodes until the test has ended, each with an equal share of the slots, in order. It returns when
// all of them know of each other. Anything that goes wrong ends the test.
func StartCluster(t testing.TB, n int, o ...Option) *Cluster {
	t.Helper()
	c := &Cluster{tb: t}
	o = append(slices.Clone(o), Config("cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 5000"))
	for i := range n {
		s := Start(t, o...)
		c.Nodes, c.links = append(c.Nodes, s), append(c.links, s.Client(t))
		c.do(i, "cluster", "set-config-epoch", i+1)
		c.do(i, "cluster", "addslotsrange", slots*i/n, slots*(i+1)/n-1)
		c.ids = append(c.ids, fmt.Sprint(c.do(i, "cluster", "myid")))
	}
	for i := 1; i < n; i++ {
		c.do(0, "cluster", "meet", "127.0.0.1", c.Nodes[i].port)
	}
	for deadline := time.Now().Add(clusterTimeout); !c.complete(); time.Sleep(settlePause) {
		if time.Now().After(deadline) {
			t.Fatalf("the nodes of the cluster do not know each other within %v", clusterTimeout)
		}
	}
	return c
}

// complete reports whether every node knows who has each of the slots.
func (c *Cluster) complete() bool {
	for i := range c.Nodes {
		info := fmt.Sprint(c.do(i, "cluster", "info"))
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(slots)) ||
			!strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(c.Nodes))) {
			return false
		}
	}
	return true
}

// Client returns a new client of the whole, which is closed when t has ended. Each edit may change its options first.
func (c *Cluster) Client(t testing.TB, edit ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, s := range c.Nodes {
		o.Addrs = append(o.Addrs, s.Addr())
	}
	for _, f := range edit {
		f(o)
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.tb.Helper()
	return int(c.do(0, "cluster", "keyslot", key).(int64))
}

// Owner returns the index of the node that a slot was given to at first.
func (c *Cluster) Owner(slot int) int {
	for i := range c.Nodes {
		if slot < slots*(i+1)/len(c.Nodes) {
			return i
		}
	}
	return -1
}

// Migrate moves a slot from one node to another, key by key, as an administrator does while others use it. during, when set, is
// called after each key that has moved, while others have not.
func (c *Cluster) Migrate(slot, from, to int, during func()) {
	c.tb.Helper()
	c.do(to, "cluster", "setslot", slot, "importing", c.ids[from])
	c.do(from, "cluster", "setslot", slot, "migrating", c.ids[to])
	for {
		keys := c.do(from, "cluster", "getkeysinslot", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		c.do(from, "migrate", "127.0.0.1", c.Nodes[to].port, keys[0], 0, 5000)
		if during != nil {
			during()
		}
	}
	c.do(to, "cluster", "setslot", slot, "node", c.ids[to])
	c.do(from, "cluster", "setslot", slot, "node", c.ids[to])
	for i := range c.Nodes {
		if i != from && i != to {
			c.do(i, "cluster", "setslot", slot, "node", c.ids[to])
		}
	}
}

// do makes a node carry a command out. An error ends the test.
func (c *Cluster) do(node int, args ...any) any {
	c.tb.Helper()
	reply, err := c.links[node].Do(context.WithoutCancel(c.tb.Context()), args...).Result()
	if err != nil {
		c.tb.Fatalf("node %d of the cluster: %v: %v", node, args, err)
	}
	return reply
}
