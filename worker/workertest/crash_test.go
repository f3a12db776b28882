package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// noting is a testing.TB that keeps what is said.
type noting struct {
	testing.TB
	mu           sync.Mutex
	errors, logs []string
}

func (n *noting) Errorf(format string, a ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errors = append(n.errors, fmt.Sprintf(format, a...))
}

func (n *noting) Logf(format string, a ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logs = append(n.logs, fmt.Sprintf(format, a...))
}

// once gives a job up at its first failure: a crash is none.
var once = worker.Retry(retry.Limit(1, retry.Fixed(0)))

func TestACrashTakesTheLeaseAndIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type call struct {
			attempt, crashes int
			last             string
		}
		var runs [][]call
		n := &noting{TB: t}
		workertest.CrashEverywhere(n, func(_ testing.TB, sup *worker.Supervisor) {
			runs = append(runs, nil)
			mine := &runs[len(runs)-1]
			worker.Handle(sup, "order", func(ctx context.Context, _ int) error {
				job, _ := worker.JobFrom(ctx)
				*mine = append(*mine, call{job.Attempt, job.Crashes, job.LastError})
				return worker.Do(ctx, "a", func(context.Context) error { return nil })
			}, once)
		}, "order", 1)
		if len(n.errors) != 0 || len(runs) != 4 {
			t.Fatalf("%d runs, want one and three with a crash: %q", len(runs), n.errors)
		}
		for i, calls := range runs[1:] {
			if len(calls) != 2 || calls[1] != (call{1, 1, ""}) {
				t.Errorf("run %d: called %+v, want a second call after one crash, with its attempt not charged", i+1, calls)
			}
		}
	})
}

func TestEachBoundaryOfManyStepsIsCrashedInLittleTime(t *testing.T) {
	const steps = 12
	synctest.Test(t, func(t *testing.T) {
		n, start := &noting{TB: t}, time.Now()
		workertest.CrashEverywhere(n, func(_ testing.TB, sup *worker.Supervisor) {
			worker.Handle(sup, "order", func(ctx context.Context, _ int) error {
				for i := range steps {
					if err := worker.Do(ctx, fmt.Sprint("step/", i), func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				return nil
			}, once)
		}, "order", 1)
		if took := time.Since(start); took > 3*steps*time.Second {
			t.Errorf("%d crashes took %v", 3*steps, took)
		}
		for i := range steps {
			for _, where := range []string{"before the step", "after its function", "after its result has been kept"} {
				line := fmt.Sprintf("a crash of step %q of order, %s: ", fmt.Sprint("step/", i), where)
				found := ""
				for _, said := range n.logs {
					if strings.HasPrefix(said, line) {
						found = said
					}
				}
				times := 1
				if where == "after its function" {
					times = 2
				}
				if !strings.Contains(found, fmt.Sprintf("step/%d %d", i, times)) {
					t.Errorf("of %q it says %q, want that its function ran %d times", line, found, times)
				}
			}
		}
		if len(n.errors) != 0 || len(n.logs) != 3*steps+1 {
			t.Errorf("%d lines; errors %q", len(n.logs), n.errors)
		}
	})
}

func TestEffectsAreCountedAndThoseOutsideOfStepsAreFound(t *testing.T) {
	order := func(outside, waits bool) func(ctx context.Context, _ int) error {
		return func(ctx context.Context, _ int) error {
			if outside {
				workertest.Effect(ctx, "mail")
			}
			err := worker.Do(ctx, "charge", func(ctx context.Context) error { workertest.Effect(ctx, "bank"); return nil })
			if err == nil && waits {
				err = worker.Sleep(ctx, "nap", time.Hour)
			}
			return err
		}
	}
	for what, c := range map[string]struct {
		outside, waits bool
		want           string
	}{
		"all in steps":                      {false, true, ""},
		"one outside":                       {true, false, `a crash of step "charge" of order, before the step: the effect "mail" of order, which is outside of a step, happened 2 times`},
		"one outside, and parks: no crash ": {true, true, `without a crash: the effect "mail" of order, which is outside of a step, happened 2 times`},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &noting{TB: t}
				workertest.CrashEverywhere(n, func(_ testing.TB, sup *worker.Supervisor) {
					worker.Handle(sup, "order", order(c.outside, c.waits))
				}, "order", 1)
				said := strings.Join(n.errors, "\n")
				if c.want == "" && said != "" || !strings.Contains(said, c.want) {
					t.Errorf("it said %q, want %q", said, c.want)
				}
				for _, line := range n.logs {
					if times := map[bool]string{true: "bank 2", false: "bank 1"}[strings.Contains(line, "after its function")]; !strings.Contains(line, times) {
						t.Errorf("it reports %q, want %q in it", line, times)
					}
				}
			})
		})
	}
	workertest.Effect(t.Context(), "elsewhere it does nothing")
}

func TestChildrenCrashAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &noting{TB: t}
		workertest.CrashEverywhere(n, func(_ testing.TB, sup *worker.Supervisor) {
			worker.Handle(sup, "order", func(ctx context.Context, _ int) error {
				f, err := worker.Async[int](ctx, "render", "render", 1)
				if err != nil {
					return err
				}
				_, err = f.Wait(ctx)
				return err
			}, once)
			worker.HandleResult(sup, "render", func(ctx context.Context, _ int) (int, error) {
				job, _ := worker.JobFrom(ctx)
				if job.State != store.Doing {
					return 0, errors.New("not mine")
				}
				return worker.Step(ctx, "draw", func(context.Context) (int, error) { return 1, nil })
			}, once)
		}, "order", 1)
		if len(n.errors) != 0 || len(n.logs) != 1+3+3 { // for an async step: before it, after its record, after its child is there
			t.Errorf("%q, errors %q", n.logs, n.errors)
		}
	})
}
