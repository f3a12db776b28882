package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The causes with which a handler's context ends before the handler does.
var (
	// ErrLeaseLost: the job may be another worker's by now. It is the store's error of that name.
	ErrLeaseLost = store.ErrLeaseLost
	// ErrShutdown: the supervisor stops and its DrainTimeout is over. An error that is returned now gives the job back
	// without charging the attempt.
	ErrShutdown = errors.New("the supervisor is shutting down")
	// ErrCancelled: somebody cancelled the job. nil still makes it done, any error makes it cancelled.
	ErrCancelled = errors.New("the job was cancelled")
	// ErrTimeout: the attempt took longer than the Timeout of its handler. Its ctx.Err() is context.DeadlineExceeded.
	ErrTimeout = errors.New("the attempt timed out")
)

// What Run and the functions for handlers refuse.
var (
	// ErrRan: a Supervisor is for one Run.
	ErrRan = errors.New("the supervisor has been run already")
	// ErrNoHandler: Run has nothing to do.
	ErrNoHandler = errors.New("no handler is registered")
	// ErrNoJob: the context is not that of a handler, or its attempt is over.
	ErrNoJob = errors.New("no job is being run in this context")
	// ErrGoexit: a callback ended its goroutine with runtime.Goexit, as t.FailNow does.
	ErrGoexit = errors.New("runtime.Goexit was called")
	// ErrListener: the listener to events did not return within GraceTimeout at the end of Run.
	ErrListener = errors.New("the listener to events does not return")
)

// PanicError is a callback that panicked.
type PanicError struct {
	Value any    // what was panicked with
	Stack []byte // of the goroutine at that moment, as debug.Stack formats it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// DecodeError is a payload that does not fit the type that the handler takes. It makes the job dead at once: trying again
// can't help. Its text, which is the job's LastError, has nothing of the payload in it, which may have been encrypted.
type DecodeError struct {
	Instance string
	Field    string // the path to it, "" when it is the payload as a whole
	Want     string // the Go type that it should be
	Err      error  // of encoding/json, or of a type that decodes itself; its text may quote the payload
}

func (e *DecodeError) Error() string { return "decoding the payload: " + misfit(e.Field, e.Want) }

func (e *DecodeError) Unwrap() error { return e.Err }

// StuckError names the handlers that had not returned when DrainTimeout and GraceTimeout were over, or whose retry policies had not. They are left
// running, nothing that they do is written any more, and their jobs run again when their leases have run out.
type StuckError struct{ Handlers []StuckHandler }

// StuckHandler is one of them.
type StuckHandler struct {
	Instance string
	Job      uuid.UUID
	For      time.Duration // since its attempt began
	Stack    string        // of its goroutine; empty if that could not be told
}

func (e *StuckError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d handlers ignore that their context has ended:", len(e.Handlers))
	for _, h := range e.Handlers {
		fmt.Fprintf(&b, "\njob %s of %s, for %v\n%s", h.Job, h.Instance, h.For.Round(time.Millisecond), h.Stack)
	}
	return b.String()
}

// UnsettledError names the jobs whose handlers returned but whose outcome could not be handed in before the time to stop
// was over. Unless it reached Redis after all, they run again when their leases have run out.
type UnsettledError struct{ Jobs []uuid.UUID }

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("the outcome of %d jobs could not be handed in: %v", len(e.Jobs), e.Jobs)
}

func invalid(format string, a ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, fmt.Sprintf(format, a...))
}
