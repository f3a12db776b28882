package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// operation is anything that a store can be asked for, given a world with a job that is held.
type operation struct {
	name string
	call func(e *Env, t *testing.T, l *store.Lease) error
	only []string // the keys of an instance that it looks at; nil: all
}

func operations() []operation {
	id := func(l *store.Lease) uuid.UUID { return l.Job.ID }
	return []operation{
		{"Enqueue", func(e *Env, t *testing.T, _ *store.Lease) error {
			return errOf(e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, newJobs(2)))
		}, nil},
		{"Exchange, claiming", func(e *Env, t *testing.T, _ *store.Lease) error {
			return errOf(e.Runtime.Exchange(t.Context(), new(store.Lane), e.Terms(), store.Exchange{Claims: workers(2), Wait: true}))
		}, nil},
		{"Exchange, finishing", func(e *Env, t *testing.T, l *store.Lease) error {
			f := store.Finish{Lease: l, Verb: store.Complete, Result: []byte(`1`), Progress: []byte(`2`)}
			_, err := e.Runtime.Exchange(t.Context(), new(store.Lane), e.Terms(), store.Exchange{Finishes: []store.Finish{f}})
			return err
		}, nil},
		{"Heartbeat", func(e *Env, t *testing.T, l *store.Lease) error {
			_, _, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), []store.Beat{{Lease: l, Progress: []byte(`1`)}}, workers(1))
			return err
		}, nil},
		{"Reap", func(e *Env, t *testing.T, _ *store.Lease) error { return errOf(e.Runtime.Reap(t.Context(), e.Terms())) }, nil},
		{"Await", func(e *Env, t *testing.T, l *store.Lease) error {
			return errOf(e.Runtime.Await(t.Context(), instance, id(l)))
		}, nil},
		{"Leave", func(e *Env, t *testing.T, _ *store.Lease) error {
			return e.Runtime.Leave(t.Context(), store.Process{ID: e.Process, Instances: []string{instance}})
		}, nil},
		{"Get", func(e *Env, t *testing.T, l *store.Lease) error { return errOf(e.Store.Get(t.Context(), id(l))) }, nil},
		{"List", func(e *Env, t *testing.T, _ *store.Lease) error {
			return errOf(e.Store.List(t.Context(), store.Filter{}))
		}, nil},
		{"Stats", func(e *Env, t *testing.T, _ *store.Lease) error { return errOf(e.Store.Stats(t.Context())) }, nil},
		{"Workers", func(e *Env, t *testing.T, _ *store.Lease) error { return errOf(e.Store.Workers(t.Context(), "")) }, []string{"workers", "runs"}},
		{"Pause", func(e *Env, t *testing.T, _ *store.Lease) error { return e.Store.Pause(t.Context(), instance) }, nil},
		{"Resume", func(e *Env, t *testing.T, _ *store.Lease) error { return e.Store.Resume(t.Context(), instance) }, nil},
		{"Requeue", func(e *Env, t *testing.T, l *store.Lease) error {
			return e.Store.Requeue(t.Context(), id(l), store.RequeueMode{})
		}, nil},
		{"Delete", func(e *Env, t *testing.T, l *store.Lease) error { return e.Store.Delete(t.Context(), id(l)) }, nil},
		{"Cancel", func(e *Env, t *testing.T, l *store.Lease) error { return e.Store.Cancel(t.Context(), id(l)) }, nil},
		{"Explain", func(e *Env, t *testing.T, l *store.Lease) error { return errOf(e.Store.Explain(t.Context(), id(l))) }, nil},
		{"RequeueAll", func(e *Env, t *testing.T, _ *store.Lease) error {
			return errOf(e.Store.RequeueAll(t.Context(), store.Filter{}))
		}, nil},
		{"CancelAll", func(e *Env, t *testing.T, _ *store.Lease) error {
			return errOf(e.Store.CancelAll(t.Context(), store.Filter{}))
		}, nil},
		{"Purge", func(e *Env, t *testing.T, _ *store.Lease) error {
			return errOf(e.Store.Purge(t.Context(), store.Filter{}))
		}, nil},
		{"DeleteInstance", func(e *Env, t *testing.T, _ *store.Lease) error {
			return e.Store.DeleteInstance(t.Context(), instance, true)
		}, nil},
		{"Audit", func(e *Env, t *testing.T, _ *store.Lease) error {
			_, _, err := e.Runtime.Audit(t.Context(), instance, store.AuditCursor{})
			return err
		}, nil},
	}
}

// globalOperations are those that ask for no instance's keys.
func globalOperations() []operation {
	return []operation{
		{"Instances", func(e *Env, t *testing.T, _ *store.Lease) error { return errOf(e.Store.Instances(t.Context())) }, nil},
		{"Processes", func(e *Env, t *testing.T, _ *store.Lease) error { return errOf(e.Store.Processes(t.Context())) }, nil},
		{"Announce", func(e *Env, t *testing.T, _ *store.Lease) error {
			return e.Runtime.Announce(t.Context(), store.Process{ID: e.Process, Instances: []string{"another"}}, time.Minute)
		}, nil},
	}
}
