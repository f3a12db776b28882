package stint_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// The story of the product, told by real processes on a real Redis: this test binary runs itself as a service.

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

// stage is a Redis with a store and a client on it.
type stage struct {
	role
	rdb    redis.UniversalClient
	st     *store.Store
	client *worker.Client
}

// setup has leases of the default length; a test whose story is that of a lease makes it shorter.
func setup(t *testing.T) *stage {
	t.Helper()
	return setupOn(t, redistest.Start(t).Addr())
}

// setupOn is setup on a given server, or on the nodes of a Cluster.
func setupOn(t *testing.T, addrs ...string) *stage {
	t.Helper()
	rdb := connect(addrs...)
	t.Cleanup(func() { rdb.Close() })
	return onClient(t, rdb, role{Addrs: addrs, Prefix: "story"})
}

func (s *stage) as(play string) role {
	r := s.role
	r.Play = play
	return r
}

func (s *stage) enqueue(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := s.client.Enqueue(t.Context(), "story", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *stage) wait(t *testing.T, id uuid.UUID) store.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	j, err := s.client.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestAJobOfAKilledProcessRunsAgainWithinLeaseAndAQuarter(t *testing.T) {
	s := setup(t)
	s.Lease = time.Second
	victim := s.as("hang").start(t)
	id := s.enqueue(t)
	victim.expect(t, "started")
	heir := s.as("short").start(t)
	victim.signal(t, syscall.SIGKILL)
	killed := time.Now()
	heir.expect(t, "started")
	took := time.Since(killed)
	t.Logf("started again %v after the kill; the bound is %v", took.Round(time.Millisecond), s.Lease*5/4)
	if most := redistest.Size(10*s.Lease*5/4, s.Lease*5/4+s.Lease/10); took > most {
		t.Errorf("that is over %v", most)
	}
	j := s.wait(t, id)
	if j.State != store.Done || j.Attempt != 1 || j.LastError != "" {
		t.Errorf("state %s after attempt %d with error %q; the crash must not have charged an attempt", j.State, j.Attempt, j.LastError)
	}
}

func TestAProcessStoppedPastItsLeaseIsFencedWhenItGoesOn(t *testing.T) {
	s := setup(t)
	s.Lease = time.Second
	sleeper := s.as("stubborn").start(t)
	id := s.enqueue(t)
	sleeper.expect(t, "started")
	sleeper.signal(t, syscall.SIGSTOP)
	heir := s.as("short").start(t)
	heir.expect(t, "finished")
	before := s.wait(t, id)
	if got, err := worker.ResultOf[string](before); err != nil || got != "fresh" {
		t.Fatalf("result %q, %v", got, err)
	}
	sleeper.signal(t, syscall.SIGCONT)
	if told := sleeper.expect(t, "told"); !strings.Contains(told, store.ErrLeaseLost.Error()) {
		t.Errorf("the handler was %s", told)
	}
	if got := sleeper.expect(t, "stale"); !strings.Contains(got, id.String()) {
		t.Errorf("stale write of another job: %s", got)
	}
	sleeper.signal(t, syscall.SIGTERM)
	sleeper.rest()
	after, err := s.st.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if string(after.Result) != string(before.Result) || string(after.Progress) != string(before.Progress) ||
		after.State != store.Done || after.Worker != before.Worker || !after.FinishedAt.Equal(before.FinishedAt) {
		t.Errorf("the late writes changed the job from\n%+v to\n%+v", before, after)
	}
}

func TestSIGTERMDrains(t *testing.T) {
	s := setup(t)
	svc := s.as("short").start(t)
	id := s.enqueue(t)
	svc.expect(t, "started")
	svc.signal(t, syscall.SIGTERM)
	said := svc.rest()
	if err := svc.cmd.Wait(); err != nil {
		t.Errorf("a clean drain must exit with 0: %v", err)
	}
	if strings.Join(said, " ") != "finished" {
		t.Errorf("said %q after SIGTERM, want it to finish what it had begun", said)
	}
	j, err := s.st.Get(t.Context(), id)
	if err != nil || j.State != store.Done || j.Attempt != 1 {
		t.Errorf("the job is %s after attempt %d, %v", j.State, j.Attempt, err)
	}
}

func TestFiveProcessesRunEachOfTenThousandJobsOnce(t *testing.T) {
	s := setup(t)
	const n = 10_000
	reqs := make([]worker.Request, n)
	for i := range reqs {
		reqs[i] = worker.Request{Instance: "story", Payload: struct{}{}}
	}
	for range 5 {
		s.as("count").start(t)
	}
	if _, err := s.client.EnqueueMany(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	s.until(t, "done", func(now store.Stats) bool { return now.Done == n })
	ran := s.ran(t)
	if len(ran) != n {
		t.Errorf("%d jobs of %d ran", len(ran), n)
	}
	for id, times := range ran {
		if times != 1 {
			t.Errorf("job %s ran %d times", id, times)
		}
	}
}

// ran is how often each job's handler was called.
func (s *stage) ran(t *testing.T) map[string]int {
	t.Helper()
	notes, err := s.rdb.SMembers(t.Context(), "ran-"+s.Prefix).Result()
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, note := range notes {
		job, _, _ := strings.Cut(note, " ")
		times[job]++
	}
	return times
}
