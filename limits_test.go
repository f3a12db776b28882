package stint_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Limits over processes. What counts is what Redis notes: the list of what the handlers say, in its order, and when it gave a job away.

// playLimit registers the handlers of these stories.
func (r role) playLimit(sup *worker.Supervisor, rdb redis.UniversalClient) bool {
	switch r.Play {
	case "alone":
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			run := uuid.NewString()
			note := func(what string) error {
				return rdb.RPush(ctx, "notes-"+r.Prefix, fmt.Sprintf("%s %s %s %d", what, run, jobID(ctx), os.Getpid())).Err()
			}
			if err := note("start"); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			return note("end")
		}, worker.GlobalLimit(1), worker.MaxCrashes(100))
		worker.Handle(sup, "other", func(ctx context.Context, _ struct{}) error { return nil })
	case "paced":
		worker.Handle(sup, "story", func(context.Context, struct{}) error { return nil }, worker.Rate(100, time.Second))
	default:
		return false
	}
	return true
}

func (s *stage) notes(t *testing.T) []string {
	t.Helper()
	all, err := s.rdb.LRange(t.Context(), "notes-"+s.Prefix, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAGlobalLimitOfOneOverFiveProcessesHoldsThroughKills(t *testing.T) {
	s := setup(t)
	s.Lease = time.Second
	n, kills := redistest.Size(60, 600), redistest.Size(4, 40)
	var all []*service
	for range 5 {
		all = append(all, s.as("alone").start(t))
	}
	s.enqueueMany(t, "story", n)
	s.enqueueMany(t, "other", 100)
	done := func(instance string) int64 {
		stats, err := s.st.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range stats {
			if one.Instance == instance {
				return one.Done
			}
		}
		return 0
	}
	for k := range kills {
		time.Sleep(time.Duration(100+rand.N(400)) * time.Millisecond)
		victim := rand.N(len(all))
		if notes := s.notes(t); k%2 == 0 && len(notes) > 0 { // the one that ran last, which may well hold the limit
			for i, one := range all {
				if strings.HasSuffix(notes[len(notes)-1], fmt.Sprintf(" %d", one.cmd.Process.Pid)) {
					victim = i
				}
			}
		}
		pid := all[victim].cmd.Process.Pid
		all[victim].signal(t, syscall.SIGKILL)
		all[victim].rest() // until it is gone
		if err := s.rdb.RPush(t.Context(), "notes-"+s.Prefix, fmt.Sprintf("kill - - %d", pid)).Err(); err != nil {
			t.Fatal(err)
		}
		all[victim] = s.as("alone").start(t)
	}
	for deadline := time.Now().Add(hang); done("story") < int64(n) || done("other") < 100; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d jobs are done: the limit is stuck; and %d of 100 of the instance beside it", done("story"), n, done("other"))
		}
	}
	oneAtATime(t, s.notes(t))
	for _, j := range s.doneJobs(t) {
		if j.Attempt != 1 {
			t.Errorf("a job took %d attempts; waiting for the limit, or a crash, must charge none", j.Attempt)
		}
	}
}

// doneJobs are all that are done and kept.
func (s *stage) doneJobs(t *testing.T) (all []store.Job) {
	t.Helper()
	for f := (store.Filter{State: store.Done, Limit: store.MaxCall}); ; {
		page, err := s.st.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Jobs...)
		if f.Cursor = page.Next; f.Cursor == "" {
			return all
		}
	}
}

// oneAtATime fails the test where a run starts while another one holds its lease. A run has it until its end, or until its process is
// killed, or, where the process was kept from running for longer than that, until the job is given to another run.
func oneAtATime(t *testing.T, lines []string) {
	t.Helper()
	type note struct{ what, run, job, pid string }
	var notes []note
	seen := map[note]bool{}
	last := map[string]int{} // where a job starts for the last time
	for _, line := range lines {
		var n note
		if _, err := fmt.Sscan(line, &n.what, &n.run, &n.job, &n.pid); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if seen[n] {
			continue // repeated by the Redis client
		}
		seen[n] = true
		if n.what == "start" {
			last[n.job] = len(notes)
		}
		notes = append(notes, n)
	}
	var running *note
	for i, n := range notes {
		switch {
		case n.what == "start":
			if running != nil && last[running.job] < i {
				t.Fatalf("note %d: %+v starts while %+v runs", i, n, *running)
			}
			running = &notes[i]
		case running != nil && (n.run == running.run || n.what == "kill" && n.pid == running.pid):
			running = nil
		}
	}
}

func TestARateOverThreeProcessesIsKept(t *testing.T) {
	s := setup(t)
	window := time.Duration(redistest.Size(4, 10)) * time.Second
	n := 100*int(window/time.Second) + 1
	s.enqueueMany(t, "story", n)
	for range 3 {
		s.as("paced").start(t)
	}
	s.until(t, "done", func(now store.Stats) bool { return now.Done == int64(n) })
	var claimed []time.Time // by Redis' clock
	for _, j := range s.doneJobs(t) {
		claimed = append(claimed, j.StartedAt)
		if j.Attempt != 1 {
			t.Errorf("a job took %d attempts; waiting for the rate must charge none", j.Attempt)
		}
	}
	if len(claimed) != n {
		t.Fatalf("%d jobs are listed, want %d", len(claimed), n)
	}
	slices.SortFunc(claimed, time.Time.Compare)
	took := claimed[n-1].Sub(claimed[0])
	t.Logf("%d jobs in %v, want %v: %+.1f %%", n-1, took, window, 100*(float64(took)/float64(window)-1))
	// Slower it may be where the machine is busy. Faster it never is.
	if took < window*95/100 {
		t.Errorf("that is more than 5 %% too fast")
	}
	if most := redistest.Size(10*window, window*105/100); took > most {
		t.Errorf("that is too slow: want %v at most", most)
	}
}

func TestTenThousandDueAtOnceGoAtFullRate(t *testing.T) {
	s := setup(t)
	const n = 10_000
	s.as("count").start(t)
	run := func(begin func(), opts ...worker.EnqueueOption) time.Duration {
		reqs := make([]worker.Request, n)
		for i := range reqs {
			reqs[i] = worker.Request{Instance: "story", Payload: struct{}{}, Options: opts}
		}
		before := s.doneStory(t)
		if _, err := s.client.EnqueueMany(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		begin()
		start := time.Now()
		for s.doneStory(t) == before { // until the first is done
			if time.Since(start) > hang {
				t.Fatalf("nothing is done within %v", hang)
			}
			time.Sleep(time.Millisecond)
		}
		start = time.Now()
		for s.doneStory(t) < before+n {
			if time.Since(start) > hang {
				t.Fatalf("not done within %v", hang)
			}
			time.Sleep(time.Millisecond)
		}
		return time.Since(start)
	}
	due := time.Now().Add(3 * time.Second) // all are accepted by then
	delayed := run(func() {}, worker.At(due))
	if err := s.st.Pause(t.Context(), "story"); err != nil {
		t.Fatal(err)
	}
	waiting := run(func() {
		if err := s.st.Resume(t.Context(), "story"); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d jobs that were due at once took %v, %d that were not delayed %v", n, delayed, n, waiting)
	if delayed > redistest.Size[time.Duration](10, 2)*waiting+time.Second {
		t.Errorf("what was due at once went at a small part of the rate")
	}
}

// doneStory counts the jobs that are done, whatever retention has removed of them: each handler counts its own.
func (s *stage) doneStory(t *testing.T) int64 {
	t.Helper()
	n, err := s.rdb.SCard(t.Context(), "ran-"+s.Prefix).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
