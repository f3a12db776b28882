package worker

import (
	"errors"

	"github.com/stint-go/stint/store"
)

// live returns nil while the attempt may come to further steps.
func (a *attempt) live() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.phase != running:
		return ErrNoJob
	case a.wait != nil:
		return ErrParked
	case a.cause == ErrLeaseLost: //nolint:errorlint // only cancel sets it
		return ErrLeaseLost
	}
	return nil
}

// park ends the attempt: its job is to wait. The first wait counts. It returns ErrParked, or why the attempt had ended before.
func (a *attempt) park(w store.Wait) error {
	a.mu.Lock()
	if cause := a.causeLocked(); a.phase != running || cause != nil && !errors.Is(cause, ErrShutdown) && a.wait == nil {
		a.mu.Unlock()
		return errors.Join(cause, ErrNoJob)
	}
	if a.wait == nil {
		a.wait = &w
	}
	a.mu.Unlock()
	a.cancel(ErrParked)
	return ErrParked
}
