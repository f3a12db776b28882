package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

func TestAHandlerOverThreeDays(t *testing.T) {
	const day = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		sup, err := worker.New(st, worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		start, calls := time.Now(), []time.Duration{}
		worker.Handle(sup, "remind", func(ctx context.Context, whom string) error {
			calls = append(calls, time.Since(start).Round(time.Second))
			switch len(calls) {
			case 1, 2:
				return worker.Snooze(day) // not today
			default:
				return nil
			}
		})
		workertest.Start(t, sup)
		client := worker.NewClient(st, worker.ClientConfig{})
		id, err := client.Enqueue(t.Context(), "remind", "you", worker.Delay(day))
		if err != nil {
			t.Fatal(err)
		}
		workertest.Drain(t, st)
		if want := []time.Duration{day, 2 * day, 3 * day}; !slices.Equal(calls, want) {
			t.Errorf("called after %v, want %v", calls, want)
		}
		if job, err := st.Get(t.Context(), id); err != nil || job.State != store.Done || job.Attempt != 1 {
			t.Errorf("%s after %d attempts, %v; want done after one", job.State, job.Attempt, err)
		}
	})
}

func TestDrainWaitsForRetriesAndForLongHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		sup, _ := worker.New(st, worker.Config{})
		tries := 0
		worker.Handle(sup, "flaky", func(context.Context, int) error {
			if tries++; tries < 10 {
				return errors.New("not yet")
			}
			return nil
		})
		worker.Handle(sup, "long", func(context.Context, int) error { time.Sleep(5 * time.Minute); return nil })
		workertest.Start(t, sup)
		client := worker.NewClient(st, worker.ClientConfig{})
		_, err := client.EnqueueMany(t.Context(), []worker.Request{{Instance: "flaky", Payload: 1}, {Instance: "long", Payload: 1}})
		if err != nil {
			t.Fatal(err)
		}
		workertest.Drain(t, st)
		all, err := st.Stats(t.Context())
		if err != nil || all[0].Done != 1 || all[1].Done != 1 || tries != 10 {
			t.Errorf("%+v after %d tries, %v; want both done", all, tries, err)
		}
	})
}

func TestItAllWorksOutsideABubble(t *testing.T) {
	st := workertest.Store(t)
	sup, _ := worker.New(st, worker.Config{})
	worker.Handle(sup, "images", nothing)
	workertest.Start(t, sup)
	client := worker.NewClient(st, worker.ClientConfig{})
	for i := range 20 {
		if _, err := client.Enqueue(t.Context(), "images", i, worker.Delay(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	workertest.Drain(t, st)
	if all, err := st.Stats(t.Context()); err != nil || all[0].Done != 20 {
		t.Errorf("%+v, %v; want 20 done", all, err)
	}
}

// failing stands for the test of a user that fails: what would end it ends a goroutine.
type failing struct {
	testing.TB
	said []string
}

func (f *failing) Errorf(format string, a ...any) { f.said = append(f.said, fmt.Sprintf(format, a...)) }
func (f *failing) Fatalf(format string, a ...any) { f.Errorf(format, a...); runtime.Goexit() }

// run calls part of such a test and returns what it complained of.
func run(t *testing.T, part func(t testing.TB)) string {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		part(f)
	}()
	<-done
	return strings.Join(f.said, "\n")
}

func nothing(context.Context, int) error { return nil }

func TestDrainSaysWhyItWouldNeverEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		handled string // instance
		handler func(context.Context, int) error
		before  func(st *store.Store) error
		delay   time.Duration
		want    string
	}{
		"paused":       {"images", nothing, func(st *store.Store) error { return st.Pause(context.Background(), "images") }, 0, "images is paused"},
		"unserved":     {"mail", nothing, nil, 0, "nobody takes the jobs of images"},
		"after a year": {"", nil, nil, 400 * 24 * time.Hour, "after a year"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := workertest.Store(t)
				if tc.before != nil {
					if err := tc.before(st); err != nil {
						t.Fatal(err)
					}
				}
				if tc.handler != nil { // without one a year is over at once
					sup, _ := worker.New(st, worker.Config{})
					worker.Handle(sup, tc.handled, tc.handler)
					workertest.Start(t, sup)
				}
				client := worker.NewClient(st, worker.ClientConfig{})
				if _, err := client.Enqueue(t.Context(), "images", 1, worker.Delay(tc.delay)); err != nil {
					t.Fatal(err)
				}
				if got := run(t, func(t testing.TB) { workertest.Drain(t, st) }); !strings.Contains(got, tc.want) {
					t.Errorf("it said %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestStartFailsTheTestWithTheErrorOfRun(t *testing.T) {
	st := workertest.Store(t)
	sup, _ := worker.New(st, worker.Config{})
	worker.Handle(sup, "no good", func(context.Context, int) error { return nil })
	f := &failing{TB: t}
	t.Run("user", func(t *testing.T) { // its end waits for Run
		f.TB = t
		workertest.Start(f, sup)
	})
	if len(f.said) != 1 || !strings.Contains(f.said[0], "no good") {
		t.Errorf("it said %q, want the error of Run", f.said)
	}
}

func TestContextIsThatOfAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := uuid.New()
		ctx := workertest.Context(t, store.Job{ID: id, Instance: "order", Payload: []byte(`"in"`), Metadata: map[string]string{"k": "v"}})
		if job, ok := worker.JobFrom(ctx); !ok || job.ID != id || job.Instance != "order" || string(job.Payload) != `"in"` || job.Metadata["k"] != "v" || job.Attempt != 1 {
			t.Errorf("its job is %+v, %v", job, ok)
		}
		if err := worker.Progress(ctx, 1); err != nil {
			t.Error(err)
		}
		got, err := worker.Step(ctx, "charge", func(ctx context.Context) (string, error) { return worker.IdempotencyKey(ctx), nil })
		if err != nil || got == "" {
			t.Errorf("a step returned %q, %v", got, err)
		}
		if _, err := worker.Step(ctx, "charge", func(context.Context) (string, error) { return "", nil }); !errors.Is(err, worker.ErrStepTwice) {
			t.Errorf("the step again: %v", err)
		}
		if err := worker.Sleep(ctx, "nap", time.Hour); !errors.Is(err, worker.ErrParked) || !errors.Is(context.Cause(ctx), worker.ErrParked) {
			t.Errorf("a sleep returned %v", err)
		}
		other := workertest.Context(t, store.Job{})
		if err := worker.Do(other, "charge", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestContextEndsWithItsTestThoughItsJobIsClaimedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		t.Cleanup(func() {
			if took := time.Since(start); took > time.Minute+time.Second {
				t.Errorf("it has ended after %v, want a minute", took)
			}
		})
		st := workertest.Store(t)
		job, _ := worker.JobFrom(workertest.ContextOf(t, st, store.Job{}))
		rt := st.Runtime()
		err := rt.Lapse(t.Context(), job.Instance, job.ID) // as when the machine was asleep
		if err == nil {
			_, err = rt.Reap(t.Context(), store.Terms{Instance: job.Instance, Lease: worker.DefaultLease, MaxCrashes: 3})
		}
		time.Sleep(time.Minute)
		now, failed := st.Get(t.Context(), job.ID)
		if err != nil || failed != nil || now.State != store.Doing || now.Worker == job.Worker {
			t.Errorf("%v %v: %+v, want it claimed anew", err, failed, now)
		}
	})
}

func TestCrashEverywhereFindsWhatIsDoneTwice(t *testing.T) {
	for what, tc := range map[string]struct {
		handler func(calls *int) func(ctx context.Context, in int) error
		want    string // "" for a handler that is well
	}{
		"well": {func(*int) func(context.Context, int) error {
			return func(ctx context.Context, in int) error {
				err := worker.Do(ctx, "a", func(context.Context) error { return nil })
				if err == nil {
					err = worker.Sleep(ctx, "nap", time.Minute)
				}
				if err == nil {
					err = worker.Do(ctx, "b", func(context.Context) error { return nil })
				}
				return err
			}
		}, ""},
		"without a step": {func(*int) func(context.Context, int) error { return nothing }, "has no steps"},
		"with a name that changes": {func(calls *int) func(context.Context, int) error {
			return func(ctx context.Context, in int) error {
				*calls++
				return worker.Do(ctx, fmt.Sprint("a", *calls), func(context.Context) error { return nil })
			}
		}, "it did not come there"},
		"that fails once it was cut off": {func(*int) func(context.Context, int) error {
			return func(ctx context.Context, in int) error {
				ran := false
				if err := worker.Do(ctx, "a", func(context.Context) error { ran = true; return nil }); err != nil {
					return err
				}
				if !ran {
					return retry.Permanent(errors.New("it was not meant to be called again"))
				}
				return worker.Do(ctx, "b", func(context.Context) error { return nil })
			}
		}, "the job is dead"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				said := run(t, func(t testing.TB) {
					workertest.CrashEverywhere(t, func(_ testing.TB, sup *worker.Supervisor) {
						worker.Handle(sup, "order", tc.handler(&calls))
					}, "order", 1)
				})
				if tc.want == "" && said != "" || !strings.Contains(said, tc.want) {
					t.Errorf("it said %q, want %q", said, tc.want)
				}
			})
		})
	}
}
