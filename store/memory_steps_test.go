package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// The figures of docs/operations.md for steps: what they take beside the job. As for jobs, twice as much fails.
func TestAStepTakesNoMoreMemoryThanTheDocsSay(t *testing.T) {
	local := func(name string) store.StepWrite {
		return store.StepWrite{Name: name, Kind: store.LocalStep, Value: json.RawMessage(`"` + strings.Repeat("x", 30) + `"`)}
	}
	steps := func(from, n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("step/%02d", from+i))
		}
		return names
	}
	for _, c := range []struct {
		name   string
		docs   float64
		before int // local steps that a job has already
		n      int // steps that are measured
		write  func(l *store.Lease, name string) store.StepWrite
		after  func(t *testing.T, st *store.Store, kids []store.NewJob) // what else is done to the children
	}{
		{name: "the first step of a job", docs: 190, n: 1},
		{name: "a further step", docs: 60, before: 1, n: 10},
		{name: "a further step of a job with more than 128", docs: 90, before: 200, n: 50},
		{name: "a child that is open", docs: 580, before: 1, n: 10, write: asChild},
		{name: "a child that is done, with a result", docs: 160, before: 1, n: 10, write: asChild, after: resolve},
	} {
		t.Run(c.name, func(t *testing.T) {
			const jobs = 500
			rdb := redistest.Start(t).Client(t)
			st := open(t, rdb, "")
			held := hold(t, st, jobs)
			commit := func(n, from int, write func(*store.Lease, string) store.StepWrite) (kids []store.NewJob) {
				for _, l := range held {
					var all []store.StepWrite
					for _, name := range steps(from, n) {
						w := write(l, name)
						all = append(all, w)
						kids = append(kids, w.Child)
					}
					if n > 0 {
						_, err := st.Runtime().Commit(t.Context(), l, store.StepLimits{Count: store.MaxSteps, Bytes: store.MaxStepBytes}, all...)
						noError(t, "committing", err)
					}
				}
				return kids
			}
			first := func(_ *store.Lease, name string) store.StepWrite { return local(name) }
			if c.write == nil {
				c.write = first
			}
			commit(c.before, 0, first)
			before := memory(t, rdb)
			kids := commit(c.n, c.before, c.write)
			if c.after != nil {
				c.after(t, st, kids)
			}
			each := (memory(t, rdb) - before) / float64(jobs*c.n)
			t.Logf("%.0f bytes a step", each)
			if each > 2*c.docs {
				t.Errorf("%.0f bytes a step; the docs say %.0f", each, c.docs)
			}
		})
	}
}

// asChild is a step with a child, whose payload has 32 bytes.
func asChild(l *store.Lease, name string) store.StepWrite {
	return store.StepWrite{Name: name, Kind: store.AsyncStep, Instance: "child", Child: store.NewJob{
		ID: store.ChildID(&l.Job, name, 0), Payload: json.RawMessage(`"` + strings.Repeat("x", 30) + `"`),
		Parent: store.Parent{ID: l.Job.ID, Instance: "x", Step: name}}}
}

// resolve tells the parents of children that these are done, with a result of 32 bytes.
func resolve(t *testing.T, st *store.Store, kids []store.NewJob) {
	t.Helper()
	var outcomes []store.Outcome
	for _, k := range kids {
		outcomes = append(outcomes, store.Outcome{Child: k.ID, Instance: "child", Parent: k.Parent, Fate: store.FateDone,
			Text: `"` + strings.Repeat("x", 30) + `"`})
	}
	noError(t, "delivering", st.Runtime().Relay(t.Context(), outcomes))
}

// hold enqueues n jobs and claims them.
func hold(t *testing.T, st *store.Store, n int) []*store.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	jobs, claims := make([]store.NewJob, n), make([]uuid.UUID, n)
	for i := range jobs {
		jobs[i], claims[i] = store.NewJob{ID: uuid.New(), Payload: json.RawMessage(`1`)}, uuid.New()
	}
	_, err := st.Runtime().Enqueue(ctx, new(store.Lane), "x", jobs)
	noError(t, "enqueuing", err)
	terms := store.Terms{Instance: "x", Process: uuid.New(), Lease: time.Hour, MaxCrashes: 3}
	got, err := st.Runtime().Exchange(ctx, new(store.Lane), terms, store.Exchange{Claims: claims})
	if err != nil || len(got.Leases) != n {
		t.Fatalf("%d leases, %v", len(got.Leases), err)
	}
	return got.Leases
}
