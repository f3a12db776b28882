package worker

import (
	"context"
	"encoding/json"
	"fmt"

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

// EditSteps changes the form in which the steps of the attempt are kept: keep is given what a Step or a Cursor is to keep, as the Result of a
// store.Step of that Job, Name and Kind, and what it returns is kept instead: JSON, at most 1 MiB. read is given what is kept, and returns what
// keep was given. For an async step Result is the child's, in the form in which the middleware of the child's handler has left it, Child and
// Instance say which; keep is not called for it. Not seen are times to sleep and errors.
//
// It is for middleware, before the handler that it wraps is called. Of several, that of the innermost comes first when a step is
// kept and last when it is read. They are called on the handler's goroutines. Their error is returned by Step, Cursor or Wait in
// a *StepError, which is permanent if the error is. ErrNoJob where ctx is not that of a running handler.
func EditSteps(ctx context.Context, keep, read func(store.Step) (json.RawMessage, error)) error {
	at, err := attemptOf(ctx)
	if err != nil {
		return err
	}
	if keep == nil || read == nil {
		return invalid("a function that edits steps is nil")
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.phase != running {
		return ErrNoJob
	}
	at.edits = append(at.edits, stepEdit{keep, read})
	return nil
}

type stepEdit struct {
	keep, read func(store.Step) (json.RawMessage, error)
}

func (a *attempt) stepEdits() []stepEdit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.edits
}

// edited is the form in which a result is kept.
func (s *step) edited(kind store.StepKind, result json.RawMessage) (json.RawMessage, error) {
	k := store.Step{Job: s.job(), Name: s.name, Kind: kind, Result: result}
	edits := s.at.stepEdits()
	for i := len(edits) - 1; i >= 0; i-- {
		var err error
		if k.Result, err = edits[i].keep(k); err != nil {
			return nil, &StepError{s.name, fmt.Errorf("keeping the result: %w", err)}
		}
	}
	if len(edits) > 0 && !json.Valid(k.Result) {
		return nil, refuse(s.name, invalid("what is to be kept is not JSON: %.40q", []byte(k.Result)))
	}
	return k.Result, nil
}

// read is the result that is kept, nil if there is none.
func (s *step) read() (json.RawMessage, error) {
	k := s.kept
	for _, e := range s.at.stepEdits() {
		if k.Result == nil {
			break
		}
		var err error
		if k.Result, err = e.read(k); err != nil {
			return nil, &StepError{s.name, fmt.Errorf("reading what is kept: %w", err)}
		}
	}
	return k.Result, nil
}
