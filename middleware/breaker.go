package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// BreakerConfig configures a Breaker; its zero value is ready for use.
type BreakerConfig struct {
	// Failures in a row open the breaker; by default 5.
	Failures int
	// Pause is for how long an open breaker keeps the process from claiming; by default 30 s. Then one job is run at a time: the first
	// success closes the breaker, a failure opens it again.
	Pause time.Duration
	// IsFailure tells the errors that speak against the dependency. By default all do but those that speak against the job
	// (retry.Permanent) and those that are none (worker.Snooze, an error after the context has ended for a cancel, a shutdown
	// or a lost lease). A panic always does.
	IsFailure func(err error) bool
	// OnChange, when set, hears of a breaker that opens ("open"), tries ("half-open") and closes ("closed"). It must not block.
	OnChange func(instance, state string)
}

// Breaker is a circuit breaker for what handlers depend on. Each handler that it wraps has one of its own, in this process. When
// attempts fail one after the other, the instance's jobs are no longer claimed (see worker.Trip): instead of failing they stay
// todo, uncharged and in their order, for a while or for another process. What was claimed before the breaker opened and comes to be
// run while it is open is snoozed, uncharged as well.
//
// Place it outside whatever makes an error of a success, and inside Logging. A negative value of the config is taken as zero.
func Breaker(cfg BreakerConfig) worker.Middleware { return breakerThat(cfg, worker.Trip) }

func breakerThat(cfg BreakerConfig, trip func(context.Context, time.Duration) error) worker.Middleware {
	cfg.Failures = cmp.Or(max(cfg.Failures, 0), 5)
	cfg.Pause = cmp.Or(max(cfg.Pause, 0), 30*time.Second)
	return func(next worker.Handler) worker.Handler {
		b := &breaker{cfg: cfg, next: next, claims: trip}
		b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			Timeout:       cfg.Pause,
			ReadyToTrip:   func(n gobreaker.Counts) bool { return int(n.ConsecutiveFailures) >= cfg.Failures },
			OnStateChange: b.changed,
			IsSuccessful:  func(err error) bool { return err == nil },
			IsExcluded:    func(err error) bool { return errors.Is(err, errNoVerdict) },
		})
		return b.handle
	}
}

type breaker struct {
	cfg      BreakerConfig
	next     worker.Handler
	claims   func(context.Context, time.Duration) error // worker.Trip
	circuit  *gobreaker.TwoStepCircuitBreaker[struct{}]
	instance atomic.Value              // string: it is known with the first job
	opened   atomic.Pointer[time.Time] // when it opened last

	mu      sync.Mutex // held while the pool is told, so that what it is told last is what is true
	tripped bool       // it was told not to claim
}

var (
	errNoVerdict = errors.New("the attempt says nothing of the dependency")
	errBroken    = errors.New("the handler did not return")
)

func (b *breaker) handle(ctx context.Context, job store.Job) (err error) {
	b.instance.Store(job.Instance)
	done, refused := b.circuit.Allow()
	if refused != nil {
		b.trip(ctx)
		// It was claimed just before the breaker opened, or while it is being tried.
		return fmt.Errorf("the circuit breaker of %s is open: %w", job.Instance, worker.Snooze(b.left()))
	}
	verdict := errBroken // unless next returns; and whatever the callbacks do, each Allow has its done
	defer func() {
		defer b.trip(ctx)
		done(verdict)
	}()
	err = b.next(ctx, job)
	verdict = b.verdict(ctx, err)
	return err
}

// verdict is what an attempt says of the dependency.
func (b *breaker) verdict(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	_, snoozed := worker.SnoozeDelay(err)
	failure := !snoozed && !retry.IsPermanent(err)
	switch context.Cause(ctx) {
	case worker.ErrCancelled, worker.ErrShutdown, worker.ErrLeaseLost, worker.ErrParked:
		failure = false
	default:
		if b.cfg.IsFailure != nil {
			failure = b.cfg.IsFailure(err)
		}
	}
	if failure {
		return err
	}
	return errNoVerdict
}

// trip makes the process claim as the breaker says. An error is that of a ctx which is not of a supervisor's: then there is
// nothing to keep from claiming.
func (b *breaker) trip(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state := b.circuit.State(); {
	case state == gobreaker.StateClosed && b.tripped:
		b.tripped = false
		_ = b.claims(ctx, 0)
	case state == gobreaker.StateOpen:
		b.tripped = true
		_ = b.claims(ctx, b.left())
	case state == gobreaker.StateHalfOpen && !b.tripped: // whoever saw it open came too late to say so
		b.tripped = true
		_ = b.claims(ctx, time.Millisecond)
	}
}

// left is for how long an open breaker stays so, and a moment.
func (b *breaker) left() time.Duration {
	left := time.Second // of one that is being tried
	if at := b.opened.Load(); at != nil && b.circuit.State() == gobreaker.StateOpen {
		left = b.cfg.Pause - time.Since(*at)
	}
	return max(left, 0) + time.Millisecond
}

func (b *breaker) changed(_ string, _, to gobreaker.State) {
	if to == gobreaker.StateOpen {
		now := time.Now()
		b.opened.Store(&now)
	}
	if b.cfg.OnChange != nil {
		instance, _ := b.instance.Load().(string)
		b.cfg.OnChange(instance, to.String())
	}
}
