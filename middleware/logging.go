package middleware

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Logging writes a line when an attempt starts, at debug level, and one when it ends, with the attributes instance, job,
// attempt, outcome, took and, where there is one, err. It changes nothing. With a nil logger the lines go to that of the
// supervisor.
//
// The outcomes, told by what the handler returns and why its context has ended, and their levels:
//
//	completed  info   nil
//	snoozed    info   worker.Snooze
//	parked     info   it waits for a step, whatever it returns
//	aborted    info   an error after the job was cancelled
//	released   warn   an error after the lease was lost or at a shutdown; the attempt is not charged
//	failed     warn   any other error; the policy decides whether there is another attempt
//	buried     error  retry.Permanent: there is none
//	broken     error  it panicked, or called runtime.Goexit; the supervisor logs the stack of a panic
func Logging(l *slog.Logger) worker.Middleware {
	return func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, job store.Job) (err error) {
			log := worker.Logger(ctx)
			if l != nil {
				log = l.With("instance", job.Instance, "job", job.ID, "attempt", job.Attempt)
			}
			log.DebugContext(ctx, "attempt started")
			start, returned := time.Now(), false
			defer func() {
				outcome, level := "broken", slog.LevelError
				if returned {
					outcome, level = outcomeOf(ctx, err)
				}
				attrs := []slog.Attr{slog.String("outcome", outcome), slog.Duration("took", time.Since(start))}
				if err != nil {
					attrs = append(attrs, slog.Any("err", err))
				}
				log.LogAttrs(ctx, level, "attempt ended", attrs...)
			}()
			err = next(ctx, job)
			returned = true
			return err
		}
	}
}

// outcomeOf reads an attempt's end in the order in which the supervisor does.
func outcomeOf(ctx context.Context, err error) (string, slog.Level) {
	cause := context.Cause(ctx)
	_, snoozed := worker.SnoozeDelay(err)
	switch {
	case errors.Is(cause, worker.ErrParked):
		return "parked", slog.LevelInfo // whatever it returns
	case err == nil:
		return "completed", slog.LevelInfo
	case errors.Is(cause, worker.ErrLeaseLost), errors.Is(cause, worker.ErrShutdown):
		return "released", slog.LevelWarn
	case errors.Is(cause, worker.ErrCancelled):
		return "aborted", slog.LevelInfo
	case snoozed:
		return "snoozed", slog.LevelInfo
	case retry.IsPermanent(err):
		return "buried", slog.LevelError
	default:
		return "failed", slog.LevelWarn
	}
}
