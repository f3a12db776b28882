package worker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
)

// Snooze is returned by a handler that wants to be called again after d, without this attempt being counted. When there is text
// around it, through fmt.Errorf and %w, that becomes the job's LastError.
//
// A negative d is refused: what is returned then is a failure like any other, an ErrInvalid.
func Snooze(d time.Duration) error {
	if d < 0 {
		return invalid("snoozing for %v, which is negative", d)
	}
	return &snooze{d}
}

type snooze struct{ d time.Duration }

func (s *snooze) Error() string { return fmt.Sprintf("snoozed for %v", s.d) }

// verdict is what the return of a handler means for its job.
type verdict struct {
	verb  store.Verb
	delay time.Duration
	text  string // becomes LastError unless empty
	err   error  // what the handler returned, and that it timed out
}

// judged is judge, whatever the methods of an error do, which are the user's code as well: where they panic, or end their goroutine, that
// is what the handler has failed with, and is returned in place of err.
func judged(at *attempt, err, cause error) (v verdict, _ error) {
	if err == nil {
		return judge(at, nil, cause), nil
	}
	for range 3 { // the error, its panic, and the Goexit of what it panics with
		broken := guard(func() error { v = judge(at, err, cause); return nil })
		if broken == nil {
			return v, err
		}
		err = broken
	}
	return verdict{verb: store.Bury, text: "what it failed with can't be read", err: ErrGoexit}, ErrGoexit
}

// judge reads what a handler returned, and why its context had ended before, nil if it had not.
func judge(at *attempt, err, cause error) verdict {
	r, job := at.feed.reg, &at.lease.Job
	if err == nil {
		return verdict{verb: store.Complete}
	}
	text := err.Error()
	panicked, isPanic := errors.AsType[*PanicError](err)
	if isPanic {
		text += "\n\n" + string(panicked.Stack)
	}
	switch {
	case at.wait != nil: // it has failed in nothing, and there is nothing to ask the policy
		return verdict{verb: store.Park, err: err}
	case err == errUnwanted: //nolint:errorlint // it is ours, and never wrapped
		return verdict{verb: store.Cancel, text: text, err: err}
	case errors.Is(cause, ErrLeaseLost), errors.Is(cause, ErrShutdown):
		return verdict{verb: store.Release, err: err}
	case errors.Is(cause, ErrCancelled):
		return verdict{verb: store.Cancel, text: text, err: err}
	case isUnvetted(err):
		return verdict{store.Snooze, spread(later(job)), text, err}
	case errors.Is(cause, ErrTimeout):
		err = fmt.Errorf("%w after %v: %w", ErrTimeout, r.timeout, err)
		text = fmt.Sprintf("%v after %v: %s", ErrTimeout, r.timeout, text)
	}
	if !isPanic { // whatever it panics with, a handler does not mean to steer by it
		if s, ok := errors.AsType[*snooze](err); ok {
			if err == error(s) {
				text = ""
			}
			return verdict{store.Snooze, s.d, text, err}
		}
		if retry.IsPermanent(err) {
			return verdict{verb: store.Bury, text: text, err: err}
		}
	}
	if job.MaxAttempts > 0 && job.Attempt >= job.MaxAttempts { // the policy is not asked: a Budget counts what it grants
		return verdict{verb: store.Bury, text: text, err: err}
	}
	delay, again, broken := next(r.policy, job.Attempt, err)
	if broken != nil {
		text = fmt.Sprintf("%s (the retry policy failed, the default one stood in: %v)", text, broken)
	}
	if !again {
		return verdict{verb: store.Bury, text: text, err: err}
	}
	if !isPanic {
		if d, ok := retry.Delay(err); ok {
			return verdict{store.Retry, max(d, 0), text, err}
		}
	}
	return verdict{store.Retry, spread(delay), text, err}
}

func isUnvetted(err error) bool {
	_, is := err.(*unvetted) //nolint:errorlint // it is ours, and never wrapped
	return is
}

// next asks the policy, and the default one in place of one that panics.
func next(p retry.Policy, attempt int, err error) (delay time.Duration, again bool, broken error) {
	broken = guard(func() error {
		delay, again = p.Next(attempt, err)
		return nil
	})
	if broken != nil {
		delay, again = defaultPolicy().Next(attempt, err)
	}
	return max(delay, 0), again, broken
}

// succeeded tells a policy, if it wants to hear of it, that what it is asked about has gone well.
func (a *attempt) succeeded(o retry.Observer, attempt int) {
	if o == nil {
		return
	}
	if broken := guard(func() error { o.Succeeded(attempt); return nil }); broken != nil {
		a.log().Error("the retry policy failed when it was told of a success", "err", broken)
	}
}

// spread draws from the upper half of d.
func spread(d time.Duration) time.Duration {
	d = max(d, 0)
	return d - rand.N(d/2+1)
}

// outcomeOf names a verb for those who listen.
func outcomeOf(v store.Verb) Outcome {
	switch v {
	case store.Complete:
		return Completed
	case store.Retry:
		return Retried
	case store.Snooze:
		return Snoozed
	case store.Release:
		return Released
	case store.Bury:
		return Buried
	case store.Park:
		return Parked
	default:
		return Aborted
	}
}
