package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/stint-go/stint/store"
)

// JobFrom returns the job whose handler was given ctx, or a context made from it, as it stood when this attempt began.
func JobFrom(ctx context.Context) (store.Job, bool) {
	at, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return store.Job{}, false
	}
	return at.lease.Job, true
}

// Logger returns the supervisor's logger with the attributes instance, job and attempt, or slog.Default when ctx is not that
// of a handler.
func Logger(ctx context.Context) *slog.Logger {
	if at, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return at.log()
	}
	return slog.Default()
}

// Progress notes how far the handler has come: any value, as JSON, at most 64 KiB. It costs no call: the last one travels with
// the next heartbeat, a quarter of a lease away at most, or with the end of the attempt. The job of the next attempt
// carries it.
//
// It returns ErrInvalid for what can't be noted, ErrLeaseLost once the lease is known to be lost, and ErrNoJob where ctx is not
// that of a running handler.
func Progress(ctx context.Context, v any) error {
	at, err := attemptOf(ctx)
	if err != nil {
		return err
	}
	b, err := json.Marshal(v)
	switch {
	case err != nil:
		return fmt.Errorf("progress: %w: %w", store.ErrInvalid, err)
	case len(b) > store.MaxProgress:
		return invalid("the progress has %d bytes; at most %d are allowed", len(b), store.MaxProgress)
	}
	return at.report(b)
}

type attemptKey struct{}

func attemptOf(ctx context.Context) (*attempt, error) {
	if at, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return at, nil
	}
	return nil, ErrNoJob
}
