package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/middleware"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// text is a log without times.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.Write(b)
}

// lines returns what was logged of attempts.
func (x *text) lines() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var some []string
	for line := range strings.Lines(x.buf.String()) {
		if strings.Contains(line, "attempt ") {
			some = append(some, strings.TrimSpace(line))
		}
	}
	return some
}

func newLogger(x *text) *slog.Logger {
	return slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func TestEachAttemptHasALineAtItsStartAndOneAtItsEnd(t *testing.T) {
	id := uuid.New()
	for name, tc := range map[string]struct {
		handler func() error
		want    string
	}{
		"completed": {func() error { time.Sleep(time.Second); return nil }, `level=INFO msg="attempt ended" %s outcome=completed took=1s`},
		"failed":    {func() error { return errors.New("no memory") }, `level=WARN msg="attempt ended" %s outcome=failed took=0s err="no memory"`},
		"buried":    {func() error { return retry.Permanent(errors.New("no PNG")) }, `level=ERROR msg="attempt ended" %s outcome=buried took=0s err="no PNG"`},
		"snoozed":   {func() error { return worker.Snooze(time.Hour) }, `level=INFO msg="attempt ended" %s outcome=snoozed took=0s err="snoozed for 1h0m0s"`},
		"panicked":  {func() error { panic("oops") }, `level=ERROR msg="attempt ended" %s outcome=broken took=0s`},
		"exited":    {func() error { runtime.Goexit(); return nil }, `level=ERROR msg="attempt ended" %s outcome=broken took=0s`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &text{}
				st := workertest.Store(t)
				sup, _ := worker.New(st, worker.Config{Logger: slog.New(slog.DiscardHandler)})
				worker.Handle(sup, "images", func(context.Context, struct{}) error { return tc.handler() },
					worker.Use(middleware.Logging(newLogger(out))), worker.Retry(retry.Limit(1, nil)))
				workertest.Start(t, sup)
				_, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(t.Context(), "images", nil, worker.ID(id))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				job := fmt.Sprintf("instance=images job=%s attempt=1", id)
				want := []string{`level=DEBUG msg="attempt started" ` + job, fmt.Sprintf(tc.want, job)}
				if got := out.lines(); !slices.Equal(got, want) {
					t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		})
	}
}

func TestAnErrorAfterACancelOrAShutdownIsNoFailure(t *testing.T) {
	for _, tc := range []struct {
		cause error
		want  string
	}{
		{worker.ErrParked, "level=INFO msg=\"attempt ended\" outcome=parked"},
		{worker.ErrCancelled, "level=INFO msg=\"attempt ended\" outcome=aborted"},
		{worker.ErrShutdown, "level=WARN msg=\"attempt ended\" outcome=released"},
		{worker.ErrLeaseLost, "level=WARN msg=\"attempt ended\" outcome=released"},
		{worker.ErrTimeout, "level=WARN msg=\"attempt ended\" outcome=failed"},
	} {
		out := &text{}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tc.cause)
		h := middleware.Logging(newLogger(out))(func(ctx context.Context, _ store.Job) error { return ctx.Err() })
		if err := h(ctx, store.Job{Instance: "images"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the handler's error as it is", err)
		}
		line := out.lines()[1]
		line = strings.Replace(line, " instance=images job="+uuid.Nil.String()+" attempt=0", "", 1)
		if !strings.HasPrefix(line, tc.want) {
			t.Errorf("%v: logged %q, want %q", tc.cause, line, tc.want)
		}
	}
}

func TestWithoutALoggerTheLinesGoToThatOfTheSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &text{}
		st := workertest.Store(t)
		sup, _ := worker.New(st, worker.Config{Logger: newLogger(out), Middleware: []worker.Middleware{middleware.Logging(nil)}})
		worker.Handle(sup, "images", func(context.Context, struct{}) error { return nil })
		workertest.Start(t, sup)
		id, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(t.Context(), "images", nil)
		if err != nil {
			t.Fatal(err)
		}
		workertest.Drain(t, st)
		if got := out.lines(); len(got) != 2 || strings.Count(got[1], id.String()) != 1 {
			t.Errorf("logged %q, want two lines, each naming the job once", got)
		}
	})
}

func ExampleLogging() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { // what differs each time
			if a.Key == "time" || a.Key == "took" || a.Key == "job" {
				return slog.Attr{}
			}
			return a
		},
	}))
	greet := middleware.Logging(log)(func(context.Context, store.Job) error { return errors.New("nobody there") })
	_ = greet(context.Background(), store.Job{Instance: "greet", Attempt: 1})
	// Output: level=WARN msg="attempt ended" instance=greet attempt=1 outcome=failed err="nobody there"
}
