package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same on a machine without zone data

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// each is an entry that fires every so often.
func each(every time.Duration) worker.Cron {
	return worker.Cron{Key: "e", Spec: "@every " + every.String(), Instance: "x", Payload: none{}}
}

// fired returns the ticks whose jobs have run, by what the handler saw.
type fired struct {
	ticks []worker.Tick
	hand  int
}

func (f *fired) handle(ctx context.Context, _ none) error {
	if t, ok := worker.TickFrom(ctx); ok {
		f.ticks = append(f.ticks, t)
	} else {
		f.hand++
	}
	return nil
}

// cronRig is a rig with a handler that notes ticks, and these entries.
func cronRig(t *testing.T, cfg worker.Config, entries ...worker.Cron) (*rig, *fired) {
	r, f := newRig(t, cfg), &fired{}
	r.st.Runtime().SetSole() // days of fake time in seconds
	worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
	r.sup.Schedule(entries...)
	return r, f
}

// again is another process on the rig's server, with its own entries, and notes what runs in the same place.
func (r *rig) again(f *fired, cfg worker.Config, entries ...worker.Cron) *rig {
	other := &rig{t: r.t, st: r.st, fault: r.fault}
	other.listen(cfg)
	worker.Handle(other.sup, "x", f.handle, worker.Concurrency(1))
	other.sup.Schedule(entries...)
	return other
}

func (r *rig) dispatches(f store.DispatchFilter) []store.Dispatch {
	r.t.Helper()
	f.Limit = store.MaxCall
	page, err := r.st.Dispatches(r.t.(*testing.T).Context(), f)
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(page.Dispatches)
	return page.Dispatches
}

func TestEachTickRunsOnceAtItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(10 * time.Minute)
		c.Spec, c.Zone = "*/10 * * * *", "Asia/Kathmandu"
		r, f := cronRig(t, worker.Config{Node: "here"}, c)
		first := time.Now().Truncate(10 * time.Minute).Add(5 * time.Minute) // on the wall it is 5:45 later
		if !first.After(time.Now()) {
			first = first.Add(10 * time.Minute)
		}
		r.start()
		settle(24*time.Hour + time.Second)
		if len(f.ticks) != 144 {
			t.Fatalf("%d ticks ran in a day, want 144", len(f.ticks))
		}
		for i, tick := range f.ticks {
			want := first.Add(time.Duration(i) * 10 * time.Minute)
			previous := time.Time{}
			if i > 0 {
				previous = f.ticks[i-1].At
			}
			if !tick.At.Equal(want) || !tick.Previous.Equal(previous) || tick.Late < 0 || tick.Late > 50*time.Millisecond || tick.Entry != "e" {
				t.Fatalf("tick %d is %+v, want %v after %v", i, tick, want, previous)
			}
			if tick.At.Location().String() != "Asia/Kathmandu" || tick.At.Minute()%10 != 0 {
				t.Fatalf("tick %d is at %v", i, tick.At)
			}
		}
		if said := of[worker.TickDispatched](r.events); len(said) != 144 || !said[0].At.Equal(f.ticks[0].At) || said[0].Entry != "e" || said[0].Instance != "x" {
			t.Errorf("%d events, the first %+v", len(said), said[0])
		}
		for _, d := range r.dispatches(store.DispatchFilter{}) {
			if d.Node != "here" || d.Status != store.StatusDispatched || d.DispatchedAt.Before(d.FireAt) {
				t.Errorf("%+v", d)
			}
		}
		r.stopWell()
	})
}

func TestFiveProcessesWithSkewedTimersFireEachTickOnceAndNeverEarly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var all []*rig
		c := each(time.Minute)
		r, f := cronRig(t, worker.Config{Node: "n0"}, c)
		all = append(all, r)
		for i := 1; i < 5; i++ {
			skew := time.Duration(i-3) * 150 * time.Second // from 5 minutes behind to 2.5 before
			if i == 4 {
				skew = 5 * time.Minute
			}
			now := func() time.Time { return time.Now().Add(skew) }
			all = append(all, r.again(f, worker.Config{Node: fmt.Sprint("n", i), Now: now}, c))
		}
		for _, r := range all {
			r.start()
		}
		n := redistest.Size(200, 1000)
		settle(time.Duration(n)*time.Minute + time.Second)
		slices.SortFunc(f.ticks, func(a, b worker.Tick) int { return a.At.Compare(b.At) })
		if len(f.ticks) != n {
			t.Fatalf("%d ticks ran, want %d", len(f.ticks), n)
		}
		nodes := map[string]int{}
		for i, d := range r.dispatches(store.DispatchFilter{}) {
			if d.DispatchedAt.Before(d.FireAt) || d.DispatchedAt.Sub(d.FireAt) > time.Second || !d.FireAt.Equal(f.ticks[i].At) {
				t.Fatalf("%+v", d)
			}
			nodes[d.Node]++
		}
		if nodes[""] > 0 || len(nodes) == 0 {
			t.Errorf("by node: %v", nodes)
		}
		for _, r := range all {
			r.stopWell()
		}
	})
}

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
				select {
				case <-struck:
				default:
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

func TestADeadOrCancelledJobDoesNotSilenceTheNextTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.st.Runtime().SetSole()
		ran := 0
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			ran++
			return errors.New("no good")
		})
		c := each(time.Hour)
		c.Options = []worker.EnqueueOption{worker.MaxAttempts(1), worker.Priority(7)}
		r.sup.Schedule(c)
		r.start()
		settle(time.Hour + time.Second)
		must(t, r.st.Pause(t.Context(), "x"))
		settle(time.Hour)
		waiting := r.dispatches(store.DispatchFilter{})[1].Job
		must(t, r.st.Cancel(t.Context(), waiting))
		must(t, r.st.Resume(t.Context(), "x"))
		settle(time.Hour)
		if s := r.stats("x"); ran != 2 || s.Dead != 2 || s.Cancelled != 1 {
			t.Errorf("%d ran, %+v", ran, s)
		}
		if j := r.job(waiting); j.Priority != 7 || j.MaxAttempts != 1 {
			t.Errorf("%+v", j)
		}
		r.stopWell()
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSkipOverlapSkipsWhileTheLastOneRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.st.Runtime().SetSole()
		var ran []time.Time
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			tick, _ := worker.TickFrom(ctx)
			ran = append(ran, tick.At)
			time.Sleep(25 * time.Minute)
			return nil
		})
		c := each(10 * time.Minute)
		c.SkipOverlap = true
		r.sup.Schedule(c)
		r.start()
		settle(2*time.Hour + 6*time.Minute)
		if len(ran) != 4 || ran[1].Sub(ran[0]) != 30*time.Minute {
			t.Errorf("ran %v, want each third", ran)
		}
		var skipped []worker.TickDispatched
		for _, e := range of[worker.TickDispatched](r.events) {
			if e.Status == store.StatusSkipped {
				skipped = append(skipped, e)
			}
		}
		if len(skipped) != 8 || skipped[0].Reason != store.ReasonOverlap {
			t.Errorf("skipped %+v", skipped)
		}
		r.stopWell()
	})
}

func TestJitterHoldsTheJobBackAndNotTheTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(5 * time.Minute)
		c.Jitter = 2 * time.Minute
		r, f := newRig(t, worker.Config{}), &fired{}
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
		r.sup.Schedule(c)
		other := r.again(f, worker.Config{}, c)
		r.start()
		other.start()
		settle(34 * time.Minute)
		held := map[time.Duration]bool{}
		for _, d := range r.dispatches(store.DispatchFilter{}) {
			j := r.job(d.Job)
			at := j.StartedAt
			if j.State == store.Scheduled {
				at = j.RunAt
			}
			wait := at.Sub(d.FireAt)
			if wait < 0 || wait > 2*time.Minute+time.Second || d.DispatchedAt.Sub(d.FireAt) > time.Second {
				t.Errorf("%v: held for %v", d.FireAt, wait)
			}
			held[wait.Round(time.Second)] = true
		}
		for _, e := range append(of[worker.JobStarted](r.events), of[worker.JobStarted](other.events)...) {
			if e.Waited > time.Second {
				t.Errorf("a job that was held back counts as one that has waited for %v", e.Waited)
			}
		}
		if len(held) < 4 {
			t.Errorf("%d different delays in 6 ticks: %v", len(held), held)
		}
		r.stopWell()
		other.stopWell()
	})
}

func TestTheNewestRegistrationWinsInEveryProcessAndTheLossIsAnEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		old := each(time.Hour)
		r, f := cronRig(t, worker.Config{}, old)
		r.start()
		settle(90 * time.Minute)
		newer := old
		newer.Spec, newer.Zone = "*/10 * * * *", "Asia/Tokyo"
		p := r.again(f, worker.Config{}, newer)
		p.start()
		settle(time.Second)
		p.stopWell() // the old one alone fires by the new spec
		settle(3 * time.Hour)
		lost := of[worker.EntryReplaced](r.events)
		if len(lost) != 1 || lost[0].Spec != "*/10 * * * *" || lost[0].Zone != "Asia/Tokyo" || lost[0].Entry != "e" {
			t.Errorf("%+v, want one event of the loss", lost)
		}
		if n := len(f.ticks); n < 1+15 || f.ticks[n-1].At.Location().String() != "Asia/Tokyo" {
			t.Errorf("%d ticks ran, the last %+v; want one each 10 minutes", n, f.ticks[n-1])
		}
		r.stopWell()
	})
}

func TestAnotherInstanceIsRefusedUntilTheEntryIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(10 * time.Minute)
		r, f := cronRig(t, worker.Config{}, c)
		r.start()
		settle(time.Minute)
		c.Instance = "y"
		p := &rig{t: t, st: r.st, fault: r.fault}
		p.listen(worker.Config{})
		moved := 0
		worker.Handle(p.sup, "y", func(context.Context, none) error { moved++; return nil })
		p.sup.Schedule(c)
		p.start()
		settle(time.Hour)
		refused := of[worker.EntryRefused](p.events)
		if len(refused) != 1 || !strings.Contains(refused[0].Err.Error(), "instance x") || moved != 0 || len(f.ticks) != 6 {
			t.Errorf("%+v; %d moved, %d ran", refused, moved, len(f.ticks))
		}
		must(t, r.st.RemoveEntry(t.Context(), "e"))
		settle(time.Hour)
		if moved < 4 || len(f.ticks) != 6 {
			t.Errorf("once removed %d moved, %d ran where it was", moved, len(f.ticks))
		}
		r.stopWell()
		p.stopWell()
	})
}

func TestARemovedEntryStopsAndADisabledOneStaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		a, b := each(10*time.Minute), each(10*time.Minute)
		a.Key, b.Key = "a", "b"
		r, f := cronRig(t, worker.Config{}, a, b)
		r.start()
		settle(11 * time.Minute)
		must(t, r.st.RemoveEntry(ctx, "a"))
		must(t, r.st.EnableEntry(ctx, "b", false))
		settle(time.Hour)
		if len(f.ticks) != 2 {
			t.Errorf("%d ticks ran, want those before", len(f.ticks))
		}
		r.stopWell()
		p := r.again(f, worker.Config{}, b) // has not heard of it, and does not declare a
		p.start()
		settle(time.Hour)
		if len(f.ticks) != 2 {
			t.Errorf("after a restart %d ticks ran", len(f.ticks))
		}
		must(t, r.st.EnableEntry(ctx, "b", true))
		settle(11 * time.Minute)
		if n := len(f.ticks); n != 3 || f.ticks[2].Entry != "b" || f.ticks[2].Late > time.Second {
			t.Errorf("enabled again: %+v", f.ticks)
		}
		p.stopWell()
	})
}

func TestAnEntryThatNobodyDeclaresKeepsItsHistoryAndDoesNotFire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := each(10*time.Minute), each(10*time.Minute)
		b.Key = "other"
		r, f := cronRig(t, worker.Config{}, a)
		r.start()
		settle(11 * time.Minute)
		r.stopWell()
		p := r.again(f, worker.Config{}, b)
		p.start()
		settle(time.Hour)
		if n := len(r.dispatches(store.DispatchFilter{Entry: "e"})); n != 1 {
			t.Errorf("%d records of it, want the one", n)
		}
		p.stopWell()
	})
}

func TestWhatRedisHasLostIsRegisteredAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := cronRig(t, worker.Config{}, each(10*time.Minute))
		r.start()
		settle(11 * time.Minute)
		keys, err := r.st.Runtime().Client().Keys(t.Context(), "stint:*").Result()
		must(t, err)
		must(t, r.st.Runtime().Client().Del(t.Context(), keys...).Err())
		settle(time.Hour)
		if len(f.ticks) < 6 {
			t.Errorf("%d ticks ran, want it to go on", len(f.ticks))
		}
		r.stopWell()
	})
}

func TestWhereEntriesBelongIsNotedAgainWhenItWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := cronRig(t, worker.Config{}, each(time.Hour))
		r.start()
		settle(time.Minute)
		must(t, r.st.Runtime().Client().Del(t.Context(), "stint:entries").Err())
		if _, err := r.st.RunEntry(t.Context(), "e"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("it is found without: %v", err)
		}
		settle(15 * time.Minute)
		_, err := r.st.RunEntry(t.Context(), "e")
		must(t, err)
		settle(time.Hour)
		if len(f.ticks) != 1 || f.hand != 1 {
			t.Errorf("%+v, %d by hand", f.ticks, f.hand)
		}
		r.stopWell()
	})
}

func TestAnEntryRunsByHandBesideItsTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := cronRig(t, worker.Config{}, each(time.Hour))
		r.start()
		settle(30 * time.Minute)
		id, err := r.st.RunEntry(t.Context(), "e")
		must(t, err)
		settle(time.Second)
		if f.hand != 1 || r.job(id).State != store.Done {
			t.Errorf("%d by hand, %s", f.hand, r.job(id).State)
		}
		settle(time.Hour)
		if all := r.dispatches(store.DispatchFilter{}); len(f.ticks) != 1 || len(all) != 2 || !all[0].ByHand || all[1].ByHand {
			t.Errorf("%+v, %+v", f.ticks, all)
		}
		r.stopWell()
	})
}

func TestAFailedDispatchIsOnRecordAndTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		r, f := cronRig(t, worker.Config{}, each(time.Hour))
		rdb := r.st.Runtime().Client()
		r.start()
		settle(59 * time.Minute)
		must(t, rdb.SAdd(ctx, "stint:{x}:parked", "foreign").Err())
		settle(2 * time.Minute)
		failed := of[worker.TickDispatched](r.events)
		if len(failed) != 1 || failed[0].Status != store.StatusFailed || !strings.Contains(failed[0].Reason, "parked") {
			t.Fatalf("%+v, want one", failed)
		}
		if d := r.dispatches(store.DispatchFilter{}); len(d) != 1 || d[0].Status != store.StatusFailed || !strings.Contains(d[0].Reason, "parked") {
			t.Errorf("%+v", d)
		}
		must(t, rdb.Del(ctx, "stint:{x}:parked").Err())
		settle(time.Minute)
		if d := r.dispatches(store.DispatchFilter{}); len(d) != 1 || d[0].Status != store.StatusDispatched || len(f.ticks) != 1 {
			t.Errorf("%+v, %+v", d, f.ticks)
		}
		r.stopWell()
	})
}

func TestAStopDuringATickIsPrompt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Hour)
		r, _ := cronRig(t, worker.Config{}, c)
		r.start()
		settle(30 * time.Minute)
		r.latency(10 * time.Millisecond)
		time.Sleep(30*time.Minute + 5*time.Millisecond) // the dispatch is on its way
		before := time.Now()
		r.stopWell()
		if took := time.Since(before); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestABadEntryIsRefusedByRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := map[string]func(c *worker.Cron){
			"the hour":                 func(c *worker.Cron) { c.Spec = "0 24 * * *" },
			"position 3":               func(c *worker.Cron) { c.Spec = "0 24 * * *" },
			"never fires":              func(c *worker.Cron) { c.Spec = "0 0 31 2 *" },
			"no zone":                  func(c *worker.Cron) { c.Zone = "Mars/Base" },
			"another machine":          func(c *worker.Cron) { c.Zone = "Local" },
			"beside":                   func(c *worker.Cron) { c.Spec, c.Zone = "CRON_TZ=Asia/Tokyo @daily", "Europe/Paris" },
			"entry name":               func(c *worker.Cron) { c.Key = "no good" },
			"instance name":            func(c *worker.Cron) { c.Instance = "" },
			"option ID":                func(c *worker.Cron) { c.Options = []worker.EnqueueOption{worker.ID(theID)} },
			"At or Delay":              func(c *worker.Cron) { c.Options = []worker.EnqueueOption{worker.Delay(0)} },
			"option Deadline":          func(c *worker.Cron) { c.Options = []worker.EnqueueOption{worker.Deadline(time.Now().Add(time.Hour))} },
			"option Unique":            func(c *worker.Cron) { c.Options = []worker.EnqueueOption{worker.Unique("k", worker.UntilDone())} },
			"priority 11":              func(c *worker.Cron) { c.Options = []worker.EnqueueOption{worker.Priority(11)} },
			"the payload":              func(c *worker.Cron) { c.Payload = func() {} },
			"less than the window":     func(c *worker.Cron) { c.RecordAge = time.Hour },
			"less than the 20 ticks":   func(c *worker.Cron) { c.CatchUp, c.RecordCount = 20, 10 },
			"-2 ticks":                 func(c *worker.Cron) { c.CatchUp = -2 },
			"is negative":              func(c *worker.Cron) { c.Window = -1 },
			"the jitter -1ns":          func(c *worker.Cron) { c.Jitter = -1 },
			"501 ticks are to be made": func(c *worker.Cron) { c.CatchUp = 501 },
		}
		r := newRig(t, worker.Config{})
		for says, edit := range bad {
			c := each(time.Hour)
			c.Key = "e" + fmt.Sprint(len(says))
			edit(&c)
			p := &rig{t: t, st: r.st}
			p.listen(worker.Config{})
			p.sup.Schedule(c)
			if err := p.sup.Run(t.Context()); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
		}
		tabs := each(time.Hour)
		tabs.Key, tabs.Spec = "tabs", "CRON_TZ=Asia/Tokyo\t0\t9 * * *"
		p := &rig{t: t, st: r.st}
		p.listen(worker.Config{})
		p.sup.Schedule(tabs)
		p.start()
		settle(time.Second)
		p.stopWell()
		if all, err := r.st.Entries(t.Context()); err != nil || len(all) != 1 || all[0].Zone != "Asia/Tokyo" || all[0].Spec != "0\t9 * * *" {
			t.Errorf("%+v, %v; want the zone apart from the spec", all, err)
		}
		r.sup.Schedule(each(time.Hour), each(time.Hour))
		if err := r.sup.Run(t.Context()); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "there are two") {
			t.Errorf("twice the same: %v", err)
		}
		defer func() {
			if recover() == nil {
				t.Error("an entry is scheduled after Run without a panic")
			}
		}()
		r.sup.Schedule(each(time.Hour))
	})
}

func TestAProcessMayOnlySchedule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.st.Runtime().SetSole()
		r.sup.Schedule(each(time.Hour))
		r.start()
		settle(3*time.Hour + time.Second)
		if s := r.stats("x"); s.Todo != 3 {
			t.Errorf("%+v, want three jobs for whoever handles them", s)
		}
		r.stopWell()
	})
}
