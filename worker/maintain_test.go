package worker_test

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestExpiredLeasesOfADeadProcessAreReapedWithinAQuarter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 4 * time.Second})
		starts := r.serve("x", nothing)
		id := r.enqueue("x", nil)
		r.claimAs(uuid.New(), "x", 4*time.Second)
		at := time.Now()
		r.start()
		if d := (<-starts).Sub(at); d > 5*time.Second {
			t.Errorf("it runs again after %v, want a lease and a quarter at most", d)
		}
		synctest.Wait()
		if e := of[worker.JobReaped](r.events); len(e) != 1 || e[0].Job != id || e[0].Crashes != 1 || e[0].State != store.Todo {
			t.Errorf("events %+v, want one", e)
		}
		r.wantState(id, store.Done, 1, "")
		r.stopWell()
	})
}

func TestTrimmedJobsAndAnInconsistencyAreEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil), worker.Retention(10*time.Second, 3))
		r.start()
		r.enqueueMany("x", 10)
		settle(time.Minute)
		n := 0
		for _, e := range of[worker.Trimmed](r.events) {
			n += e.Count
		}
		if s := r.stats("x"); n != 10 || s.Total != 0 {
			t.Errorf("%d trimmed, %+v; want all", n, s)
		}
		if e := of[worker.Inconsistent](r.events); len(e) != 0 {
			t.Errorf("events %+v, want none", e)
		}
		must(t, r.st.Runtime().Client().HSet(t.Context(), "stint:{x}:jobs", "a stray", "record").Err())
		settle(6 * time.Second)
		if e := of[worker.Inconsistent](r.events); len(e) == 0 || e[0].Missing != 1 || e[0].Instance != "x" {
			t.Errorf("events %+v, want some", e)
		}
		r.stopWell()
	})
}

func TestAProcessIsListedWhileItRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Node: "here", Lease: time.Second, Pools: []worker.Pool{{Name: "both", Concurrency: 3}}})
		worker.Handle(r.sup, "x", returns(nil), worker.In("both", 2))
		worker.Handle(r.sup, "y", returns(nil), worker.In("both", 1))
		worker.Handle(r.sup, "z", returns(nil))
		r.start()
		settle(time.Minute)
		ps, err := r.st.Processes(t.Context())
		if err != nil || len(ps) != 1 || ps[0].Node != "here" || !slices.Equal(ps[0].Instances, []string{"x", "y", "z"}) {
			t.Fatalf("processes %+v: %v", ps, err)
		}
		want := []store.Pool{{Name: "both", Concurrency: 3, Instances: []string{"x", "y"}}, {Concurrency: 10, Instances: []string{"z"}}}
		if !reflect.DeepEqual(ps[0].Pools, want) {
			t.Errorf("pools %+v, want %+v", ps[0].Pools, want)
		}
		r.stopWell()
		if ps, err = r.st.Processes(t.Context()); err != nil || len(ps) != 0 {
			t.Errorf("processes %+v after the stop: %v", ps, err)
		}
	})
}
