package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func identity(next worker.Handler) worker.Handler { return next }

func TestAWrongRegistrationIsWhatRunReturnsAndNothingIsStarted(t *testing.T) {
	var noFunc func(context.Context, none) error
	var noResult func(context.Context, none) (int, error)
	ok := returns(nil)
	cases := map[string]struct {
		register func(s *worker.Supervisor)
		want     string
	}{
		"a nil function":        {func(s *worker.Supervisor) { worker.Handle(s, "x", noFunc) }, "the function is nil"},
		"a nil result function": {func(s *worker.Supervisor) { worker.HandleResult(s, "x", noResult) }, "the function is nil"},
		"a bad instance name":   {func(s *worker.Supervisor) { worker.Handle(s, "a b", ok) }, "not what stands at byte 1"},
		"no instance name":      {func(s *worker.Supervisor) { worker.Handle(s, "", ok) }, "1 to 128"},
		"two for one instance":  {func(s *worker.Supervisor) { worker.Handle(s, "x", ok); worker.Handle(s, "x", ok) }, "there is one already"},
		"a nil option":          {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, nil) }, "an option is nil"},
		"no concurrency":        {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.Concurrency(0)) }, "concurrency 0"},
		"a nil policy":          {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.Retry(nil)) }, "policy is nil"},
		"a negative timeout":    {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.Timeout(-1)) }, "timeout -1ns is negative"},
		"a negative retention":  {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.Retention(-1, 1)) }, "retention"},
		"no crashes":            {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.MaxCrashes(0)) }, "0 crashes"},
		"an unknown pool":       {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.In("nowhere", 1)) }, `no pool "nowhere"`},
		"a pool without name":   {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.In("", 1)) }, "name of the pool is empty"},
		"no weight":             {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.In("all", 0)) }, "weight 0"},
		"too much weight":       {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.In("all", 1_000_001)) }, "weight 1000001"},
		"a pool and its own concurrency": {func(s *worker.Supervisor) {
			worker.Handle(s, "x", ok, worker.Concurrency(3), worker.In("all", 1))
		}, "both In and Concurrency"},
		"no global limit":    {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.GlobalLimit(0)) }, "limit 0"},
		"a rate of none":     {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.Rate(0, time.Second)) }, "rate of 0"},
		"a rate per no time": {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.Rate(1, 0)) }, "rate of 1 per 0s"},
		"a nil middleware":   {func(s *worker.Supervisor) { worker.Handle(s, "x", ok, worker.Use(identity, nil)) }, "middleware 2 is nil"},
		"middleware without one": {func(s *worker.Supervisor) {
			worker.Handle(s, "x", ok, worker.Use(func(worker.Handler) worker.Handler { return nil }))
		}, "returned no handler"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{Pools: []worker.Pool{{Name: "all"}}})
				worker.Handle(r.sup, "good", ok)
				c.register(r.sup)
				err := r.sup.Run(t.Context())
				if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("Run returned %v, want an ErrInvalid with %q", err, c.want)
				}
				if n := r.fault.Seen(); n != 0 {
					t.Errorf("%d commands, want none", n)
				}
			})
		})
	}
}

func TestMiddlewareThatPanicsAtRegistrationIsAProblemOfRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil), worker.Use(func(worker.Handler) worker.Handler { panic("oops") }))
		if _, ok := errors.AsType[*worker.PanicError](r.sup.Run(t.Context())); !ok {
			t.Error("Run did not return the panic")
		}
	})
}

func TestAllProblemsAreReturnedTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "a b", returns(nil), worker.Concurrency(-1))
		worker.Handle(r.sup, "x", returns(nil), worker.Timeout(-1))
		err := r.sup.Run(t.Context())
		for _, want := range []string{`"a b"`, "concurrency -1", `"x"`, "timeout -1ns"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %v", want, err)
			}
		}
	})
}

func TestRunWithoutAHandlerIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		if err := newRig(t, worker.Config{}).sup.Run(t.Context()); err != worker.ErrNoHandler {
			t.Errorf("Run returned %v, want ErrNoHandler", err)
		}
	})
}

func TestRunningTwiceIsAnErrorAndSoIsRegisteringAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		r.start()
		synctest.Wait()
		if err := r.sup.Run(t.Context()); err != worker.ErrRan {
			t.Errorf("Run returned %v, want ErrRan", err)
		}
		r.stopWell()
		if err := r.sup.Run(t.Context()); err != worker.ErrRan {
			t.Errorf("Run returned %v, want ErrRan", err)
		}
		defer func() {
			if recover() == nil {
				t.Error("Handle after Run did not panic")
			}
		}()
		worker.Handle(r.sup, "y", returns(nil))
	})
}

func TestNewRefusesABadConfig(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		cases := map[string]worker.Config{
			"a lease under a second":   {Lease: 999 * time.Millisecond},
			"a negative lease":         {Lease: -time.Second},
			"a negative drain timeout": {DrainTimeout: -1},
			"a negative grace timeout": {GraceTimeout: -1},
			"a pool without name":      {Pools: []worker.Pool{{Concurrency: 1}}},
			"two pools of one name":    {Pools: []worker.Pool{{Name: "a"}, {Name: "a"}}},
			"a pool of less than none": {Pools: []worker.Pool{{Name: "a", Concurrency: -1}}},
			"a nil middleware":         {Middleware: []worker.Middleware{nil}},
		}
		for name, cfg := range cases {
			if s, err := worker.New(r.st, cfg); s != nil || !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		if s, err := worker.New(nil, worker.Config{}); s != nil || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a nil store: %v, want ErrInvalid", err)
		}
	})
}

func TestMiddlewareWrapsFromTheOutsideInAndMayChangeWhatItPassesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []string
		step := func(name string) worker.Middleware {
			return func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, job store.Job) error {
					order = append(order, name)
					job.Payload = []byte(strings.Replace(string(job.Payload), "]", `,"`+name+`"]`, 1))
					err := next(context.WithValue(ctx, rigKey{}, name), job)
					order = append(order, "after "+name)
					return err
				}
			}
		}
		r := newRig(t, worker.Config{Middleware: []worker.Middleware{step("1"), step("2")}})
		worker.HandleResult(r.sup, "x", func(ctx context.Context, in []string) ([]string, error) {
			return append(in, ctx.Value(rigKey{}).(string)), nil
		}, worker.Use(step("3")), worker.Use(step("4")))
		r.start()
		id := r.enqueue("x", []string{"0"})
		settle(time.Second)
		r.wantState(id, store.Done, 1, "")
		if got := string(r.job(id).Result); got != `["0","1","2","3","4","4"]` {
			t.Errorf("result %s", got)
		}
		if s := strings.Join(order, " "); s != "1 2 3 4 after 4 after 3 after 2 after 1" {
			t.Errorf("order %s", s)
		}
		r.stopWell()
	})
}

func TestMiddlewareThatPanicsOrSteersActsForItsJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Middleware: []worker.Middleware{func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, job store.Job) error {
				if job.Instance == "panics" {
					panic("oops")
				}
				_ = next(ctx, job)
				return nil
			}
		}}})
		worker.Handle(r.sup, "panics", returns(nil), worker.Retry(limitOne))
		worker.Handle(r.sup, "forgives", returns(errBoom))
		r.start()
		a, b := r.enqueue("panics", nil), r.enqueue("forgives", nil)
		settle(time.Second)
		r.wantState(a, store.Dead, 1, "panic: oops")
		r.wantState(b, store.Done, 1, "")
		r.stopWell()
	})
}

func TestAResultNeedsTheHandlersContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.HandleResult(r.sup, "x", func(context.Context, none) (int, error) { return 1, nil },
			worker.Use(func(next worker.Handler) worker.Handler {
				return func(_ context.Context, job store.Job) error { return next(context.Background(), job) }
			}))
		r.start()
		id := r.enqueue("x", nil)
		settle(time.Second)
		r.wantState(id, store.Dead, 1, "keeping the result: "+worker.ErrNoJob.Error())
		r.stopWell()
	})
}
