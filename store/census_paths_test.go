package store_test

import (
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

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
