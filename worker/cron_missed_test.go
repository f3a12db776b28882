package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestAWeeklyEntryFiresEveryWeekThroughDailyRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Hour)
		c.Spec = "0 12 * * wed"
		r, f := cronRig(t, worker.Config{}, c)
		for day := range 30 {
			p := r
			if day > 0 {
				p = r.again(f, worker.Config{}, c)
			}
			p.start()
			settle(2 * time.Hour) // never there at noon
			p.stopWell()
			time.Sleep(22 * time.Hour)
		}
		if len(f.ticks) != 4 {
			t.Fatalf("%d ticks ran in 30 days, want 4: %+v", len(f.ticks), f.ticks)
		}
		for i, tick := range f.ticks {
			if i > 0 && tick.At.Sub(f.ticks[i-1].At) != 7*24*time.Hour || tick.At.Weekday() != time.Wednesday || tick.Late < 10*time.Hour {
				t.Errorf("tick %d is %+v", i, tick)
			}
		}
	})
}

func TestTwoIdleWeeksAreMadeUpForAsThePolicySays(t *testing.T) {
	for name, tc := range map[string]struct{ catchUp, want int }{
		"none": {worker.NoCatchUp, 0}, "the latest": {0, 1}, "the latest 7": {7, 7},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := each(5 * time.Second)
				c.CatchUp = tc.catchUp
				r, f := cronRig(t, worker.Config{}, c)
				r.start()
				settle(11 * time.Second)
				r.stopWell()
				ran, stopped := len(f.ticks), time.Now()
				time.Sleep(14*24*time.Hour + 3*time.Second - 11*time.Second)
				p := r.again(f, worker.Config{}, c)
				begun := time.Now()
				p.start()
				settle(time.Second)
				if got := len(f.ticks) - ran; got != tc.want {
					t.Fatalf("%d jobs after two weeks, want %d", got, tc.want)
				}
				for i, tick := range f.ticks[ran:] {
					if want := begun.Truncate(5 * time.Second).Add(-time.Duration(tc.want-1-i) * 5 * time.Second); !tick.At.Equal(want) {
						t.Errorf("job %d is of %v, want %v", i, tick.At, want)
					}
				}
				// Each tick in between has a record, its own or one with others, which says why.
				for _, tick := range []time.Time{stopped.Add(5 * time.Second), stopped.Add(24 * time.Hour), begun.Add(-20 * time.Hour), begun.Add(-time.Minute)} {
					d, err := r.st.FindDispatch(t.Context(), "e", tick.Truncate(5*time.Second))
					if err != nil || d.Status != store.StatusSkipped || !strings.Contains(d.Reason, "missed") {
						t.Errorf("%v: %+v, %v", tick, d, err)
					}
				}
				if n := len(r.dispatches(store.DispatchFilter{})); n > 2+100+10 {
					t.Errorf("%d records", n)
				}
				if said := of[worker.TickDispatched](p.events); len(said) < 100 || !said[0].First.Before(said[0].At) || said[0].Status != store.StatusSkipped {
					t.Errorf("%d events of ticks that were skipped", len(said))
				}
				settle(5 * time.Second) // and on it goes
				if got := len(f.ticks) - ran; got != tc.want+1 {
					t.Errorf("%d jobs a tick later, want %d", got, tc.want+1)
				}
				p.stopWell()
			})
		})
	}
}

func TestTicksOutsideTheWindowAreNotMadeUpFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Hour)
		c.CatchUp, c.Window = 100, 150*time.Minute
		r, f := cronRig(t, worker.Config{}, c)
		r.start()
		settle(time.Second)
		r.stopWell()
		time.Sleep(10*time.Hour + time.Minute)
		p := r.again(f, worker.Config{}, c)
		p.start()
		settle(time.Second)
		if len(f.ticks) != 3 || f.ticks[2].Late > 2*time.Minute || f.ticks[0].Late > 122*time.Minute {
			t.Errorf("%+v, want the last three", f.ticks)
		}
		p.stopWell()
	})
}

func TestATickThatFallsIntoAnOutageIsDispatchedLateOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := cronRig(t, worker.Config{}, each(time.Hour))
		r.start()
		settle(59 * time.Minute)
		r.fault.Unplug()
		settle(5 * time.Minute)
		if len(f.ticks) != 0 {
			t.Fatal("it ran without a server")
		}
		r.fault.Plug()
		settle(20 * time.Second)
		if len(f.ticks) != 1 || f.ticks[0].Late < 4*time.Minute || f.ticks[0].Late > 5*time.Minute {
			t.Fatalf("%+v, want one, 4 minutes late", f.ticks)
		}
		settle(time.Hour)
		if len(f.ticks) != 2 || f.ticks[1].Late > time.Second {
			t.Errorf("%+v", f.ticks)
		}
		r.stopWell()
	})
}

// Each command of an entry's life fails once: the registration, the reading, the dispatch.
func TestWhateverCommandOfCronIsLostEachTickRunsOnce(t *testing.T) {
	modes := map[string]func(*redistest.Fault, int, ...redistest.Match) <-chan struct{}{
		"refused": (*redistest.Fault).FailNth, "the reply lost": (*redistest.Fault).LoseReplyNth,
		"cut": (*redistest.Fault).CutNth, "the reply cut": (*redistest.Fault).CutReplyNth,
	}
	for mode, arm := range modes {
		for _, tc := range []struct {
			after time.Duration
			nth   int
			key   string
		}{{0, 1, "cron_ticks"}, {0, 2, "cron_ticks"}, {0, 3, "cron_ticks"}, {0, 4, "cron_ticks"}, {0, 1, ":entries"}, {0, 2, ":entries"}, {0, 3, ":entries"},
			{time.Hour - time.Second, 1, "cron_ticks"}, {time.Hour - time.Second, 2, "cron_ticks"}} {
			bubble(t, func(t *testing.T) {
				r, f := cronRig(t, worker.Config{}, each(time.Hour))
				var struck <-chan struct{}
				strike := func() { struck = arm(r.fault, tc.nth, redistest.Mentions(tc.key)) }
				if tc.after == 0 {
					strike()
				}
				r.start()
				if tc.after > 0 {
					settle(tc.after)
					strike()
				}
				settle(3*time.Hour + 30*time.Minute - tc.after)
				if !came(struck) {
					t.Errorf("%s: command %d after %v did not come", mode, tc.nth, tc.after)
				}
				if len(f.ticks) != 3 || len(r.dispatches(store.DispatchFilter{})) != 3 {
					t.Errorf("%s: command %d after %v: %+v", mode, tc.nth, tc.after, f.ticks)
				}
				for i := 1; i < len(f.ticks); i++ {
					if f.ticks[i].At.Sub(f.ticks[i-1].At) != time.Hour {
						t.Errorf("%s: %+v", mode, f.ticks)
					}
				}
				r.stopWell()
			})
		}
	}
}
