package retry

import (
	"errors"
	"time"
)

// Permanent wraps err so that the job is not tried again, whatever its policy says. The text of err stays as it is, and
// errors.Is and errors.As find err through it. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent reports whether err was made by Permanent or wraps an error that was. It is how the runtime reads what a
// handler returned; it looks here first, so that an error both permanent and with a delay is permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// After wraps err so that the next attempt, if the policy grants one, comes after d instead of the policy's delay, for
// instance when a service has said when to ask again. d is kept to: it is drawn neither longer nor shorter. A negative d
// is taken as zero. A [Budget] counts that attempt, but can't put it off. The text of err stays as it is, and errors.Is
// and errors.As find err through it. After(d, nil) is nil.
func After(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &afterError{max(d, 0), err}
}

type afterError struct {
	d   time.Duration
	err error
}

func (e *afterError) Error() string { return e.err.Error() }
func (e *afterError) Unwrap() error { return e.err }

// Delay returns what After was given, if err was made by it or wraps an error that was; of several the outermost counts.
// It is how the runtime reads what a handler returned.
func Delay(err error) (time.Duration, bool) {
	var a *afterError
	if !errors.As(err, &a) {
		return 0, false
	}
	return a.d, true
}
