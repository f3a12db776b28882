package store_test

import (
	"maps"
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

// familiesLeaveNothing takes a census before and after n families with their children in an instance: it finds the same.
func (c *censusTaker) familiesLeaveNothing(childrenIn string, n int) {
	c.t.Helper()
	t := c.t
	c.families(childrenIn, 1)
	before := c.count()
	for c.jobs = 0; c.jobs < n; {
		c.families(childrenIn, 100)
	}
	after := c.count()
	t.Logf("%d jobs: %d keys, %d members, %d bytes", c.jobs, len(after), sum(after).members, sum(after).bytes)
	if got, want := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)); !slices.Equal(got, want) {
		t.Errorf("there are the keys %q, want %q", got, want)
	}
	for key, b := range before {
		if a := after[key]; a.members != b.members || a.bytes > b.bytes+tableSlack {
			t.Errorf("%s: %d members in %d bytes; there were %d in %d", key, a.members, a.bytes, b.members, b.bytes)
		}
	}
}

// families sends k parents each way, with a child each, and purges what has ended.
func (c *censusTaker) families(childrenIn string, k int) {
	c.t.Helper()
	for _, end := range []func(parents, children []*store.Lease){
		func(parents, children []*store.Lease) { // as it is meant to be
			c.Finish(c.t, store.Finish{Verb: store.Complete, Result: []byte(`1`)}, children...)
			c.sweep()
			c.Finish(c.t, store.Finish{Verb: store.Complete}, c.claim(c.Terms(), k)...)
		},
		func(parents, children []*store.Lease) { // the child fails, the parent with it, and comes again
			c.Finish(c.t, store.Finish{Verb: store.Bury, Error: "no"}, children...)
			c.sweep()
			again := c.claim(c.Terms(), k)
			c.Finish(c.t, store.Finish{Verb: store.Bury}, again...)
			for _, l := range again {
				c.must(c.Store.Requeue(c.t.Context(), l.Job.ID, store.RequeueMode{}))
			}
			c.Finish(c.t, store.Finish{Verb: store.Complete}, c.claim(c.Terms(), k)...)
		},
		func(parents, children []*store.Lease) { // the parent is cancelled
			for _, l := range parents {
				c.must(c.Store.Cancel(c.t.Context(), l.Job.ID))
			}
			c.sweep()
			c.Finish(c.t, store.Finish{Verb: store.Retry}, children...)
		},
		func(parents, children []*store.Lease) { // both are deleted
			for _, l := range parents {
				c.must(c.Store.Delete(c.t.Context(), l.Job.ID))
			}
			c.Finish(c.t, store.Finish{Verb: store.Release}, children...)
			for _, l := range children {
				c.must(c.Store.Delete(c.t.Context(), l.Job.ID))
			}
		},
	} {
		parents, children := c.family(childrenIn, k)
		end(parents, children)
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

func (c *censusTaker) instances() []string {
	c.t.Helper()
	all, err := c.Store.Instances(c.t.Context())
	c.must(err)
	return all
}

// family has k parked parents, and their children, which are doing.
func (c *censusTaker) family(childrenIn string, k int) (parents, children []*store.Lease) {
	c.t.Helper()
	c.add(k, nil)
	c.jobs += k
	parents = c.claim(c.Terms(), k)
	limits := store.StepLimits{Count: store.MaxSteps, Bytes: store.MaxStepBytes}
	var jobs []store.NewJob
	for _, l := range parents {
		child := store.NewJob{ID: store.ChildID(&l.Job, "child", 0), Payload: []byte(`1`),
			Parent: store.Parent{ID: l.Job.ID, Instance: "mail", Step: "child"}}
		_, err := c.Runtime.Commit(c.t.Context(), l, limits,
			store.StepWrite{Name: "charge", Kind: store.LocalStep, Value: []byte(`1`)},
			store.StepWrite{Name: "child", Kind: store.AsyncStep, Instance: childrenIn, Child: child})
		c.must(err)
		jobs = append(jobs, child)
	}
	c.EnqueueTo(c.t, childrenIn, jobs...)
	terms := c.Terms()
	terms.Instance = childrenIn
	children = c.claim(terms, k)
	c.Finish(c.t, store.Finish{Verb: store.Park, Wait: store.Wait{Steps: []string{"child"}}}, parents...)
	return parents, children
}

// sweep lets time pass and sweeps until there is nothing more to do at once.
func (c *censusTaker) sweep() {
	c.t.Helper()
	for range 3 {
		c.Later(c.t, 11*time.Second)
		for _, name := range c.instances() {
			for range 100 {
				got, err := c.Runtime.Sweep(c.t.Context(), name)
				c.must(err)
				c.must(got.Err)
				if got.Next != 0 {
					break
				}
			}
		}
	}
}
