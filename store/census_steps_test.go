package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// What jobs with steps, and their children, leave behind when they have ended in every way and are purged: nothing either. The children are
// of the parents' own instance and, on a Cluster, at another node.
func TestJobsWithStepsLeaveNothingBehindOncePurged(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		c := &censusTaker{t: t, Env: storetest.Real(t, redistest.Start(t).Addr())}
		c.everyPath(1)
		c.familiesLeaveNothing("mail", redistest.Size(2_000, 10_000))
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3)
		c := &censusTaker{t: t, Env: storetest.Cluster(t, cluster)}
		const children = "render"
		if cluster.Owner(cluster.Slot(c.Key("mail", "jobs"))) == cluster.Owner(cluster.Slot(c.Key(children, "jobs"))) {
			t.Fatal("parents and children are at the same node")
		}
		c.everyPath(1)
		c.familiesLeaveNothing(children, redistest.Size(800, 10_000))
	})
}

// familiesLeaveNothing takes a census before and after n families with their children in an instance, and in one more: it finds the same.
func (c *censusTaker) familiesLeaveNothing(childrenIn string, n int) {
	c.t.Helper()
	c.families(childrenIn, 3)
	before := c.count()
	for c.jobs = 0; c.jobs < n; {
		c.families(childrenIn, 100)
	}
	c.wantAsBefore(before)
}

// families sends k parents each way, with two children each, and purges what has ended.
func (c *censusTaker) families(childrenIn string, k int) {
	c.t.Helper()
	for _, end := range c.familyEnds(k) {
		end(c.family(childrenIn, k))
		c.sweep()
		all, err := c.Store.Stats(c.t.Context())
		c.must(err)
		for _, s := range all {
			if s.Total != s.Done+s.Dead+s.Cancelled {
				c.t.Fatalf("jobs have not ended: %+v", s)
			}
		}
		c.sweep()
	}
	for _, name := range c.instances() {
		_, err := c.Store.Purge(c.t.Context(), store.Filter{Instance: name})
		c.must(err)
	}
	c.sweep()
}

// familyEnds are the ways in which k families end, of which the parents are parked.
func (c *censusTaker) familyEnds(k int) []func(parents, children, aside []*store.Lease) {
	complete := store.Finish{Verb: store.Complete, Result: []byte(`1`)}
	return []func(parents, children, aside []*store.Lease){
		func(_, children, aside []*store.Lease) { // as it is meant to be
			c.Finish(c.t, complete, children...)
			c.Finish(c.t, complete, aside...)
			c.sweep()
			c.run(k, complete)
		},
		func(_, children, aside []*store.Lease) { // who goes on with the parent crashes
			c.Finish(c.t, complete, children...)
			c.Finish(c.t, complete, aside...)
			c.sweep()
			c.crash(k)
			c.Later(c.t, time.Minute)
			c.reap(k)
			c.run(k, complete)
		},
		func(_, children, aside []*store.Lease) { // one child fails, the parent with it, and comes again; the other child is still open
			c.Finish(c.t, store.Finish{Verb: store.Bury, Error: "no"}, children...)
			c.sweep()
			again := c.claim(c.Terms(), k)
			c.Finish(c.t, store.Finish{Verb: store.Bury}, again...)
			for i, l := range again {
				mode := []store.RequeueMode{store.Resume, store.Fresh, store.FromStep("rows")}[i%3]
				c.must(c.Store.Requeue(c.t.Context(), l.Job.ID, mode))
			}
			c.Finish(c.t, store.Finish{Verb: store.Retry}, aside...)
			c.run(k, complete)
		},
		func(parents, children, aside []*store.Lease) { // the parent is cancelled
			for _, l := range parents {
				c.must(c.Store.Cancel(c.t.Context(), l.Job.ID))
			}
			c.sweep()
			c.Finish(c.t, store.Finish{Verb: store.Retry}, children...)
			c.Finish(c.t, store.Finish{Verb: store.Retry}, aside...)
		},
		func(parents, children, aside []*store.Lease) { // all are deleted
			for _, l := range parents {
				c.must(c.Store.Delete(c.t.Context(), l.Job.ID))
			}
			c.Finish(c.t, store.Finish{Verb: store.Release}, children...)
			c.Finish(c.t, store.Finish{Verb: store.Release}, aside...)
			for _, l := range slices.Concat(children, aside) {
				c.must(c.Store.Delete(c.t.Context(), l.Job.ID))
			}
		},
	}
}

func (c *censusTaker) instances() []string {
	c.t.Helper()
	all, err := c.Store.Instances(c.t.Context())
	c.must(err)
	return all
}

// family has k parked parents, which have a cursor and have slept, and their children, which are doing: one of each in an instance, and
// one aside in another.
func (c *censusTaker) family(childrenIn string, k int) (parents, children, aside []*store.Lease) {
	c.t.Helper()
	c.add(k, nil)
	c.sleep(c.claim(c.Terms(), k))
	parents = c.claim(c.Terms(), k)
	children = c.spawn(parents, "child", childrenIn)
	aside = c.spawn(parents, "aside", "other")
	if len(parents) != k || len(children) != k || len(aside) != k {
		c.t.Fatalf("claimed %d, %d and %d jobs, want %d", len(parents), len(children), len(aside), k)
	}
	c.Finish(c.t, store.Finish{Verb: store.Park, Wait: store.Wait{Steps: []string{"child", "aside"}}}, parents...)
	return parents, children, aside
}

// sleep lets jobs commit, sleep and wake.
func (c *censusTaker) sleep(leases []*store.Lease) {
	c.t.Helper()
	var parks []store.Finish
	for _, l := range leases {
		got := c.commit(l, store.StepWrite{Name: "nap", Kind: store.SleepStep, Sleep: 10 * time.Second},
			store.StepWrite{Name: "charge", Kind: store.LocalStep, Value: []byte(`1`)},
			store.StepWrite{Name: "rows", Kind: store.CursorStep, Save: 1, Value: []byte(`1`)})
		c.commit(l, store.StepWrite{Name: "rows", Kind: store.CursorStep, Save: 2, Value: []byte(`22`)})
		parks = append(parks, store.Finish{Lease: l, Verb: store.Park, Wait: store.Wait{Until: got[0].Until, Steps: []string{"nap"}}})
	}
	for i, state := range c.Exchange(c.t, c.Terms(), store.Exchange{Finishes: parks}).Ended {
		if state != store.Parked {
			c.t.Fatalf("job %d that sleeps until %v is %s", i, parks[i].Wait.Until, state)
		}
	}
	c.Later(c.t, 11*time.Second)
	c.sweepAt("mail")
}

// spawn gives each job a child, which is claimed.
func (c *censusTaker) spawn(parents []*store.Lease, step, instance string) []*store.Lease {
	c.t.Helper()
	var jobs []store.NewJob
	for _, l := range parents {
		child := store.NewJob{ID: store.ChildID(&l.Job, step, l.Steps.Generation), Payload: []byte(`1`),
			Parent: store.Parent{ID: l.Job.ID, Instance: "mail", Step: step, Generation: l.Steps.Generation}}
		c.commit(l, store.StepWrite{Name: step, Kind: store.AsyncStep, Instance: instance, Child: child})
		jobs = append(jobs, child)
	}
	c.jobs += len(jobs)
	c.EnqueueTo(c.t, instance, jobs...)
	terms := c.Terms()
	terms.Instance = instance
	return c.claim(terms, len(jobs))
}

func (c *censusTaker) commit(l *store.Lease, writes ...store.StepWrite) []store.Step {
	c.t.Helper()
	got, err := c.Runtime.Commit(c.t.Context(), l, store.StepLimits{Count: store.MaxSteps, Bytes: store.MaxStepBytes}, writes...)
	c.must(err)
	return got.Known
}

// sweep lets time pass and sweeps until there is nothing more to do at once.
func (c *censusTaker) sweep() {
	c.t.Helper()
	for range 3 {
		c.Later(c.t, 11*time.Second)
		for _, name := range c.instances() {
			c.sweepAt(name)
		}
	}
}

func (c *censusTaker) sweepAt(instance string) {
	c.t.Helper()
	for range 100 {
		got, err := c.Runtime.Sweep(c.t.Context(), instance)
		c.must(err)
		c.must(got.Err)
		if got.Next != 0 {
			break
		}
	}
}
