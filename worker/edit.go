package worker

import (
	"context"
	"encoding/json"

	"github.com/stint-go/stint/store"
)

// EditResult gives f the result of the attempt, nil if there is none, and keeps what f returns instead, as JSON, at most 1 MiB. It is
// for middleware, after the handler that it wraps has returned nil; before that there is none, see [HandleResult]. An error of f
// is returned, and changes nothing. ErrNoJob where ctx is not that of a running handler.
func EditResult(ctx context.Context, f func(json.RawMessage) (json.RawMessage, error)) error {
	at, err := attemptOf(ctx)
	if err != nil {
		return err
	}
	at.mu.Lock()
	result, running := at.result, at.phase == running
	at.mu.Unlock()
	if !running {
		return ErrNoJob
	}
	edited, err := f(result)
	switch {
	case err != nil:
		return err
	case len(edited) > store.MaxPayload:
		return invalid("the result has %d bytes; at most %d are allowed", len(edited), store.MaxPayload)
	case edited != nil && !json.Valid(edited):
		return invalid("the result is not JSON: %.40q", edited)
	}
	at.keep(edited)
	return nil
}
