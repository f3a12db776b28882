package worker

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// ErrParked: the job waits for a step, and the attempt is over. It is what [Future.Wait], [WaitAll] and [Sleep] return then, and the cause with which
// the handler's context ends; every step after it returns it too. The job parks whatever the handler returns, so nothing needs to be done
// about it but to return. A handler that returns it without having waited for anything has failed.
var ErrParked = errors.New("the job is parked")

// What is wrong with a step, in a [StepError].
var (
	// ErrStepTwice: the name has been used in this attempt. In a loop it takes a key.
	ErrStepTwice = errors.New("a step of this name has been run in this attempt")
	// ErrNestedStep: a step inside a step. What is inside is part of the outer one.
	ErrNestedStep = errors.New("a step can't run inside another")
	// ErrStepChanged: what is kept of the step is of another type, as before a deployment.
	ErrStepChanged = errors.New("what is kept of the step does not fit")
	// ErrStepFailed: an earlier attempt kept a permanent error.
	ErrStepFailed = errors.New("the step has failed for good")
)

// StepError is a step that can't be run, or not be kept. It is permanent: the job is dead, and can be requeued when the program is put right.
// What a hook or an edit of steps (see [EditSteps]) returns is permanent only if it says so itself.
type StepError struct {
	Step string
	Err  error // ErrStepTwice, ErrNestedStep, ErrStepChanged, ErrStepFailed, ErrNoJob, store.ErrInvalid, a *store.StepLimitError, or a hook's
}

func (e *StepError) Error() string { return fmt.Sprintf("step %q: %v", e.Step, e.Err) }
func (e *StepError) Unwrap() error { return e.Err }

// ChildError is an async step whose child failed.
type ChildError struct {
	Step     string
	Index    int // among the futures of WaitAll, -1 in Wait
	ID       uuid.UUID
	Instance string
	Fate     store.Fate // how it ended
	Reason   string     // the child's LastError, or what became of it; may be empty
}

func (e *ChildError) Error() string {
	what := map[store.Fate]string{store.FateDead: "is dead", store.FateCancelled: "was cancelled", store.FateGone: "was deleted",
		store.FateLost: "was lost", store.FateTooBig: "has a result that is too big"}[e.Fate]
	if what == "" {
		what = "failed"
	}
	if e.Reason != "" {
		what += ": " + e.Reason
	}
	return fmt.Sprintf("step %q: job %s of %s %s", e.Step, e.ID, e.Instance, what)
}

// ChildrenError is what has failed of many.
type ChildrenError struct {
	Failed []*ChildError // in the order of the futures
	Open   []int         // those that had not ended
}

func (e *ChildrenError) Error() string {
	return fmt.Sprintf("%d children failed, %d are open; the first: %v", len(e.Failed), len(e.Open), e.Failed[0])
}

// Unwrap returns the errors of those that failed.
func (e *ChildrenError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f
	}
	return errs
}
