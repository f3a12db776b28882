package store_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
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

// everyPath sends k jobs each way, and purges what has ended.
func (c *censusTaker) everyPath(k int) {
	c.t.Helper()
	for _, path := range []func(k int){c.done, c.dead, c.cancelled, c.unique, c.limited, c.rated, c.delayed, c.retried, c.reaped, c.crashed,
		c.expired, c.removed, c.awaited, c.requeued, c.unkept} {
		path(k)
		if s := c.Stats(c.t); s.Total != s.Done+s.Dead+s.Cancelled {
			c.t.Fatalf("jobs have not ended: %+v", s)
		}
	}
	c.Later(c.t, 2*time.Hour) // the windows of uniqueness, and the minute for which somebody waits
	for range 1000 {
		if c.Reap(c.t).Next != 0 {
			break
		}
	}
	_, err := c.Store.Purge(c.t.Context(), store.Filter{Instance: "mail"})
	c.must(err)
	if s := c.Stats(c.t); s.Total != 0 {
		c.t.Fatalf("there are still %+v", s)
	}
}

func (c *censusTaker) add(k int, job func(i int) store.NewJob) []uuid.UUID {
	c.t.Helper()
	c.jobs += k
	jobs := make([]store.NewJob, k)
	for i := range jobs {
		if job != nil {
			jobs[i] = job(i)
		}
	}
	return c.Enqueue(c.t, jobs...)
}

func (c *censusTaker) claim(terms store.Terms, k int) []*store.Lease {
	c.t.Helper()
	x := store.Exchange{}
	for range k {
		x.Claims = append(x.Claims, uuid.New())
	}
	return c.Exchange(c.t, terms, x).Leases
}

// run claims k jobs and ends them in one way.
func (c *censusTaker) run(k int, f store.Finish) {
	c.t.Helper()
	got := c.claim(c.Terms(), k)
	if len(got) != k {
		c.t.Fatalf("claimed %d jobs of %d", len(got), k)
	}
	c.Finish(c.t, f, got...)
}

func (c *censusTaker) done(k int) {
	c.add(k, func(int) store.NewJob { return store.NewJob{Metadata: map[string]string{"a": "b"}, MaxAttempts: 2} })
	c.run(k, store.Finish{Verb: store.Complete, Progress: []byte(`1`), Result: []byte(`2`)})
}

func (c *censusTaker) dead(k int) {
	c.add(k, nil)
	c.run(k, store.Finish{Verb: store.Bury, Progress: []byte(`1`), Error: "no"})
}

func (c *censusTaker) cancelled(k int) {
	for _, id := range c.add(k, nil) {
		c.must(c.Store.Cancel(c.t.Context(), id))
	}
	c.add(k, nil)
	for i, l := range c.claim(c.Terms(), k) {
		c.must(c.Store.Cancel(c.t.Context(), l.Job.ID))
		c.Finish(c.t, store.Finish{Verb: []store.Verb{store.Cancel, store.Retry, store.Complete}[i%3], Error: "told to"}, l)
	}
}

func (c *censusTaker) unique(k int) {
	for _, mode := range []store.UniqueMode{store.UniqueClaimed, store.UniqueDone, store.UniqueTerminal, store.UniqueWindow} {
		for _, verb := range []store.Verb{store.Complete, store.Bury} {
			ids := c.add(k, func(int) store.NewJob {
				u := store.Unique{Key: uuid.NewString(), Mode: mode}
				if mode == store.UniqueWindow {
					u.Window = time.Hour
				}
				return store.NewJob{Unique: u}
			})
			c.run(k, store.Finish{Verb: verb})
			if verb == store.Bury {
				c.must(c.Store.Requeue(c.t.Context(), ids[0], store.RequeueMode{}))
				c.run(1, store.Finish{Verb: store.Complete})
			}
		}
	}
}

func (c *censusTaker) limited(k int) {
	c.add(k, nil)
	terms := c.Terms()
	terms.Limit = (k + 1) / 2
	for range 2 {
		c.Finish(c.t, store.Finish{Verb: store.Complete}, c.claim(terms, k)...)
	}
}

func (c *censusTaker) rated(k int) {
	c.add(k, nil)
	terms := c.Terms()
	terms.Rate = store.Rate{N: 1000, Per: time.Millisecond}
	for n := 0; n < k; {
		got := c.claim(terms, k)
		c.Finish(c.t, store.Finish{Verb: store.Complete}, got...)
		if n += len(got); len(got) == 0 {
			c.Later(c.t, time.Second)
		}
	}
}

func (c *censusTaker) delayed(k int) {
	c.add(k, func(int) store.NewJob { return store.NewJob{Delay: time.Hour} })
	c.Later(c.t, time.Hour)
	c.run(k, store.Finish{Verb: store.Complete})
}

func (c *censusTaker) retried(k int) {
	c.add(k, nil)
	for _, verb := range []store.Verb{store.Retry, store.Snooze} {
		c.run(k, store.Finish{Verb: verb, Delay: time.Minute, Error: "again", Progress: []byte(`1`)})
		c.Later(c.t, time.Minute)
	}
	c.run(k, store.Finish{Verb: store.Release})
	c.run(k, store.Finish{Verb: store.Complete})
}

func (c *censusTaker) reaped(k int) {
	c.add(k, nil)
	c.crash(k)
	c.Later(c.t, time.Minute)
	c.reap(k)
	c.run(k, store.Finish{Verb: store.Complete})
}

// reap makes as many passes as it takes to end k leases or waits: one does not end all of them.
func (c *censusTaker) reap(k int) {
	c.t.Helper()
	for n := 0; n < k; {
		m := c.Reap(c.t)
		if len(m.Reaped)+len(m.Expired) == 0 {
			c.t.Fatalf("ended %d of %d", n, k)
		}
		n += len(m.Reaped) + len(m.Expired)
	}
}

// crashed jobs become suspects, of which a process runs one at a time, and die.
func (c *censusTaker) crashed(k int) {
	k = min(k, 10)
	c.add(k, nil)
	for range 2 + k {
		c.crash(k)
		c.Later(c.t, time.Minute)
		c.Reap(c.t)
	}
}

// crash lets a process that never comes again claim k jobs.
func (c *censusTaker) crash(k int) {
	c.t.Helper()
	terms := c.Terms()
	terms.Process = uuid.New()
	c.claim(terms, k)
}

func (c *censusTaker) expired(k int) {
	soon := time.Now().Add(time.Hour)
	c.add(k, func(int) store.NewJob { return store.NewJob{Deadline: soon} })
	c.Later(c.t, 2*time.Hour)
	c.reap(k)
	c.add(k, func(int) store.NewJob { return store.NewJob{Deadline: soon} })
	c.run(k, store.Finish{Verb: store.Retry, Delay: time.Minute})
	c.Later(c.t, time.Minute)
	c.run(k, store.Finish{Verb: store.Complete})
}

func (c *censusTaker) removed(k int) {
	job := func(i int) store.NewJob {
		return store.NewJob{Delay: time.Duration(i%2) * time.Hour, Deadline: time.Now().Add(time.Hour),
			Unique: store.Unique{Key: uuid.NewString(), Mode: store.UniqueTerminal}}
	}
	for _, id := range c.add(k, job) {
		c.must(c.Store.Delete(c.t.Context(), id))
	}
}

func (c *censusTaker) awaited(k int) {
	for _, id := range c.add(k, nil) {
		_, err := c.Runtime.Await(c.t.Context(), "mail", id)
		c.must(err)
	}
	c.run(k, store.Finish{Verb: store.Complete})
}

func (c *censusTaker) requeued(k int) {
	for i, id := range c.add(k, nil) {
		c.run(1, store.Finish{Verb: []store.Verb{store.Complete, store.Bury}[i%2], Progress: []byte(`1`), Error: "e"})
		c.must(c.Store.Requeue(c.t.Context(), id, store.RequeueMode{}))
		c.run(1, store.Finish{Verb: store.Complete})
	}
}

// unkept jobs are removed as they end.
func (c *censusTaker) unkept(k int) {
	c.add(k, nil)
	terms := c.Terms()
	terms.Done, terms.Dead = store.Retention{}, store.Retention{}
	for _, l := range c.claim(terms, k) {
		c.Exchange(c.t, terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Complete, Result: []byte(`1`)}}})
	}
}
