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
