package worker_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

var errRefused = errors.New("not allowed")

// hooked is a client of the rig with hooks.
func (r *rig) hooked(log *eventLog, hooks ...worker.EnqueueHook) *worker.Client {
	return worker.NewClient(r.st, worker.ClientConfig{Hooks: hooks, OnEvent: log.add})
}

func TestHooksSeeEachJobInOrderAndMayChangeAllOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var seen []any
		var log eventLog
		c := r.hooked(&log,
			func(ctx context.Context, q *worker.Request) error {
				seen = append(seen, q.Payload)
				q.Payload = []any{q.Payload, ctx.Value(rigKey{})}
				q.Options = append(q.Options, worker.Priority(9))
				return nil
			},
			nil,
			func(_ context.Context, q *worker.Request) error {
				seen = append(seen, q.Instance)
				q.Instance = "moved/" + q.Instance
				q.Options = append(q.Options, worker.Metadata("by", "hook"))
				return nil
			})
		ctx := context.WithValue(t.Context(), rigKey{}, "tenant")
		opts := make([]worker.EnqueueOption, 1, 10) // with room that is the caller's
		opts[0] = worker.Metadata("own", "1")
		one, err := c.Enqueue(ctx, "x", 1, opts...)
		if err != nil {
			t.Fatal(err)
		}
		reqs := []worker.Request{{Instance: "y", Payload: 2, Options: opts}, {Instance: "y", Payload: 3}}
		many, err := c.EnqueueMany(ctx, reqs)
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range map[uuid.UUID][2]string{
			one: {"moved/x", `[1,"tenant"]`}, many[0].ID: {"moved/y", `[2,"tenant"]`}, many[1].ID: {"moved/y", `[3,"tenant"]`},
		} {
			j := r.job(id)
			if j.Instance != want[0] || string(j.Payload) != want[1] || j.Priority != 9 || j.Metadata["by"] != "hook" {
				t.Errorf("%+v, want %v as the hooks have changed it", j, want)
			}
		}
		if want := []any{1, "x", 2, "y", 3, "y"}; !slices.Equal(seen, want) {
			t.Errorf("the hooks saw %v, want %v", seen, want)
		}
		if opts[:2][1] != nil || reqs[0].Instance != "y" || reqs[0].Payload != 2 || len(reqs[1].Options) != 0 {
			t.Error("a hook has changed what is the caller's")
		}
		for _, e := range of[worker.JobEnqueued](&log) {
			if e.Instance != "moved/x" && e.Instance != "moved/y" {
				t.Errorf("event %+v, want the instance that the job went to", e)
			}
		}
	})
}

func TestAHookThatRefusesPanicsOrExitsStopsItsJobAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var after int
		c := r.hooked(&eventLog{},
			func(_ context.Context, q *worker.Request) error {
				switch q.Payload {
				case "refused":
					return errRefused
				case "panics":
					panic("oops")
				case "exits":
					runtime.Goexit()
				case "spoiled":
					q.Options = append(q.Options, worker.Priority(11))
				}
				return nil
			},
			func(context.Context, *worker.Request) error { after++; return nil })
		reqs := []worker.Request{{Instance: "x"}, {Instance: "x", Payload: "refused"}, {Instance: "x", Payload: "panics"},
			{Instance: "x", Payload: "exits"}, {Instance: "x", Payload: "spoiled"}, {Instance: "x"}}
		results, err := c.EnqueueMany(t.Context(), reqs)
		if !errors.Is(err, errRefused) {
			t.Errorf("%v, want the error of the hook in it", err)
		}
		check := func(err error, i int) {
			t.Helper()
			_, panicked := errors.AsType[*worker.PanicError](err)
			ok := [...]bool{err == nil, errors.Is(err, errRefused), panicked, errors.Is(err, worker.ErrGoexit), errors.Is(err, store.ErrInvalid), err == nil}
			if !ok[i] {
				t.Errorf("%v for job %d", err, i)
			}
		}
		for i, one := range results {
			check(one.Err, i)
			_, err := c.Enqueue(t.Context(), "x", reqs[i].Payload)
			check(err, i)
		}
		if s := r.stats("x"); s.Todo != 4 || after != 6 {
			t.Errorf("%d jobs are there and the second hook was called %d times, want 4 and 6", s.Todo, after)
		}
	})
}
