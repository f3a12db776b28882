package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// answer is an error that Redis answers with.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// refuses is a hook: what touches records of steps is refused, as long as it has an answer.
type refuses struct {
	with  atomic.Pointer[answer]
	times atomic.Int32
}

func (f *refuses) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	with := f.with.Load()
	if with == nil || !strings.Contains(cmd.String(), ":step_result:") {
		return next(ctx, cmd)
	}
	f.times.Add(1)
	cmd.SetErr(*with)
	return *with
}

func TestAStepIsKeptAfterAFailoverHoweverTheServerRefusedMeanwhile(t *testing.T) {
	for _, says := range []answer{
		"READONLY You can't write against a read only replica.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, worker.Config{})
			server, effects := &refuses{}, 0
			r.intercept(server.intercept)
			worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
				return worker.Do(ctx, "charge", func(context.Context) error {
					effects++
					server.with.Store(&says)
					return nil
				})
			})
			id := r.enqueue("x", none{})
			r.start()
			settle(time.Minute)
			r.wantState(id, store.Doing, 1, "")
			server.with.Store(nil)
			settle(5 * time.Second)
			r.wantState(id, store.Done, 1, "")
			if n := server.times.Load(); effects != 1 || n > 150 {
				t.Errorf("%.10s: the effect was had %d times, and %d commits were refused in a minute", says, effects, n)
			}
			failed, over := of[worker.LoopFailed](r.events), of[worker.LoopRecovered](r.events)
			if len(failed) != 1 || len(over) != 1 || failed[0].Loop != "steps" || failed[0].Instance != "x" || !errors.Is(failed[0].Err, says) {
				t.Errorf("%.10s: told as %+v, %+v, want one trouble of steps, and its end", says, failed, over)
			}
			r.stopWell()
		})
	}
}

// Who waits no longer is in no trouble.
func TestTheTroubleWithAStepEndsWithTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		server, says := &refuses{}, answer("NOPERM this user has no permissions to run the 'hsetnx' command")
		server.with.Store(&says)
		r.intercept(server.intercept)
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			return worker.Do(ctx, "charge", noEffect)
		}, worker.Timeout(5*time.Minute), once)
		r.enqueueMany("x", 5)
		id := r.enqueue("x", none{})
		r.start()
		settle(4 * time.Minute)
		if st := r.sup.Status(); st.Reachable {
			t.Errorf("steps can't be kept, and it is %+v", st)
		}
		settle(2 * time.Minute)
		r.wantState(id, store.Dead, 1, "the attempt timed out")
		if st := r.sup.Status(); !st.Reachable || len(of[worker.LoopFailed](r.events)) != 1 || len(of[worker.LoopRecovered](r.events)) != 1 {
			t.Errorf("%+v, %+v", st, r.events.list())
		}
		r.stopWell()
	})
}

func TestAStepThatCanNeverBeKeptEndsItsAttemptAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var took time.Duration
		var got error
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			job, _ := worker.JobFrom(ctx)
			key := "stint:{x}:step_result:" + strings.ReplaceAll(job.ID.String(), "-", "")
			start := time.Now()
			got = worker.Do(ctx, "charge", func(context.Context) error {
				return r.st.Runtime().Client().Set(ctx, key, "somebody else's", 0).Err()
			})
			took = time.Since(start)
			return got
		}, once)
		id := r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Dead, 1, "redis server: key")
		var foreign *store.KeyError
		if !errors.As(got, &foreign) || took > time.Second {
			t.Errorf("after %v it got %v, want a *store.KeyError at once", took, got)
		}
		r.stopWell()
	})
}

func TestMoreChildrenThanAJobMayHaveStepsAreRefusedBeforeTheFirst(t *testing.T) {
	for what, c := range map[string]struct {
		payload string
		limits  worker.HandleOption
	}{
		"steps":          {"", worker.StepLimits(1500, 1<<24)},
		"bytes of steps": {strings.Repeat("x", 1000), worker.StepLimits(10_000, 1_500_000)},
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, worker.Config{})
			var got error
			worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
				payloads := make([]string, 1500)
				for i := range payloads {
					payloads[i] = c.payload
				}
				if err := worker.Do(ctx, "first", noEffect); err != nil {
					return err
				}
				_, got = worker.AsyncEach[none](ctx, "part", "part", payloads)
				return got
			}, c.limits)
			id := r.enqueue("order", none{})
			r.start()
			settle(time.Minute)
			r.wantState(id, store.Dead, 1, `step "part/0": invalid: 1`)
			var limit *store.StepLimitError
			if !errors.As(got, &limit) || limit.What != what || limit.Got <= limit.Max {
				t.Errorf("too many %s: %v", what, got)
			}
			if s := r.stats("part"); s.Total != 0 {
				t.Errorf("too many %s: of the children some were dispatched: %+v", what, s)
			}
			r.stopWell()
		})
	}
}

func TestAFutureThatIsNilIsATypedErrorThatTheNextAttemptMayNotMeet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		calls := 0
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			if calls++; calls > 1 {
				return nil
			}
			var f *worker.Future[none]
			for _, f := range []*worker.Future[none]{nil, {}} {
				if _, err := worker.WaitAll(ctx, []*worker.Future[none]{f}); !errors.Is(err, store.ErrInvalid) {
					t.Errorf("WaitAll: %v", err)
				}
			}
			_, err := f.Wait(ctx)
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("Wait: %v", err)
			}
			return err
		})
		id := r.enqueue("x", none{})
		r.start()
		settle(5 * time.Minute)
		r.wantState(id, store.Done, 2, "invalid: waiting for a future")
		r.stopWell()
	})
}
