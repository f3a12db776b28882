package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/crash"
	"github.com/stint-go/stint/store"
)

// phase says where an attempt stands.
type phase byte

const (
	running   phase = iota // its handler has not returned, or is yet to be called
	returned               // it has, and what that means is being found out: the error's methods and the policy are the user's code
	ended                  // its finish is set, and on its way or to be sent
	abandoned              // Run has returned without it: nothing of it is written any more
)

// attempt is one lease and what becomes of it. It is the context of its handler, which it makes when it is first asked for
// anything that a plain struct can't answer: many handlers never do.
type attempt struct {
	slot     *slot
	feed     *feed // of the job's instance
	lease    *store.Lease
	suspect  bool      // of crashing the process
	received time.Time // when its claim was answered
	started  time.Time
	uncalled bool      // a child that has not come to its handler; once it was given to its slot, that one's goroutine only
	deadline time.Time // zero: none

	mu        sync.Mutex
	phase     phase
	goroutine string // the handler's
	until     time.Time
	cause     error
	ctx       context.Context // nil until it is needed
	cancelCtx context.CancelCauseFunc
	stopTimer context.CancelFunc // nil without a deadline
	logger    *slog.Logger
	progress  json.RawMessage // the last
	unsent    bool            // no heartbeat has carried it
	result    json.RawMessage
	memory    *memory    // nil until the handler comes to a step
	edits     []stepEdit // the outermost first
	arounds   []AroundStep
	wait      *store.Wait // the handler waits for this: the job is to park

	// Set when the attempt ends, read by whoever hands it in.
	finish  store.Finish
	outcome Outcome
	err     error
	took    time.Duration
}

// Deadline is the end of the Timeout.
func (a *attempt) Deadline() (time.Time, bool) { return a.deadline, !a.deadline.IsZero() }

func (a *attempt) Done() <-chan struct{} { return a.context().Done() }
func (a *attempt) Err() error            { return a.context().Err() }

// Value has the attempt itself and the values of Run's context. Package context asks it for what it needs to connect the
// contexts made from this one, and for the cause.
func (a *attempt) Value(key any) any {
	switch key.(type) {
	case attemptKey:
		return a
	case stepKey, crash.Key: // the context of a step has the one, a test's the other, and those come before this one
		return nil
	}
	if v := a.base().Value(key); v != nil {
		return v
	}
	return a.context().Value(key)
}

func (a *attempt) base() context.Context { return a.slot.pool.run.base }

func (a *attempt) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx != nil {
		return a.ctx
	}
	a.ctx, a.cancelCtx = context.WithCancelCause(a.base())
	if !a.deadline.IsZero() {
		a.ctx, a.stopTimer = context.WithDeadlineCause(a.ctx, a.deadline, ErrTimeout)
	}
	if a.cause != nil || a.phase != running {
		a.cancelCtx(a.cause)
	}
	return a.ctx
}

// begin notes that the handler is about to be called, on which goroutine; false when Run has gone without it.
func (a *attempt) begin(goroutine string, timeout time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != running {
		return false
	}
	a.goroutine = goroutine
	a.started = time.Now()
	if timeout > 0 {
		a.deadline = a.started.Add(timeout)
	}
	return true
}

// restart begins the handler's time anew: what came before it was not the handler's. Nobody has asked for its context yet. It returns false
// when Run has gone meanwhile.
func (a *attempt) restart(timeout time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != running {
		return false
	}
	a.uncalled = false
	a.started = time.Now()
	if timeout > 0 {
		a.deadline = a.started.Add(timeout)
	}
	return true
}

// cancel ends the handler's context with a cause, unless it has one or the handler has returned. It reports whether it did.
func (a *attempt) cancel(cause error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != running || a.causeLocked() != nil {
		return false
	}
	a.cause = cause
	if a.ctx != nil {
		a.cancelCtx(cause)
	}
	return true
}

// causeLocked is why the handler's context has ended, nil if it has not.
func (a *attempt) causeLocked() error {
	if a.cause == nil && a.ctx != nil {
		return context.Cause(a.ctx)
	}
	return a.cause
}

// end notes that the handler has returned: nothing more can be noted, and its context is over. It returns false when it was abandoned.
func (a *attempt) end() (cause error, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != running {
		return nil, false
	}
	cause = a.causeLocked()
	a.phase = returned
	if !a.uncalled {
		a.took = time.Since(a.started)
	}
	if a.ctx != nil {
		a.cancelCtx(nil)
	}
	if a.stopTimer != nil {
		a.stopTimer()
	}
	a.finish.Lease, a.finish.Progress, a.finish.Result = a.lease, a.progress, a.result
	return cause, true
}

// age is for how long the job has been there by now. The time to its claim is by Redis' clock, that from there on by ours.
func (a *attempt) age(now time.Time) time.Duration {
	age := max(a.lease.Job.StartedAt.Sub(a.lease.Job.EnqueuedAt), 0)
	if !a.received.IsZero() {
		age += now.Sub(a.received)
	}
	return age
}

// keep notes the result.
func (a *attempt) keep(result json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result = result
}

// report notes a progress.
func (a *attempt) report(progress json.RawMessage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.phase != running:
		return ErrNoJob
	case a.cause == ErrLeaseLost: //nolint:errorlint // only cancel sets it
		return ErrLeaseLost
	}
	a.progress, a.unsent = progress, true
	return nil
}

func (a *attempt) log() *slog.Logger {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.logger == nil {
		job := &a.lease.Job
		a.logger = a.slot.pool.run.log.With("instance", job.Instance, "job", job.ID, "attempt", job.Attempt)
	}
	return a.logger
}

// news returns the progress that no heartbeat has carried yet, or nil.
func (a *attempt) news() json.RawMessage {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.unsent {
		return nil
	}
	return a.progress
}

// carried notes that a heartbeat has carried that progress.
func (a *attempt) carried(progress json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(progress) > 0 && &progress[0] == &a.progress[0] {
		a.unsent = false
	}
}

// extend notes that the lease holds longer than was known.
func (a *attempt) extend(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if until.After(a.until) {
		a.until = until
	}
}

// holdsUntil returns until when the lease is known to hold; false when nobody needs to be told of its end any more.
func (a *attempt) holdsUntil() (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until, a.phase == running && a.causeLocked() == nil
}

func (a *attempt) isEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == ended
}

// settled notes that the finish is set. It returns false when the attempt was abandoned before.
func (a *attempt) settled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != returned {
		return false
	}
	a.phase = ended
	return true
}

// abandon gives up a handler that does not return, or a policy. It returns false when the finish is set.
func (a *attempt) abandon() (StuckHandler, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != running && a.phase != returned {
		return StuckHandler{}, false
	}
	a.phase = abandoned
	job, since := &a.lease.Job, a.started
	if since.IsZero() { // its slot has not come to it
		since = a.received
	}
	return StuckHandler{Instance: job.Instance, Job: job.ID, For: time.Since(since), Stack: a.goroutine}, true
}
