package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/stint-go/stint/store"
)

// EnqueueHook sees each job of a [Client], and each child of a [Supervisor]'s handlers, before it is encoded and may change all
// of it: where it goes, its payload, its options, to which it may append. What it does to r has no effect on what the caller
// holds, but the payload is the caller's own value. An error refuses this one job, is wrapped in what the caller gets for it, and
// keeps the hooks after it from being called; so does a panic, as a *PanicError, or a runtime.Goexit.
//
// It is called while the caller waits, with the caller's context, from as many goroutines at once as there are callers. In the context of
// [Async] JobFrom has the parent.
type EnqueueHook func(ctx context.Context, r *Request) error

// ownHooks is a copy of the hooks of a configuration, without those that are nil.
func ownHooks(hooks []EnqueueHook) []EnqueueHook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h EnqueueHook) bool { return h == nil })
}

// hooked is the request as the hooks leave it.
func hooked(ctx context.Context, hooks []EnqueueHook, r Request) (Request, error) {
	if len(hooks) == 0 {
		return r, nil
	}
	r.Options = slices.Clone(r.Options)
	err := guard(func() error {
		for i, hook := range hooks {
			if err := hook(ctx, &r); err != nil {
				return fmt.Errorf("hook %d: %w", i+1, err)
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("enqueuing: %w", err)
	}
	return r, err
}

// prepare makes a job of a request, once the hooks have seen it, and returns the instance that it is for.
func (c *Client) prepare(ctx context.Context, r Request) (instance string, job store.NewJob, err error) {
	if len(c.cfg.Hooks) > 0 { // so that the request stays on the stack without
		if r, err = hooked(context.WithValue(ctx, noChildKey{}, true), c.cfg.Hooks, r); err != nil {
			return r.Instance, store.NewJob{}, err
		}
	}
	if job, err = newJob(r.Instance, r.Payload, r.Options); err != nil {
		return r.Instance, store.NewJob{}, fmt.Errorf("enqueuing: %w", err)
	}
	return r.Instance, job, nil
}
