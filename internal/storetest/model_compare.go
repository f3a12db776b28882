package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// list reads all jobs of an instance, in order.
func (m *machine) list(t *rapid.T, d *driven) []store.Job {
	p, err := m.rig.Store.List(m.ctx, store.Filter{Instance: d.model.name, Limit: store.MaxCall})
	if err != nil || p.Next != "" {
		t.Fatalf("listing %s: %v, next %q", d.model.name, err, p.Next)
	}
	return p.Jobs
}

// invariants hold whatever the model says: a job is in one state, and a worker is mapped to it exactly while it is doing. For jobs
// whose records somebody deleted they need not.
func (m *machine) invariants(t *rapid.T, d *driven, md *model, seen []store.Job) {
	workers, err := m.rig.Store.Workers(m.ctx, d.model.name)
	if err != nil {
		t.Fatalf("listing workers: %v", err)
	}
	holds := map[uuid.UUID]uuid.UUID{} // job to worker
	for _, w := range workers {
		if other, twice := holds[w.Job]; twice {
			t.Fatalf("workers %s and %s hold the same job %s", short(w.ID), short(other), short(w.Job))
		}
		holds[w.Job] = w.ID
	}
	state := map[uuid.UUID]store.State{}
	for _, j := range seen {
		if other, twice := state[j.ID]; twice {
			t.Fatalf("job %s is both %s and %s", short(j.ID), other, j.State)
		}
		state[j.ID] = j.State
		if w, held := holds[j.ID]; md.known(j.ID) != nil && (held != (j.State == store.Doing) || held && w != j.Worker) {
			t.Fatalf("job %s is %s of worker %s, and %s is mapped to it", short(j.ID), j.State, short(j.Worker), short(w))
		}
		delete(holds, j.ID)
	}
	if len(holds) > 0 {
		t.Fatalf("workers are mapped to jobs that are nowhere: %v", holds)
	}
	if got, want := fmt.Sprint(workers), fmt.Sprint(md.workers()); got != want {
		differ(t, "workers", got, want)
	}
}

// compare looks at the rest of what can be seen: the statistics of all instances, and two jobs by their ids alone.
func (m *machine) compare(t *rapid.T, d *driven) {
	from := m.now(t)
	all, err := m.rig.Store.Stats(m.ctx)
	to := m.now(t)
	if err != nil || len(all) > len(m.all) {
		t.Fatalf("stats: %v, %v", all, err)
	}
	for _, other := range m.all {
		want, since := other.model.stats()
		i := slices.IndexFunc(all, func(s store.Stats) bool { return s.Instance == other.model.name })
		if i < 0 { // nothing was enqueued yet
			if want.Total != 0 {
				t.Fatalf("no stats of %s", other.model.name)
			}
			continue
		}
		got := all[i]
		oldest := got.OldestTodo.Milliseconds()
		if got.OldestTodo = 0; got != want {
			differ(t, "stats", got, want)
		}
		if sum := got.Todo + got.Scheduled + got.Doing + got.Parked + got.Done + got.Dead + got.Cancelled; sum != got.Total && !other.vandalised() {
			differ(t, "sum of the states than records", got, got.Total)
		}
		if since == 0 && oldest != 0 || since != 0 && (oldest < max(0, from-since) || oldest > max(0, to-since)) {
			differ(t, "age of the oldest", fmt.Sprintf("%d ms at %d to %d", oldest, from, to), fmt.Sprintf("since %d", since))
		}
	}
	for range 2 {
		id := rapid.SampledFrom(d.ids).Draw(t, "look at")
		got, err := m.rig.Store.Get(m.ctx, id)
		switch j := d.model.known(id); {
		case j == nil && !errors.Is(err, store.ErrNotFound):
			differ(t, "job "+short(id), fmt.Sprint(describe(got), err), "none")
		case j != nil && err != nil:
			t.Fatalf("job %s: %v", short(id), err)
		case j != nil && describe(got) != describe(d.model.snapshot(j)):
			differ(t, "job "+short(id), describe(got), describe(d.model.snapshot(j)))
		}
	}
}

// differ fails in words that are the same each time, by which rapid knows a failure again; the rest is logged.
func differ(t *rapid.T, what string, got, want any) {
	t.Logf("got    %+v\nwanted %+v", got, want)
	t.Fatalf("other %s than the model has", what)
}

// vandalised reports whether there are jobs whose records somebody deleted.
func (d *driven) vandalised() bool {
	for _, j := range d.model.jobs {
		if j.record == recordDeleted {
			return true
		}
	}
	return false
}

// nameOf puts an error into the model's words.
func nameOf(t *rapid.T, err error) string {
	if d, ok := errors.AsType[*store.DuplicateError](err); ok {
		return "duplicate of " + short(d.Holder)
	}
	for _, known := range []struct {
		err  error
		name string
	}{{nil, "ok"}, {store.ErrNotFound, "not found"}, {store.ErrTerminal, "terminal"}, {store.ErrState, "state"}, {store.ErrExists, "exists"},
		{store.ErrInvalid, "invalid"}} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	t.Logf("taken for a refusal: %v", err) // and if it is none, the model has another answer
	return "refused"
}
