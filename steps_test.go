package stint_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Steps, told by real processes that are killed and stopped.

// storySteps is how many steps the job of the story has before and after it waits for its child.
const storySteps = 5

// storyChild is where its child is: at another node of a Cluster.
const storyChild = "part"

// onServerAndCluster plays a story twice, at the same time, since most of it is waiting for a lease.
func onServerAndCluster(t *testing.T, play func(t *testing.T, s *stage)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		play(t, setup(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3)
		var addrs []string
		for _, node := range cluster.Nodes {
			addrs = append(addrs, node.Addr())
		}
		if cluster.Owner(cluster.Slot("{story}")) == cluster.Owner(cluster.Slot("{"+storyChild+"}")) {
			t.Fatal("the job and its child are at the same node")
		}
		play(t, setupOn(t, addrs...))
	})
}

// playSteps registers the handlers of the plays about steps; false if this is none.
func (r role) playSteps(sup *worker.Supervisor, rdb redis.UniversalClient, say func(string, ...any)) bool {
	count := func(ctx context.Context, job, step string) (int64, error) {
		return rdb.HIncrBy(ctx, "ran-"+r.Prefix, job+" "+step, 1).Result()
	}
	switch r.Play {
	case "steps": // each step counts how often it runs, and keeps that number
		worker.HandleResult(sup, storyChild, func(ctx context.Context, name string) (int64, error) { return count(ctx, jobID(ctx), name) })
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			step := func(i int) error {
				name := fmt.Sprint("step ", i)
				n, err := worker.Step(ctx, name, func(ctx context.Context) (int64, error) { return count(ctx, jobID(ctx), name) })
				if err == nil {
					err = rdb.SAdd(ctx, "seen-"+r.Prefix, fmt.Sprint(jobID(ctx), " ", name, " ", n)).Err()
				}
				return err
			}
			for i := range storySteps {
				if err := step(i); err != nil {
					return err
				}
			}
			f, err := worker.Async[int64](ctx, "child", storyChild, "child")
			if err != nil {
				return err
			}
			if _, err := f.Wait(ctx); err != nil {
				return err
			}
			if err := worker.Sleep(ctx, "nap", 50*time.Millisecond); err != nil {
				return err
			}
			for i := range storySteps {
				if err := step(storySteps + i); err != nil {
					return err
				}
			}
			return nil
		}, worker.MaxCrashes(1000))
	case "slow step": // stopped in the middle of its step
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			got, err := worker.Step(ctx, "charge", func(context.Context) (string, error) {
				say("started")
				for start := time.Now(); time.Since(start) < 500*time.Millisecond; {
					time.Sleep(10 * time.Millisecond)
				}
				return "slow", nil
			})
			say("got %q, %v; its context ended with: %v", got, err, context.Cause(ctx))
			return err
		})
	case "quick step":
		worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
			_, err := worker.Step(ctx, "charge", func(context.Context) (string, error) { return "quick", nil })
			say("committed")
			return err
		})
	default:
		return false
	}
	return true
}

func TestWheneverAProcessIsKilledACommittedStepNeverRunsAgainAndKeepsItsFirstValue(t *testing.T) {
	onServerAndCluster(t, func(t *testing.T, s *stage) {
		kills := redistest.Size(40, 200)
		if len(s.Addrs) > 1 {
			kills = redistest.Size(15, 200)
		}
		ids := map[string]uuid.UUID{}
		for range kills {
			victim := s.as("steps").start(t)
			for range 3 {
				id := s.enqueue(t)
				ids[id.String()] = id
			}
			time.Sleep(rand.N(30 * time.Millisecond)) // the moment is what is drawn here
			victim.signal(t, syscall.SIGKILL)
		}
		s.as("steps").start(t) // one that stays
		s.until(t, "over", func(now store.Stats) bool { return now.Todo+now.Doing+now.Parked+now.Scheduled == 0 })
		twice := s.wantStepsOnce(t, ids)
		t.Logf("%d kills, %d jobs: %d steps were cut between effect and commit", kills, len(ids), twice)
	})
}

// wantStepsOnce fails the test unless each job of the story is done, and each of its steps ran until it was committed and not again. It
// returns how many ran more than once for that.
func (s *stage) wantStepsOnce(t *testing.T, ids map[string]uuid.UUID) (twice int) {
	t.Helper()
	ran, err := s.rdb.HGetAll(t.Context(), "ran-"+s.Prefix).Result()
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.rdb.SCard(t.Context(), "seen-"+s.Prefix).Result()
	if err != nil || seen != int64(2*storySteps*len(ids)) {
		t.Errorf("%d values were seen of %d steps, %v: a step has had two", seen, 2*storySteps*len(ids), err)
	}
	for job, id := range ids {
		if j, err := s.st.Get(t.Context(), id); err != nil || j.State != store.Done {
			t.Errorf("job %s is %s (%s), %v", id, j.State, j.LastError, err)
		}
		for i := range 2 * storySteps {
			name := fmt.Sprint("step ", i)
			kept, err := s.st.Step(t.Context(), id, name)
			if err != nil {
				t.Fatal(err)
			}
			if n := ran[job+" "+name]; n != string(kept.Result) {
				t.Errorf("%s of %s ran %s times, and keeps the result of run %s", name, job, n, kept.Result)
			} else if n != "1" {
				twice++
			}
		}
	}
	return twice
}

func TestTheStepOfAProcessStoppedPastItsLeaseIsRefused(t *testing.T) {
	onServerAndCluster(t, func(t *testing.T, s *stage) {
		sleeper := s.as("slow step").start(t)
		id := s.enqueue(t)
		sleeper.expect(t, "started")
		sleeper.signal(t, syscall.SIGSTOP)
		heir := s.as("quick step").start(t)
		heir.expect(t, "committed")
		s.wait(t, id)
		sleeper.signal(t, syscall.SIGCONT)
		if got, want := sleeper.expect(t, "got"), `got "", lease lost; its context ended with: lease lost`; got != want {
			t.Errorf("the first holder %s; want %s", got, want)
		}
		if kept, err := s.st.Step(t.Context(), id, "charge"); err != nil || string(kept.Result) != `"quick"` {
			t.Errorf("it keeps %s, %v", kept.Result, err)
		}
	})
}
