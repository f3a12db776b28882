package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

type badPolicy struct{ do func() }

func (p badPolicy) Next(int, error) (time.Duration, bool) { p.do(); return 0, true }

func TestAPolicyThatPanicsIsReplacedByTheDefault(t *testing.T) {
	for _, do := range []func(){func() { panic("oops") }, runtime.Goexit} {
		attemptOnce(t, returns(errBoom),
			outcome{store.Scheduled, 1, "boom (the retry policy failed, the default one stood in: ", worker.Retried, time.Second / 2, time.Second},
			worker.Retry(badPolicy{do}))
	}
}

type negative struct{}

func (negative) Next(int, error) (time.Duration, bool) { return -time.Hour, true }

func TestAPolicysNegativeDelayIsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		n := 0
		worker.Handle(r.sup, "x", func(context.Context, none) error {
			if n++; n == 1 {
				return errBoom
			}
			return nil
		}, worker.Retry(negative{}))
		r.start()
		id := r.enqueue("x", nil)
		settle(10 * time.Millisecond)
		r.wantState(id, store.Done, 2, "boom")
		r.stopWell()
	})
}

func TestTheDelaysOfJobsThatFailTogetherAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(errBoom), worker.Retry(retry.Fixed(time.Minute)), worker.Concurrency(100))
		r.start()
		start := time.Now()
		r.enqueueMany("x", 100)
		settle(time.Second)
		p, err := r.st.List(t.Context(), store.Filter{Instance: "x", State: store.Scheduled})
		if err != nil || len(p.Jobs) != 100 {
			t.Fatalf("%d are scheduled, %v; want 100", len(p.Jobs), err)
		}
		early, late := 0, 0
		for _, j := range p.Jobs {
			switch d := j.RunAt.Sub(start); {
			case d < 40*time.Second:
				early++
			case d > 50*time.Second:
				late++
			}
		}
		if early < 10 || late < 10 { // a third each is to be expected
			t.Errorf("%d are due within 40 s and %d after 50 s, of 100 between 30 s and a minute", early, late)
		}
		r.stopWell()
	})
}

// counting is a policy that wants to hear of successes.
type counting struct {
	retry.Policy
	heard *[]int
}

func (c counting) Succeeded(attempt int) {
	*c.heard = append(*c.heard, attempt)
	if attempt == 2 {
		panic("a bad policy")
	}
	runtime.Goexit()
}

func TestAPolicyHearsOfSuccessesAndDoesNoHarmByFailing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var heard []int
		worker.Handle(r.sup, "x", func(ctx context.Context, fail bool) error {
			if job, _ := worker.JobFrom(ctx); fail && job.Attempt == 1 {
				return errBoom
			}
			return nil
		}, worker.Retry(counting{retry.Fixed(time.Second), &heard}), worker.Concurrency(1))
		r.start()
		first, second := r.enqueue("x", false), r.enqueue("x", true)
		settle(5 * time.Second)
		r.stopWell()
		r.wantState(first, store.Done, 1, "")
		r.wantState(second, store.Done, 2, "boom")
		if fmt.Sprint(heard) != "[1 2]" || r.logs.count("the retry policy failed") != 2 {
			t.Errorf("heard of attempts %v, logged\n%s", heard, r.logs)
		}
	})
}

// asked is a policy that counts how often it is asked, and told of a success.
type asked struct{ next, succeeded int }

func (p *asked) Next(int, error) (time.Duration, bool) { p.next++; return time.Second, true }
func (p *asked) Succeeded(int)                         { p.succeeded++ }

func TestAPolicyIsAskedOnlyForRetriesThatThereMayBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, p := newRig(t, worker.Config{}), &asked{}
		worker.Handle(r.sup, "x", returns(errBoom), worker.Retry(p))
		r.start()
		id := r.enqueue("x", nil, func(j *store.NewJob) { j.MaxAttempts = 3 })
		settle(time.Minute)
		r.wantState(id, store.Dead, 3, "boom")
		if p.next != 2 || p.succeeded != 0 {
			t.Errorf("it was asked %d times and told of %d successes, want 2 and none", p.next, p.succeeded)
		}
		r.stopWell()
	})
}

func TestAPolicyIsNotAskedWhenAJobWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, p := newRig(t, worker.Config{}), &asked{}
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error { return worker.Sleep(ctx, "nap", time.Minute) }, worker.Retry(p))
		r.start()
		id := r.enqueue("x", nil)
		settle(5 * time.Minute)
		r.wantState(id, store.Done, 1, "")
		if p.next != 0 || p.succeeded != 1 {
			t.Errorf("it was asked %d times and told of %d successes, want none and 1", p.next, p.succeeded)
		}
		r.stopWell()
	})
}

func TestThePolicyOfAStepHearsOfItsSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, p := newRig(t, worker.Config{}), &asked{}
		tries := 0
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			return worker.Do(ctx, "a", func(context.Context) error {
				if tries++; tries < 3 {
					return errBoom
				}
				return nil
			}, worker.Retry(retry.Limit(5, p)))
		})
		r.start()
		id := r.enqueue("x", nil)
		settle(time.Minute)
		r.wantState(id, store.Done, 1, "")
		if p.next != 2 || p.succeeded != 1 {
			t.Errorf("it was asked %d times and told of %d successes, want 2 and 1", p.next, p.succeeded)
		}
		r.stopWell()
	})
}
