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

// What jobs with steps, and their children, leave behind when they have ended in every way and are purged: nothing either.
func TestJobsWithStepsLeaveNothingBehindOncePurged(t *testing.T) {
	c := &censusTaker{t: t, Env: storetest.Real(t, redistest.Start(t).Addr())}
	c.everyPath(1)
	c.families(1)
	before := c.count()
	c.jobs = 0
	for n := redistest.Size(2_000, 10_000); c.jobs < n; {
		c.families(100)
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

// families sends k parents each way, with a child of the same instance each, and purges what has ended.
func (c *censusTaker) families(k int) {
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
		parents, children := c.family(k)
		end(parents, children)
		c.sweep()
		if s := c.Stats(c.t); s.Total != s.Done+s.Dead+s.Cancelled {
			c.t.Fatalf("jobs have not ended: %+v", s)
		}
		c.sweep()
	}
	_, err := c.Store.Purge(c.t.Context(), store.Filter{Instance: "mail"})
	c.must(err)
	c.sweep()
}

// family has k parked parents, and their children, which are doing.
func (c *censusTaker) family(k int) (parents, children []*store.Lease) {
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
			store.StepWrite{Name: "child", Kind: store.AsyncStep, Instance: "mail", Child: child})
		c.must(err)
		jobs = append(jobs, child)
	}
	c.Enqueue(c.t, jobs...)
	children = c.claim(c.Terms(), k)
	c.Finish(c.t, store.Finish{Verb: store.Park, Wait: store.Wait{Steps: []string{"child"}}}, parents...)
	return parents, children
}

// sweep lets time pass and sweeps until there is nothing more to do at once.
func (c *censusTaker) sweep() {
	c.t.Helper()
	for range 3 {
		c.Later(c.t, 11*time.Second)
		for range 100 {
			got, err := c.Runtime.Sweep(c.t.Context(), "mail")
			c.must(err)
			c.must(got.Err)
			if got.Next != 0 {
				break
			}
		}
	}
}
