package workertest

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Context returns a context as a handler is given it, for a handler that the test calls by hand: that of an attempt of this job, with
// JobFrom, Progress, steps and all. It is the first attempt of a new job, of which ID, Instance, Payload, Priority, Metadata and MaxAttempts are
// taken from job where they are set; it ends with the test, or its bubble. What steps keep is kept in an embedded store of its own; a handler that
// parks has its context cancelled with ErrParked, and nobody calls it anew.
func Context(t testing.TB, job store.Job) context.Context {
	t.Helper()
	return contextOf(t, Store(t), job)
}

func contextOf(t testing.TB, st *store.Store, job store.Job) context.Context {
	t.Helper()
	sup, err := worker.New(st, worker.Config{})
	if err != nil {
		t.Fatalf("making a supervisor: %v", err)
	}
	instance := cmp.Or(job.Instance, "workertest")
	given, over := make(chan context.Context), make(chan struct{})
	worker.Handle(sup, instance, func(ctx context.Context, _ json.RawMessage) error {
		select {
		case given <- ctx:
			<-over
		case <-over: // it is called anew, after its lease was lost or a park whose time has come
		}
		return nil
	}, worker.Timeout(0))
	Start(t, sup)
	t.Cleanup(func() { close(over) })
	opts := []worker.EnqueueOption{worker.ID(job.ID)}
	if job.ID == uuid.Nil {
		opts = nil
	}
	if job.Priority > 0 {
		opts = append(opts, worker.Priority(job.Priority))
	}
	if job.MaxAttempts > 0 {
		opts = append(opts, worker.MaxAttempts(job.MaxAttempts))
	}
	for k, v := range job.Metadata {
		opts = append(opts, worker.Metadata(k, v))
	}
	payload := job.Payload
	if payload == nil {
		payload = json.RawMessage("null")
	}
	if _, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(context.Background(), instance, payload, opts...); err != nil {
		t.Fatalf("enqueuing the job: %v", err)
	}
	return <-given
}
