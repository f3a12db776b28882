package stint_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// What becomes of jobs whose processes are killed, stopped for a while, told to end, or many.

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
	for range 5 {
		s.as("count").start(t)
	}
	s.enqueueMany(t, "story", n)
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
