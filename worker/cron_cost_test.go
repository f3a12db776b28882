package worker_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// What entries cost that have nothing to do, and what it costs to make up for a long time.

// meter counts the calls of a store by their names.
type meter struct {
	mu    sync.Mutex
	calls map[string]int
}

// metered is a rig whose store's calls are counted.
func metered(t *testing.T) (*rig, *meter) {
	m := &meter{calls: map[string]int{}}
	st, err := store.OpenEmbedded(store.Options{OnCall: func(op string, _ time.Duration, _ error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls[op]++
	}})
	must(t, err)
	t.Cleanup(func() { must(t, st.Close()) })
	r := &rig{t: t, st: st}
	r.listen(worker.Config{})
	return r, m
}

// during returns what is called in a time.
func (m *meter) during(d time.Duration) map[string]int {
	m.mu.Lock()
	clear(m.calls)
	m.mu.Unlock()
	settle(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.calls)
}

func TestTenThousandEntriesCostWhatIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, m := metered(t)
		r.st.Runtime().SetSole()
		ran := 0
		worker.Handle(r.sup, "x", func(context.Context, none) error { ran++; return nil })
		n := 10_000
		for i := range n {
			r.sup.Schedule(worker.Cron{Key: fmt.Sprint("yearly/", i), Spec: "0 0 1 7 *", Instance: "x", Payload: none{}})
		}
		r.sup.Schedule(worker.Cron{Key: "minutely", Spec: "* * * * *", Instance: "x", Payload: none{}})
		r.start()
		settle(30 * time.Second)
		calls := m.during(time.Hour)
		if calls["dispatching"] != 60 || calls["reading entries"] > 7 || calls["looking for entries"] > 7 || calls["registering entries"] > 0 || ran != 60 {
			t.Errorf("in an hour %v, %d ran; want a call a tick and next to nothing else", calls, ran)
		}
		all, err := r.st.Entries(t.Context())
		if err != nil || len(all) != n+1 {
			t.Errorf("%d entries, %v", len(all), err)
		}
		r.stopWell()
	})
}

func TestAFastEntryThatDoesNotFireCostsNothing(t *testing.T) {
	for what, stop := range map[string]func(t *testing.T, r *rig){
		"disabled": func(t *testing.T, r *rig) { must(t, r.st.EnableEntry(t.Context(), "e", false)) },
		"removed":  func(t *testing.T, r *rig) { must(t, r.st.RemoveEntry(t.Context(), "e")) },
		"declared nowhere": func(t *testing.T, r *rig) {
			r.stopWell()
			r.listen(worker.Config{})
			worker.Handle(r.sup, "x", returns(nil))
			c := each(1000 * time.Hour)
			c.Key = "another"
			r.sup.Schedule(c)
			r.start()
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, m := metered(t)
				worker.Handle(r.sup, "x", returns(nil))
				r.sup.Schedule(each(100 * time.Millisecond))
				r.start()
				if calls := m.during(10 * time.Second); calls["dispatching"] < 95 {
					t.Errorf("in 10 s %v, want a call a tick", calls)
				}
				stop(t, r)
				settle(time.Minute)
				calls := m.during(time.Hour)
				if calls["dispatching"] > 0 || calls["reading entries"] > 121 || calls["looking for entries"] > 121 || calls["registering entries"] > 0 {
					t.Errorf("in an hour %v, want a look each 30 s and nothing else", calls)
				}
				if what == "disabled" {
					must(t, r.st.EnableEntry(t.Context(), "e", true))
					settle(31 * time.Second)
					if calls := m.during(10 * time.Second); calls["dispatching"] < 95 {
						t.Errorf("enabled again in 10 s %v, want a call a tick", calls)
					}
				}
				r.stopWell()
			})
		})
	}
}

// A reply that takes its time is no clock that goes back.
func TestASlowServerIsNotReadAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, m := metered(t)
		worker.Handle(r.sup, "x", returns(nil))
		r.sup.Schedule(each(time.Minute))
		r.start()
		settle(10 * time.Second)
		r.latency(3 * time.Second)
		calls := m.during(time.Hour)
		if calls["reading entries"] > 130 || calls["dispatching"] < 58 || calls["dispatching"] > 62 {
			t.Errorf("in an hour %v, want a look each 30 s and a call a tick", calls)
		}
		r.stopWell()
	})
}

// Of a slow entry it is heard at its tick whether it is enabled again: at once, and not only with the next look.
func TestAnEntryThatIsEnabledShortlyBeforeItsTickFires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Hour)
		c.CatchUp = worker.NoCatchUp // what is late is lost
		r, f := newRig(t, worker.Config{}), &fired{}
		worker.Handle(r.sup, "x", f.handle)
		r.sup.Schedule(c)
		r.start()
		settle(time.Second)
		must(t, r.st.EnableEntry(t.Context(), "e", false))
		settle(2*time.Hour - 2*time.Second)
		must(t, r.st.EnableEntry(t.Context(), "e", true))
		settle(2 * time.Second)
		if len(f.ticks) != 1 {
			t.Errorf("%d ticks ran, want the one it was enabled for", len(f.ticks))
		}
		r.stopWell()
	})
}

// A year of ticks each 100 ms is 315 million, of which a hundred or so are named and none of the others looked at.
func TestAYearOfFastTicksIsMadeUpForAtOnce(t *testing.T) {
	for _, spec := range []string{"@every 100ms", "* * * * * *", "* * * 1 2 *"} {
		t.Run(spec, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const year = 366 * 24 * time.Hour
				c := each(time.Minute)
				c.Spec, c.CatchUp, c.Window, c.RecordAge = spec, 3, year, year
				r, f := cronRig(t, worker.Config{}, c)
				r.start()
				settle(time.Second / 2)
				r.stopWell()
				ran, stopped := len(f.ticks), time.Now()
				time.Sleep(300 * 24 * time.Hour)
				began := time.Now()
				p := r.again(f, worker.Config{}, c)
				p.start()
				settle(400 * time.Millisecond)
				p.stopWell()
				if n := len(f.ticks) - ran; n < 3 || n > 3+15 {
					t.Errorf("%d jobs, want 3 and those since", n)
				}
				some, err := worker.ParseSpec(spec, nil)
				must(t, err)
				for _, tick := range []time.Time{some.Next(stopped), some.Next(stopped.Add(time.Hour)), some.Next(stopped.Add(31 * 24 * time.Hour))} {
					d, err := r.st.FindDispatch(t.Context(), "e", tick)
					if tick.Before(began) && (err != nil || d.Status != store.StatusSkipped) {
						t.Errorf("%v: %+v, %v; want it on record", tick, d, err)
					}
				}
				if n := len(r.dispatches(store.DispatchFilter{})); n > 150 {
					t.Errorf("%d records", n)
				}
			})
		})
	}
}

// A tick that is due is the next after the one before, in each of many processes: nothing of the past is searched.
func TestATickThatIsDueCostsAFewSearches(t *testing.T) {
	least := func(f func()) time.Duration { // of many: what else the machine does counts for nothing
		least := time.Hour
		for range 200 {
			before := time.Now()
			f()
			least = min(least, time.Since(before))
		}
		return least
	}
	paris, err := time.LoadLocation("Europe/Paris")
	must(t, err)
	for _, text := range []string{"0 0 * * *", "0 0 * * 1", "0 0 1 1 *"} {
		spec, err := worker.ParseSpec(text, paris)
		must(t, err)
		base := spec.Next(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
		now := spec.Next(base).Add(3 * time.Millisecond)
		search := least(func() { spec.Next(base); spec.Next(now) })
		planning := least(func() {
			if n := worker.Planned(spec, base, now); n != 1 {
				t.Errorf("%s: %d ticks, want 1", text, n)
			}
		})
		if planning > 3*search { // it takes about as long; to search the past four times as long and more
			t.Errorf("%s: to plan takes %v, two searches %v", text, planning, search)
		}
	}
}
