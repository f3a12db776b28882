package middleware

import (
	"context"
	"runtime/debug"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Recovery calls report when a handler panics, or calls runtime.Goexit, with the value and the stack of that moment: for a service
// that collects such things. The value of a Goexit is worker.ErrGoexit. It changes nothing of what becomes of the job: the attempt
// fails, as it does without it, and the supervisor logs the stack.
//
// report is called on the handler's goroutine before its attempt ends. Should it panic itself, that is what the attempt fails with.
// A nil report is called never.
func Recovery(report func(ctx context.Context, job store.Job, p *worker.PanicError)) worker.Middleware {
	return func(next worker.Handler) worker.Handler {
		if report == nil {
			return next
		}
		return func(ctx context.Context, job store.Job) (err error) {
			returned := false
			defer func() {
				if returned {
					return
				}
				p := &worker.PanicError{Value: recover(), Stack: debug.Stack()}
				if p.Value == nil { // it goes on to exit, whatever is done here
					p.Value = worker.ErrGoexit
				}
				report(ctx, job, p)
				err = p // the supervisor knows it from one that is returned
			}()
			err = next(ctx, job)
			returned = true
			return err
		}
	}
}
