package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/middleware"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

func explode() error { panic("oops") }

func TestAPanicIsReportedWithItsValueAndStackAndTheAttemptFailsAsEver(t *testing.T) {
	for name, tc := range map[string]struct {
		handler             func() error
		reported, lastError string
		state               store.State
	}{
		"a panic":               {explode, "oops explode", "panic: oops", store.Scheduled},
		"of an error":           {func() error { panic(fmt.Errorf("broken: %w", retry.Permanent(errors.New("bad")))) }, "broken: bad", "panic: broken: bad", store.Scheduled}, // it does not steer
		"a Goexit":              {func() error { runtime.Goexit(); return nil }, "runtime.Goexit was called", "runtime.Goexit was called", store.Scheduled},
		"an error":              {func() error { return errors.New("no") }, "", "no", store.Scheduled},
		"a permanent error":     {func() error { return retry.Permanent(errors.New("no")) }, "", "no", store.Dead},
		"nothing":               {func() error { return nil }, "", "", store.Done},
		"a panic of the report": {func() error { panic("both") }, "both", "panic: the report", store.Scheduled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reports []string
				st := workertest.Store(t)
				sup, _ := worker.New(st, worker.Config{Logger: slog.New(slog.DiscardHandler)})
				report := func(_ context.Context, job store.Job, p *worker.PanicError) {
					reports = append(reports, fmt.Sprint(job.Instance, " ", p.Value, " ", string(p.Stack)))
					if p.Value == "both" {
						panic("the report")
					}
				}
				worker.Handle(sup, "images", func(context.Context, none) error { return tc.handler() },
					worker.Use(middleware.Recovery(report)), worker.Retry(retry.Fixed(time.Hour)))
				workertest.Start(t, sup)
				id, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(t.Context(), "images", nil)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				job, err := st.Get(t.Context(), id)
				if err != nil || job.State != tc.state || !strings.HasPrefix(job.LastError, tc.lastError) || job.Attempt != 1 {
					t.Errorf("the job is %s after %d attempts with %.60q, %v", job.State, job.Attempt, job.LastError, err)
				}
				switch {
				case tc.reported == "" && len(reports) == 0:
				case len(reports) != 1 || !strings.HasPrefix(reports[0], "images "):
					t.Errorf("reported %q", reports)
				default:
					for _, word := range strings.Fields(tc.reported) {
						if !strings.Contains(reports[0], word) {
							t.Errorf("reported %q, without %q", reports[0], word)
						}
					}
				}
			})
		})
	}
}

func TestWithoutAReportNothingIsWrapped(t *testing.T) {
	h := middleware.Recovery(nil)(func(context.Context, store.Job) error { return errDown })
	if err := h(t.Context(), store.Job{}); err != errDown { //nolint:errorlint // it is that very error
		t.Errorf("%v", err)
	}
}

func ExampleRecovery() {
	report := middleware.Recovery(func(_ context.Context, job store.Job, p *worker.PanicError) {
		fmt.Println(job.Instance, "panicked with", p.Value)
	})
	h := report(func(context.Context, store.Job) error { panic("oops") })
	fmt.Println(h(context.Background(), store.Job{Instance: "greet"}))
	// Output:
	// greet panicked with oops
	// panic: oops
}
