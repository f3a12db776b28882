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
