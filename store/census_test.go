package store_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
)

// What jobs leave behind when they have gone every way and are purged: nothing. What an instance keeps is the same after one job
// of each path and after many:
//
//   - meta: the last sequence number and the size of the largest record so far;
//   - runs, workers: one empty field each, which keeps them in the form that is quick to search;
//   - globally the format and the name of the instance.
//
// Lanes are not counted. Each expires an hour after its last request: until then that request can be repeated.
func TestJobsOfEveryPathLeaveNothingBehindOncePurged(t *testing.T) {
	c := &censusTaker{t: t, Env: storetest.Real(t, redistest.Start(t).Addr())}
	c.everyPath(1)
	before := c.count()
	t.Logf("%d jobs: %d keys, %d members, %d bytes", c.jobs, len(before), sum(before).members, sum(before).bytes)

	c.jobs = 0
	for n := redistest.Size(5_000, 100_000); c.jobs < n; {
		c.everyPath(redistest.Size(100, 500))
	}
	c.wantAsBefore(before)
}

// wantAsBefore counts again, and fails the test unless it finds the same keys, with as many members in no more bytes.
func (c *censusTaker) wantAsBefore(before map[string]holding) {
	c.t.Helper()
	after := c.count()
	c.t.Logf("%d jobs: %d keys, %d members, %d bytes", c.jobs, len(after), sum(after).members, sum(after).bytes)
	want := slices.Sorted(maps.Keys(before))
	if got := slices.Sorted(maps.Keys(after)); !slices.Equal(got, want) {
		c.t.Errorf("there are the keys %q, want %q", got, want)
	}
	for _, key := range want {
		b, a := before[key], after[key]
		if a.members != b.members || a.bytes > b.bytes+tableSlack {
			c.t.Errorf("%s: %d members in %d bytes; there were %d in %d", key, a.members, a.bytes, b.members, b.bytes)
		}
	}
}

// tableSlack is what small tables of a hash differ by: Redis shrinks a table only once it is nearly empty, and by then it may be
// of 4 or of 64 entries of 8 bytes.
const tableSlack = 512

type holding struct{ members, bytes int64 }

func sum(all map[string]holding) (s holding) {
	for _, h := range all {
		s.members += h.members
		s.bytes += h.bytes
	}
	return s
}

type censusTaker struct {
	*storetest.Env
	t    *testing.T
	jobs int // that went their way
}

// count returns what there is, but for lanes.
func (c *censusTaker) count() map[string]holding {
	c.t.Helper()
	ctx, all := c.t.Context(), map[string]holding{}
	for _, key := range c.Keys(c.t, "*") { // of our own server
		name := strings.TrimPrefix(key, c.Prefix+":")
		if strings.Contains(name, "}:lane:") {
			if ttl := c.Raw.PTTL(ctx, key).Val(); ttl <= 0 || ttl > time.Hour {
				c.t.Errorf("%s expires in %v, want at most an hour", name, ttl)
			}
			continue
		}
		kind, err := c.Raw.Type(ctx, key).Result()
		c.must(err)
		h := holding{members: 1}
		switch kind {
		case "hash":
			for range 64 { // a table that shrinks moves a little with each look, 16 entries at a time
				pipe := c.Raw.Pipeline()
				for range 256 {
					pipe.HExists(ctx, key, "nothing")
				}
				_, err := pipe.Exec(ctx)
				c.must(err)
			}
			c.Raw.HDel(ctx, key, "nothing")
			h.members, err = c.Raw.HLen(ctx, key).Result()
		case "zset":
			h.members, err = c.Raw.ZCard(ctx, key).Result()
		case "set":
			h.members, err = c.Raw.SCard(ctx, key).Result()
		}
		c.must(err)
		h.bytes, err = c.Raw.MemoryUsage(ctx, key, 0).Result()
		c.must(err)
		all[name] = h
	}
	return all
}

func (c *censusTaker) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
