package stint_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Limits over processes. What the handlers themselves note, in a list that Redis keeps in order, is what counts.

// playLimit registers the handlers of these stories.
func (r role) playLimit(sup *worker.Supervisor, rdb *redis.Client) bool {
	note := func(ctx context.Context, what string) error {
		return rdb.RPush(ctx, "notes-"+r.Prefix, fmt.Sprintf("%s %d", what, os.Getpid())).Err()
	}
	switch r.Play {
	case "alone":
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			if err := note(ctx, "start"); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			return note(ctx, "end")
		}, worker.GlobalLimit(1), worker.MaxCrashes(100))
		worker.Handle(sup, "other", func(ctx context.Context, _ struct{}) error { return nil })
	case "paced":
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			now, err := rdb.Time(ctx).Result()
			if err != nil {
				return err
			}
			return rdb.RPush(ctx, "notes-"+r.Prefix, now.UnixMilli()).Err()
		}, worker.Rate(100, time.Second))
	default:
		return false
	}
	return true
}

func (s *stage) enqueueMany(t *testing.T, instance string, n int) {
	t.Helper()
	reqs := make([]worker.Request, n)
	for i := range reqs {
		reqs[i] = worker.Request{Instance: instance, Payload: struct{}{}}
	}
	if _, err := s.client.EnqueueMany(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
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
		if err := s.rdb.RPush(t.Context(), "notes-"+s.Prefix, fmt.Sprintf("kill %d", pid)).Err(); err != nil {
			t.Fatal(err)
		}
		all[victim] = s.as("alone").start(t)
	}
	for deadline := time.Now().Add(10 * time.Minute); done("story") < int64(n); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d jobs are done: the limit is stuck", done("story"), n)
		}
	}
	if got := done("other"); got != 100 {
		t.Errorf("%d jobs of the instance beside it are done, want all 100", got)
	}
	running := "" // who runs
	for i, line := range s.notes(t) {
		what, pid, _ := strings.Cut(line, " ")
		switch {
		case what == "start" && running != "":
			t.Fatalf("note %d: process %s starts while %s runs", i, pid, running)
		case what == "start":
			running = pid
		case running == pid: // it has ended, or was killed
			running = ""
		}
	}
}

func TestARateOverThreeProcessesIsKept(t *testing.T) {
	s := setup(t)
	window := time.Duration(redistest.Size(4, 10)) * time.Second
	s.enqueueMany(t, "story", 100*int(window/time.Second)+200)
	for range 3 {
		s.as("paced").start(t)
	}
	want := 100 * int(window/time.Second)
	var first, last int64
	for deadline := time.Now().Add(10 * window); ; time.Sleep(50 * time.Millisecond) {
		notes := s.notes(t)
		if len(notes) > want {
			first, _ = strconv.ParseInt(notes[0], 10, 64)
			last, _ = strconv.ParseInt(notes[want], 10, 64)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d jobs in %v", len(notes), 10*window)
		}
	}
	took := time.Duration(last-first) * time.Millisecond
	t.Logf("%d jobs in %v, want %v: %+.1f %%", want, took, window, 100*(float64(took)/float64(window)-1))
	// Slower it may be where the machine is busy. Faster it never is, but for what a late first handler makes it seem: that
	// matters less the longer it goes on.
	if least := redistest.Size(80, 95); took < window*time.Duration(least)/100 {
		t.Errorf("that is more than %d %% too fast", 100-least)
	}
	if took > 10*window {
		t.Errorf("that is far too slow")
	}
	attempts, err := s.st.List(t.Context(), store.Filter{State: store.Done, Limit: store.MaxCall})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range attempts.Jobs {
		if j.Attempt != 1 {
			t.Errorf("a job took %d attempts; waiting for the rate must charge none", j.Attempt)
		}
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
			if time.Since(start) > time.Minute {
				t.Fatal("nothing is done within a minute")
			}
			time.Sleep(time.Millisecond)
		}
		start = time.Now()
		for s.doneStory(t) < before+n {
			if time.Since(start) > time.Minute {
				t.Fatal("not done within a minute")
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
	if delayed > 10*waiting+time.Second {
		t.Errorf("what was due at once went at a small part of the rate")
	}
}

// doneStory counts the jobs that are done, whatever retention has removed of them: each handler counts its own.
func (s *stage) doneStory(t *testing.T) int64 {
	t.Helper()
	n, err := s.rdb.HLen(t.Context(), "ran-"+s.Prefix).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
