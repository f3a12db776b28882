package worker

import (
	"context"

	"github.com/stint-go/stint/store"
)

// Handler runs one attempt of a job. ctx is what [JobFrom], [Logger] and [Progress] work with.
type Handler func(ctx context.Context, job store.Job) error

// Middleware wraps handlers. It is applied once to each handler, when that is registered; what it returns is called for each
// attempt, from many goroutines at once. It may change what it passes on, and the error that steers the job.
//
// The Middleware of the Config stands outside that of [Use]; within each the first is the outermost.
type Middleware func(next Handler) Handler

// wrap puts the middleware around h.
func wrap(h Handler, chains ...[]Middleware) (Handler, error) {
	for c := len(chains) - 1; c >= 0; c-- {
		for i := len(chains[c]) - 1; i >= 0; i-- {
			next, mw := h, chains[c][i]
			if mw == nil {
				return nil, invalid("middleware %d is nil", i+1)
			}
			err := guard(func() error { h = mw(next); return nil })
			switch {
			case err != nil:
				return nil, err
			case h == nil:
				return nil, invalid("middleware %d returned no handler", i+1)
			}
		}
	}
	return h, nil
}
