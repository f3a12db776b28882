package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
)

// Defaults of a handler.
const (
	DefaultConcurrency = 10
	DefaultTimeout     = 30 * time.Minute
	DefaultMaxCrashes  = 3
)

// Bounds of retention where no option says otherwise, and what the default policy waits at first and at most.
const (
	doneAge, doneCount = 24 * time.Hour, 10_000
	deadAge, deadCount = 30 * 24 * time.Hour, 100_000
	attempts           = 25
	minRetry, maxRetry = time.Second, 6 * time.Hour
)

func defaultPolicy() retry.Policy {
	return retry.Limit(attempts, retry.Exponential(minRetry, maxRetry))
}

// HandleOption is an option of [Handle] and [HandleResult].
type HandleOption interface{ apply(*registration) error }

type handleOption func(*registration) error

func (o handleOption) apply(r *registration) error { return o(r) }

// Concurrency says how many of the instance's jobs this process runs at once: at least 1, by default 10. Not together with In.
func Concurrency(n int) HandleOption {
	return handleOption(func(r *registration) error {
		if n < 1 {
			return invalid("concurrency %d is less than 1", n)
		}
		r.concurrency = n
		return nil
	})
}

// Use wraps the handler, inside the Middleware of the Config, the first outermost.
func Use(mw ...Middleware) HandleOption {
	return handleOption(func(r *registration) error {
		r.use = append(r.use, mw...)
		return nil
	})
}

// Retention bounds what is kept of jobs that are done or cancelled: those that ended within age, and n of them. A zero bound is
// unset; with both zero nothing is kept. The default is 24 hours and 10,000. Dead jobs are kept for 30 days, at most
// 100,000, whatever it says.
func Retention(age time.Duration, n int) HandleOption {
	return handleOption(func(r *registration) error {
		if age < 0 || n < 0 {
			return invalid("retention of %v and %d: a bound is negative", age, n)
		}
		if age > 0 {
			age = max(age, time.Millisecond) // less would read as unset
		}
		r.terms.Done = store.Retention{Age: age, Count: n}
		return nil
	})
}

// MaxCrashes says after how many leases in a row that ran out, instead of being given back, a job is dead: at least 1, by
// default 3. A job that is one short of it is suspected of taking its process with it: a process runs one such job at a time.
func MaxCrashes(n int) HandleOption {
	return handleOption(func(r *registration) error {
		if n < 1 {
			return invalid("%d crashes: less than 1", n)
		}
		r.terms.MaxCrashes = n
		return nil
	})
}

// Retry sets the policy for errors that don't say themselves what is to be done. Each of its delays d is drawn from d/2 to d, so
// that what failed together does not come back together. The default is
// retry.Limit(25, retry.Exponential(time.Second, 6*time.Hour)). For a step it is the policy of trying again in place; by default a
// step is tried once.
func Retry(p retry.Policy) AttemptOption {
	check := func() error {
		if p == nil {
			return invalid("the retry policy is nil")
		}
		return nil
	}
	return attemptOption{
		func(r *registration) error {
			r.policy = p
			r.observer, _ = p.(retry.Observer)
			return check()
		},
		func(s *stepOptions) error {
			s.policy = p
			s.observer, _ = p.(retry.Observer)
			return check()
		},
	}
}

// Timeout bounds an attempt: it is the deadline of the handler's context, whose cause is then [ErrTimeout]. The default is
// 30 minutes; 0 means none. For a step it bounds each try; by default there is none.
func Timeout(d time.Duration) AttemptOption {
	check := func() error {
		if d < 0 {
			return invalid("the timeout %v is negative", d)
		}
		return nil
	}
	return attemptOption{
		func(r *registration) error { r.timeout = d; return check() },
		func(s *stepOptions) error { s.timeout = d; return check() },
	}
}

// StepLimits bounds what is kept of the steps of one job: how many, and the bytes of their results and names; by default 10,000 and 16 MiB.
// One result has at most 1 MiB in any case.
func StepLimits(steps, bytes int) HandleOption {
	return handleOption(func(r *registration) error {
		if steps < 1 || bytes < 1 {
			return invalid("limits of %d steps and %d bytes: less than 1", steps, bytes)
		}
		r.steps = store.StepLimits{Count: steps, Bytes: bytes}
		return nil
	})
}

// registration is what was said of an instance.
type registration struct {
	pool        string // its name where there are several instances in it
	weight      int
	strict      bool // of the pool
	concurrency int  // of the pool
	use         []Middleware
	terms       store.Terms // but for the process
	policy      retry.Policy
	observer    retry.Observer // the policy, if it wants to hear of successes
	timeout     time.Duration
	steps       store.StepLimits
	handler     Handler // with its middleware
}

// Handle registers fn for the jobs of an instance. The payload is decoded from JSON into In; a json.RawMessage is passed as
// it is, and for In struct{} the payload is not looked at. A payload that does not decode makes its job dead at once, with a
// [DecodeError].
//
// What is wrong with a registration is what Run returns. Handle panics when Run has been called.
func Handle[In any](s *Supervisor, instance string, fn func(context.Context, In) error, opts ...HandleOption) {
	var h Handler
	if fn != nil {
		h = func(ctx context.Context, job store.Job) error {
			in, err := decode[In](job)
			if err != nil {
				return err
			}
			return fn(ctx, in)
		}
	}
	s.register(instance, h, opts)
}

// HandleResult is Handle for a function with a result, which is kept as JSON, at most 1 MiB of it, in the job that it
// completes. A result that can't be kept makes the job dead: its work is done, doing it again would not help.
func HandleResult[In, Out any](s *Supervisor, instance string, fn func(context.Context, In) (Out, error), opts ...HandleOption) {
	var kept func(context.Context, In) error
	if fn != nil {
		kept = func(ctx context.Context, in In) error {
			out, err := fn(ctx, in)
			if err != nil {
				return err
			}
			return keepResult(ctx, out)
		}
	}
	Handle(s, instance, kept, opts...)
}

// register checks and notes what was said; problems are for Run to return.
func (s *Supervisor) register(instance string, h Handler, opts []HandleOption) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		panic(fmt.Sprintf("stint: a handler for %q is registered after Run", instance))
	}
	if err := s.registerLocked(instance, h, opts); err != nil {
		s.problems = append(s.problems, fmt.Errorf("handler for instance %q: %w", instance, err))
	}
}

func (s *Supervisor) registerLocked(instance string, h Handler, opts []HandleOption) error {
	r := &registration{
		weight: 1,
		terms: store.Terms{
			Instance: instance, Lease: s.cfg.Lease, MaxCrashes: DefaultMaxCrashes,
			Done: store.Retention{Age: doneAge, Count: doneCount},
			Dead: store.Retention{Age: deadAge, Count: deadCount},
		},
		policy:  defaultPolicy(),
		timeout: DefaultTimeout,
		steps:   store.StepLimits{Count: store.MaxSteps, Bytes: store.MaxStepBytes},
	}
	errs := []error{store.ValidateInstance(instance)}
	if s.taken[instance] {
		errs = append(errs, invalid("there is one already"))
	}
	s.taken[instance] = true
	for _, o := range opts {
		if o == nil {
			errs = append(errs, invalid("an option is nil"))
			continue
		}
		errs = append(errs, o.apply(r))
	}
	errs = append(errs, r.join(s.cfg.Pools))
	if h == nil {
		errs = append(errs, invalid("the function is nil"))
	} else {
		var err error
		r.handler, err = wrap(h, s.cfg.Middleware, r.use)
		errs = append(errs, err)
	}
	s.registered = append(s.registered, r)
	return errors.Join(errs...)
}

// keepResult notes the result for the finish of the attempt.
func keepResult(ctx context.Context, out any) error {
	at, err := attemptOf(ctx)
	if err != nil {
		return retry.Permanent(fmt.Errorf("keeping the result: %w", err))
	}
	b, err := json.Marshal(out)
	switch {
	case err != nil:
		return retry.Permanent(fmt.Errorf("encoding the result: %w", err))
	case len(b) > store.MaxPayload:
		return retry.Permanent(invalid("the result has %d bytes; at most %d are allowed", len(b), store.MaxPayload))
	}
	at.keep(b)
	return nil
}
