package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestMiddlewareEditsTheResult(t *testing.T) {
	for name, c := range map[string]struct {
		edited json.RawMessage
		fails  error
		want   string // the result that is kept
		err    error
	}{
		"another":  {json.RawMessage(`"edited"`), nil, `"edited"`, nil},
		"none":     {nil, nil, "", nil},
		"an error": {nil, errBoom, `"plain"`, errBoom},
		"no JSON":  {json.RawMessage("{"), nil, `"plain"`, store.ErrInvalid},
		"too long": {json.RawMessage(`"` + strings.Repeat("x", store.MaxPayload) + `"`), nil, `"plain"`, store.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var seen json.RawMessage
				var got error
				edit := func(next worker.Handler) worker.Handler {
					return func(ctx context.Context, job store.Job) error {
						err := next(ctx, job)
						got = worker.EditResult(ctx, func(r json.RawMessage) (json.RawMessage, error) {
							seen = r
							return c.edited, c.fails
						})
						return err
					}
				}
				r := newRig(t, worker.Config{Middleware: []worker.Middleware{edit}})
				worker.HandleResult(r.sup, "x", func(context.Context, none) (string, error) { return "plain", nil })
				r.start()
				id := r.enqueue("x", nil)
				synctest.Wait()
				r.stopWell()
				if string(seen) != `"plain"` || !errors.Is(got, c.err) {
					t.Errorf("it was given %s, and returned %v", seen, got)
				}
				if kept := r.job(id).Result; string(kept) != c.want {
					t.Errorf("kept is %.40s, want %s", kept, c.want)
				}
			})
		})
	}
	if err := worker.EditResult(t.Context(), nil); !errors.Is(err, worker.ErrNoJob) {
		t.Errorf("outside of a handler: %v", err)
	}
}
