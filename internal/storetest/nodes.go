package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// What a server is asked for as a whole each node of a Cluster has a part of.

// eachNode calls f with a client of each node, or of the one server there is; never two at a time.
func eachNode(ctx context.Context, rdb redis.UniversalClient, f func(node *redis.Client) error) error {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return f(rdb)
	case *redis.ClusterClient:
		var one sync.Mutex
		return rdb.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			one.Lock()
			defer one.Unlock()
			return f(node)
		})
	}
	return fmt.Errorf("no nodes are known of a %T", rdb)
}

// keysOf returns the keys that match a pattern.
func keysOf(ctx context.Context, rdb redis.UniversalClient, pattern string) (all []string, err error) {
	err = eachNode(ctx, rdb, func(node *redis.Client) error {
		some, err := node.Keys(ctx, pattern).Result()
		all = append(all, some...)
		return err
	})
	slices.Sort(all)
	return all, err
}

// Keys returns the keys that match a pattern, in order; those of other tests too, if these share the server.
func (e *Env) Keys(t testing.TB, pattern string) []string {
	t.Helper()
	all, err := keysOf(t.Context(), e.Raw, pattern)
	if err != nil {
		t.Fatalf("listing keys: %v", err)
	}
	return all
}

// calls counts what a command was called, on a real server.
func (e *Env) calls(t *testing.T, command string, f func()) int {
	t.Helper()
	count := func() (n int) {
		must(t, eachNode(t.Context(), e.Raw, func(node *redis.Client) error {
			info, err := node.Info(t.Context(), "commandstats").Result()
			if _, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls="); ok {
				var here int
				_, err = fmt.Sscanf(rest, "%d", &here)
				n += here
			}
			return err
		}))
		return n
	}
	if e.Fake {
		f()
		return 0
	}
	before := count()
	f()
	return count() - before
}

// subscribers counts the subscribers of a channel.
func (e *Env) subscribers(t *testing.T, channel string) (n int64) {
	t.Helper()
	must(t, eachNode(t.Context(), e.Raw, func(node *redis.Client) error {
		here, err := node.PubSubNumSub(t.Context(), channel).Result()
		n += here[channel]
		return err
	}))
	return n
}

// say publishes a message where the instance's scripts do: so it comes after what they have said.
func (e *Env) say(t *testing.T, channel, message string) {
	t.Helper()
	node, err := e.Raw, error(nil)
	if cluster, ok := e.Raw.(*redis.ClusterClient); ok {
		node, err = cluster.MasterForKey(t.Context(), e.Key(instance, "jobs"))
	}
	if err == nil {
		err = node.Publish(t.Context(), channel, message).Err()
	}
	if err != nil {
		t.Fatalf("publishing: %v", err)
	}
}
