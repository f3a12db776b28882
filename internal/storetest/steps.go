package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// childInstance is where children are, at another node of a Cluster than their parents, and otherInstance is where some more are.
const childInstance, otherInstance = "resize", "other"

var limits = store.StepLimits{Count: store.MaxSteps, Bytes: store.MaxStepBytes}

func local(name, value string) store.StepWrite {
	return store.StepWrite{Name: name, Kind: store.LocalStep, Value: []byte(value)}
}

// commit writes steps, which must be accepted, and returns what stands there.
func (e *Env) commit(t *testing.T, l *store.Lease, writes ...store.StepWrite) []store.Step {
	t.Helper()
	got, err := e.Runtime.Commit(t.Context(), l, limits, writes...)
	if err != nil {
		t.Fatalf("committing: %v", err)
	}
	return got.Known
}

// child is the step of a job that has a child, before it was dispatched.
func child(l *store.Lease, name string) store.StepWrite {
	parent := store.Parent{ID: l.Job.ID, Instance: l.Job.Instance, Step: name, Generation: l.Steps.Generation}
	return store.StepWrite{Name: name, Kind: store.AsyncStep, Instance: childInstance, Child: store.NewJob{
		ID: store.ChildID(&l.Job, name, l.Steps.Generation), Payload: []byte(`{}`), Parent: parent}}
}

// spawn gives a job children: their records are written, then they are enqueued.
func (e *Env) spawn(t *testing.T, l *store.Lease, edit func(*store.NewJob), names ...string) []uuid.UUID {
	t.Helper()
	var writes []store.StepWrite
	var jobs []store.NewJob
	for _, name := range names {
		w := child(l, name)
		if edit != nil {
			edit(&w.Child)
		}
		writes, jobs = append(writes, w), append(jobs, w.Child)
	}
	for some := range slices.Chunk(writes, store.MaxCall) {
		e.commit(t, l, some...)
	}
	return e.EnqueueTo(t, childInstance, jobs...)
}

// parkFor ends a lease: the job waits for steps.
func (e *Env) parkFor(t *testing.T, l *store.Lease, names ...string) store.State {
	t.Helper()
	return e.Finish(t, store.Finish{Verb: store.Park, Wait: store.Wait{Steps: names}}, l)[0]
}

// childTerms are those with the children's instance.
func (e *Env) childTerms() store.Terms {
	terms := e.Terms()
	terms.Instance = childInstance
	return terms
}

// claimChildren claims n children.
func (e *Env) claimChildren(t *testing.T, n int) []*store.Lease {
	t.Helper()
	got := e.Exchange(t, e.childTerms(), store.Exchange{Claims: workers(n)}).Leases
	if len(got) != n {
		t.Fatalf("claimed %d children, want %d", len(got), n)
	}
	return got
}

// endChild ends a child, and tells nobody.
func (e *Env) endChild(t *testing.T, l *store.Lease, f store.Finish) {
	t.Helper()
	e.Finish(t, f, l)
}

// sweep makes one call.
func (e *Env) sweep(t *testing.T, instance string) store.Swept {
	t.Helper()
	got, err := e.Runtime.Sweep(t.Context(), instance)
	if err != nil || got.Err != nil {
		t.Fatalf("sweeping %s: %v, %v", instance, err, got.Err)
	}
	return got
}

// sweepLater does what the sweepers of both instances do when some time has passed.
func (e *Env) sweepLater(t *testing.T) {
	t.Helper()
	e.Later(t, 11*time.Second)
	e.sweep(t, childInstance)
	e.sweep(t, instance)
}

// step reads a step.
func (e *Env) step(t *testing.T, job uuid.UUID, name string) store.Step {
	t.Helper()
	s, err := e.Store.Step(t.Context(), job, name)
	if err != nil {
		t.Fatalf("reading step %s: %v", name, err)
	}
	return s
}

// steps lists all steps of a job by their names.
func (e *Env) steps(t *testing.T, job uuid.UUID) map[string]store.Step {
	t.Helper()
	all, cursor := map[string]store.Step{}, ""
	for range 10_000 {
		page, err := e.Store.Steps(t.Context(), job, cursor)
		if err != nil {
			t.Fatalf("listing steps: %v", err)
		}
		for _, s := range page.Steps {
			all[s.Name] = s
		}
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
	t.Fatal("a listing without end")
	return nil
}

// wantStep checks a step's state and what it says.
func (e *Env) wantStep(t *testing.T, job uuid.UUID, name string, state store.StepState, result string, fate store.Fate) {
	t.Helper()
	s := e.step(t, job, name)
	if s.State != state || string(s.Result) != result || s.Fate != fate {
		t.Errorf("step %s is %s with %q and fate %q (%s); want %s, %q, %q", name, s.State, s.Result, s.Fate, s.Error, state, result, fate)
	}
}

// stepsOf are names for n steps.
func stepsOf(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("thumb/%d", i)
	}
	return names
}

// leaveOutcome makes a family within the instance that cases work with: a parent with an open child, and one whose outcome waits.
func (e *Env) leaveOutcome(t *testing.T) {
	t.Helper()
	e.EnqueueTo(t, instance, store.NewJob{Priority: store.MaxPriority})
	l := e.claimOne(t)
	for _, name := range []string{"a", "b"} {
		w := child(l, name)
		w.Instance, w.Child.Priority = instance, store.MaxPriority
		e.commit(t, l, w)
		e.Enqueue(t, w.Child)
	}
	e.end(t, e.claimOne(t), store.Complete)
}
