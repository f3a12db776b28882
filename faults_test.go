package stint_test

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Handlers that misbehave, in processes of their own: what they take with them, and what they don't.

// order is the payload that tells a handler of the play "obey" what to do.
type order struct{ Do string }

// playFault is play for the stories of this file and its neighbours.
func (r role) playFault(sup *worker.Supervisor, say func(string, ...any)) bool {
	switch r.Play {
	case "deaf":
		worker.Handle(sup, "story", func(context.Context, struct{}) error {
			say("started")
			select {} // whatever its context says
		})
	case "obey":
		worker.Handle(sup, "story", func(ctx context.Context, o order) error {
			switch o.Do {
			case "panic":
				panic("as told")
			case "goexit":
				runtime.Goexit()
			case "exit":
				say("exiting")
				os.Exit(3)
			}
			time.Sleep(50 * time.Millisecond) // so that it has neighbours
			return nil
		}, worker.Concurrency(5), worker.Retry(retry.Limit(2, retry.Fixed(0))))
	case "load":
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			say("ran %s", jobID(ctx))
			time.Sleep(10 * time.Millisecond)
			return nil
		}, worker.Concurrency(20))
	case "idle":
		worker.Handle(sup, "story", func(context.Context, struct{}) error { return nil })
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGUSR1)
		go func() {
			for range asked {
				say("used %d", used())
			}
		}()
	default:
		return false
	}
	return true
}

// used is the processor time of this process so far, in microseconds.
func used() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Microseconds()
}

// give enqueues jobs that are told what to do.
func (s *stage) give(t *testing.T, what ...string) []uuid.UUID {
	t.Helper()
	reqs := make([]worker.Request, len(what))
	for i := range reqs {
		reqs[i] = worker.Request{Instance: "story", Payload: order{what[i]}}
	}
	got, err := s.client.EnqueueMany(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]uuid.UUID, len(got))
	for i := range got {
		ids[i] = got[i].ID
	}
	return ids
}

// restarting keeps a service running, whatever becomes of it, until so; it returns how often it has started it.
func (s *stage) restarting(t *testing.T, r role, so func(store.Stats) bool) (starts int) {
	t.Helper()
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); {
		svc := r.start(t)
		starts++
		for alive := true; alive; {
			if so(s.stats(t)) {
				return starts
			}
			select {
			case _, alive = <-svc.lines:
			case <-time.After(50 * time.Millisecond):
			}
			alive = alive && time.Now().Before(deadline)
		}
		_ = svc.cmd.Process.Kill()
	}
	t.Fatalf("not over within %v, %d processes later: %+v", hang, starts, s.stats(t))
	return starts
}

func TestAHandlerThatIgnoresCancellationDoesNotKeepItsProcess(t *testing.T) {
	s := setup(t)
	s.Lease = time.Second
	r := s.as("deaf")
	r.Drain, r.Grace = 300*time.Millisecond, 300*time.Millisecond
	svc := r.start(t)
	id := s.enqueue(t)
	svc.expect(t, "started")
	svc.signal(t, syscall.SIGTERM)
	told := time.Now()
	said := strings.Join(svc.rest(), "\n")
	stop := r.Drain + r.Grace
	if took := time.Since(told); took > redistest.Size(10*stop, stop+time.Second) {
		t.Errorf("the stop took %v", took)
	}
	for _, want := range []string{"failed", id.String(), "story", "playFault"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not mention %q when it gives up:\n%s", want, said)
		}
	}
	s.as("short").start(t)
	if j := s.wait(t, id); j.State != store.Done || j.Attempt != 1 {
		t.Errorf("somebody else's attempt %d led to %s", j.Attempt, j.State)
	}
}

func TestAPanicOrAGoexitEndsItsAttemptAlone(t *testing.T) {
	s := setup(t)
	svc := s.as("obey").start(t)
	ids := s.give(t, "panic", "goexit", "", "", "")
	for i, id := range ids {
		want, text := store.Done, ""
		switch i {
		case 0:
			want, text = store.Dead, "as told"
		case 1:
			want, text = store.Dead, "Goexit"
		}
		if j := s.wait(t, id); j.State != want || !strings.Contains(j.LastError, text) || j.Crashes != 0 {
			t.Errorf("job %d is %s with %d crashes and error %.80q; want %s", i, j.State, j.Crashes, j.LastError, want)
		}
	}
	svc.signal(t, syscall.SIGTERM)
	if said := svc.rest(); len(said) > 0 {
		t.Errorf("the process said %q at its end", said)
	}
}

func TestAJobThatEndsItsProcessIsDeadAfterMaxCrashes(t *testing.T) {
	s := setup(t)
	s.Lease = time.Second
	id := s.give(t, "exit")[0]
	starts := s.restarting(t, s.as("obey"), func(now store.Stats) bool { return now.Dead == 1 })
	j, err := s.st.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	// The process that buried it was started after the last crash.
	if j.State != store.Dead || j.Crashes != worker.DefaultMaxCrashes || starts != worker.DefaultMaxCrashes+1 || j.LastError == "" {
		t.Errorf("%s after %d crashes and %d starts with %q", j.State, j.Crashes, starts, j.LastError)
	}
}

func TestAPoisonJobTakesNoneOfAHundredGoodOnesWithIt(t *testing.T) {
	s := setup(t)
	s.Lease = time.Second
	what := slices.Repeat([]string{""}, 101)
	what[7] = "exit"
	ids := s.give(t, what...)
	starts := s.restarting(t, s.as("obey"), func(now store.Stats) bool { return now.Done+now.Dead == 101 })
	t.Logf("%d processes", starts)
	if now := s.stats(t); now.Dead != 1 || now.Done != 100 {
		t.Errorf("%+v, want 100 done and one dead", now)
	}
	j, err := s.st.Get(t.Context(), ids[7])
	if err != nil || j.State != store.Dead || j.Crashes != worker.DefaultMaxCrashes {
		t.Errorf("the poison is %s after %d crashes, %v", j.State, j.Crashes, err)
	}
}
