package stint_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// The story of the product is told by real processes on a real Redis: this test binary runs itself as a service.

// role is what a process of the story does; it reads it from its environment.
type role struct {
	Addrs        []string // one server, or the nodes of a Cluster
	Prefix       string
	Play         string // which handler
	Lease        time.Duration
	Drain, Grace time.Duration // 0 is the default
	Node         string        // "" is the default
	Skew         time.Duration // of the clock that arms its timers
}

const roleVar = "STINT_TEST_ROLE"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(roleVar)
	if !ok {
		os.Exit(redistest.Main(m))
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	if err := r.play(); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

// play is a whole service in a few lines. What happens is said on standard output, a line each.
func (r role) play() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	rdb := connect(r.Addrs...)
	defer rdb.Close()
	st, err := store.Open(rdb, store.Options{Prefix: r.Prefix})
	if err != nil {
		return err
	}
	say := func(format string, a ...any) { fmt.Printf(format+"\n", a...) }
	sup, err := worker.New(st, worker.Config{
		Lease:        r.Lease,
		DrainTimeout: r.Drain,
		GraceTimeout: r.Grace,
		Logger:       r.logger(),
		Node:         r.Node,
		Now:          func() time.Time { return time.Now().Add(r.Skew) },
		OnEvent: func(e worker.Event) {
			switch e := e.(type) {
			case worker.LeaseLost:
				say("lease-lost %s", e.Job)
			case worker.StaleWrite:
				say("stale %s", e.Job)
			}
		},
	})
	if err != nil {
		return err
	}
	switch r.Play {
	case "hang": // until it is told to stop
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			say("started")
			<-ctx.Done()
			say("told %v", context.Cause(ctx))
			return context.Cause(ctx)
		})
	case "stubborn": // does not look at its context, reports and completes at the end
		worker.HandleResult(sup, "story", func(ctx context.Context, _ struct{}) (string, error) {
			say("started")
			for start := time.Now(); time.Since(start) < 500*time.Millisecond; {
				time.Sleep(10 * time.Millisecond)
			}
			<-ctx.Done()
			say("told %v", context.Cause(ctx))
			say("progress %v", worker.Progress(ctx, "late"))
			return "stale", nil
		})
	case "short":
		worker.HandleResult(sup, "story", func(context.Context, struct{}) (string, error) {
			say("started")
			time.Sleep(500 * time.Millisecond)
			say("finished")
			return "fresh", nil
		})
	case "count":
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			return r.noteRun(ctx, rdb)
		}, worker.Concurrency(20))
	default:
		if !r.playFault(sup, say) && !r.playLimit(sup, rdb) && !r.playCron(sup, rdb) && !r.playSteps(sup, rdb, say) {
			return errors.New("no such play")
		}
	}
	say("up")
	return sup.Run(ctx)
}

// noteRun keeps that a handler was called for its job. The name of the call keeps it from counting twice where the Redis client repeats
// the command.
func (r role) noteRun(ctx context.Context, rdb redis.UniversalClient) error {
	return rdb.SAdd(ctx, "ran-"+r.Prefix, jobID(ctx)+" "+uuid.NewString()).Err()
}

// logger is that of a process: its lines go where what it says goes, if a test is to count them.
func (r role) logger() *slog.Logger {
	if r.Play == "idle" {
		return slog.New(slog.NewTextHandler(lineWriter{}, nil))
	}
	return slog.New(slog.DiscardHandler)
}

type lineWriter struct{}

func (lineWriter) Write(b []byte) (int, error) {
	_, err := fmt.Printf("log %s", b)
	return len(b), err
}

func jobID(ctx context.Context) string {
	j, _ := worker.JobFrom(ctx)
	return j.ID.String()
}

// connect returns a client of a server or, given several, of the Cluster whose nodes they are.
func connect(addrs ...string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
}

// service is a running process of the story.
type service struct {
	cmd   *exec.Cmd
	lines chan string
}

func (r role) start(t *testing.T) *service {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	s.cmd.Env = append(os.Environ(), roleVar+"="+string(text))
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() { s.read(out) })
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		read.Wait()
		_ = s.cmd.Wait()
	})
	s.expect(t, "up")
	return s
}

func (s *service) read(out io.Reader) {
	defer close(s.lines)
	for sc := bufio.NewScanner(out); sc.Scan(); {
		select {
		case s.lines <- sc.Text():
		default: // nobody reads that many
		}
	}
}

// expect waits for a line that starts with the given text.
func (s *service) expect(t *testing.T, start string) string {
	t.Helper()
	deadline := time.After(hang)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				t.Fatalf("the process ended before it said %q", start)
			}
			if strings.HasPrefix(line, start) {
				return line
			}
		case <-deadline:
			t.Fatalf("the process did not say %q within %v", start, hang)
		}
	}
}

// rest returns what the process says until it ends.
func (s *service) rest() []string {
	var all []string
	for line := range s.lines {
		all = append(all, line)
	}
	return all
}

func (s *service) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// hang is after how long something that takes seconds at most is held to never come.
const hang = 3 * time.Minute
