package worker_test

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/worker"
)

func TestStatusFollowsARun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, shared(4, false))
		release := make(chan struct{})
		hold := func(context.Context, none) error { <-release; return nil }
		worker.Handle(r.sup, "a", hold, worker.In("all", 1))
		worker.Handle(r.sup, "b", hold, worker.In("all", 2))
		worker.Handle(r.sup, "c", hold, worker.Concurrency(2))
		want := func(phase worker.Phase, reachable bool, busy ...int) {
			t.Helper()
			synctest.Wait()
			st := r.sup.Status()
			var got []int
			for _, p := range st.Pools {
				got = append(got, p.Busy)
			}
			if st.Phase != phase || st.Reachable != reachable || !slices.Equal(got, busy) {
				t.Errorf("%+v, want %s, reachable %v, busy %v", st, phase, reachable, busy)
			}
		}
		want(worker.Idle, false)
		r.start()
		want(worker.Running, true, 0, 0)
		r.enqueueMany("a", 1)
		r.enqueueMany("b", 2)
		r.enqueueMany("c", 5)
		want(worker.Running, true, 3, 2)
		if p := r.sup.Status().Pools; p[0].Name != "all" || !slices.Equal(p[0].Instances, []string{"a", "b"}) || p[0].Workers != 4 ||
			p[1].Name != "" || !slices.Equal(p[1].Instances, []string{"c"}) || p[1].Workers != 2 {
			t.Errorf("the pools are %+v", p)
		}
		r.stop()
		want(worker.Draining, true, 3, 2)
		close(release)
		if err := <-r.ran; err != nil {
			t.Error(err)
		}
		want(worker.Stopped, false)
		all := r.events.list()
		if first, ok := all[0].(worker.RunStarted); !ok || first.Supervisor != r.sup {
			t.Errorf("the first event is %+v", all[0])
		}
		if last, ok := all[len(all)-1].(worker.RunStopped); !ok || last.Supervisor != r.sup {
			t.Errorf("the last event is %+v", all[len(all)-1])
		}
	})
}

func TestStatusTellsThatRedisIsOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		r.fault.Unplug()
		r.start()
		settle(time.Second)
		if r.sup.Status().Reachable {
			t.Error("reachable before it ever was")
		}
		r.fault.Plug()
		settle(10 * time.Second)
		if !r.sup.Status().Reachable {
			t.Error("not reachable though it is back")
		}
		r.fault.Unplug()
		settle(10 * time.Second)
		if r.sup.Status().Reachable {
			t.Error("reachable though it is gone")
		}
		r.fault.Plug()
		settle(10 * time.Second)
		if st := r.sup.Status(); !st.Reachable || st.Behind > 5*time.Second {
			t.Errorf("%+v, want a supervisor that works again", st)
		}
		r.stopWell()
	})
}

func TestStatusNamesALoopThatDoesNotTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		r.start()
		settle(time.Minute)
		if st := r.sup.Status(); !st.Reachable || st.Behind > 5*time.Second {
			t.Errorf("%+v, want one that turns", st)
		}
		mute := make(chan struct{})
		r.intercept(redistest.Silent(mute))
		settle(time.Minute)
		if st := r.sup.Status(); st.Reachable || st.Behind < 50*time.Second || st.Behind > time.Minute || st.Loop == "" {
			t.Errorf("%+v, want one that has not turned for a minute", st)
		}
		close(mute)
		settle(10 * time.Second)
		if st := r.sup.Status(); !st.Reachable {
			t.Errorf("%+v, want one that turns again", st)
		}
		r.stopWell()
	})
}

func TestStatusWatchesEachLoop(t *testing.T) {
	for in, name := range map[string]string{
		"(*scheduler).pass": "cron of x", "(*feed).sweep": "sweep of x", "(*feed).reapOnce": "reap of x", "(*process).announce": "announce",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error { return worker.Sleep(ctx, "nap", 90*time.Second) })
				r.sup.Schedule(each(time.Hour))
				r.start()
				r.enqueue("x", none{}) // something for the sweeper
				settle(time.Minute)
				release := make(chan struct{})
				r.intercept(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if strings.Contains(string(debug.Stack()), in) {
						<-release
					}
					return next(ctx, cmd)
				})
				settle(7 * time.Minute)
				if st := r.sup.Status(); st.Loop != name || st.Behind < 5*time.Minute {
					t.Errorf("%+v, want that the loop has not turned for minutes", st)
				}
				close(release)
				settle(10 * time.Second)
				if st := r.sup.Status(); !st.Reachable || st.Behind > 5*time.Second {
					t.Errorf("%+v, want all loops to turn again", st)
				}
				r.stopWell()
			})
		})
	}
}

func TestEventsTellForHowLongAJobHasWaitedAndLived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(context.Context, none) error { time.Sleep(3 * time.Second); return nil }, worker.Concurrency(1))
		r.start()
		r.enqueue("x", nil)
		r.enqueue("x", nil, after(time.Second)) // due while the worker is busy
		settle(10 * time.Second)
		r.stopWell()
		started, finished := of[worker.JobStarted](r.events), of[worker.JobFinished](r.events)
		if len(started) != 2 || len(finished) != 2 {
			t.Fatalf("%d jobs were started, %d finished", len(started), len(finished))
		}
		if started[0].Waited != 0 || started[1].Waited != 2*time.Second {
			t.Errorf("they waited for %v and %v, want 0 and 2 s", started[0].Waited, started[1].Waited)
		}
		if finished[0].Age != 3*time.Second || finished[1].Age != 6*time.Second {
			t.Errorf("they lived for %v and %v, want 3 and 6 s", finished[0].Age, finished[1].Age)
		}
	})
}

func TestHeartbeatsTellHowLateTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{Lease: 20 * time.Second})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			select {
			case <-time.After(33 * time.Second):
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		r.start()
		settle(time.Second)
		r.enqueue("x", nil)
		settle(11 * time.Second)
		r.fault.FailNth(1, isHeartbeat)
		settle(10 * time.Second)
		r.stop()
		<-r.ran
		var well, failed int
		var latest time.Duration
		for _, e := range of[worker.LeasesExtended](r.events) {
			if e.Instance != "x" || e.Leases != 1 {
				t.Errorf("%+v, want one lease of x", e)
			}
			if e.Err != nil {
				failed++
				continue
			}
			well++
			latest = max(latest, e.Late)
		}
		if failed != 1 || well < 3 || latest < 40*time.Millisecond || latest > 200*time.Millisecond {
			t.Errorf("%d heartbeats went well, %d failed; the latest was late by %v, want the pause after a failure", well, failed, latest)
		}
	})
}

// isHeartbeat matches a heartbeat whose first lease brings no progress.
func isHeartbeat(words []string) bool { return words[0] == "eval" && slices.Contains(words, "-") }
