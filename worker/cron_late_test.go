package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Ticks that are decided late, or by a clock that was wrong, and what can't be made of them.

func TestAClockThatGoesForthByDaysAndBackSilencesNoEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := newRig(t, worker.Config{}), &fired{}
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
		r.sup.Schedule(each(time.Minute))
		r.at(0, 0)
		r.start()
		r.at(90*time.Second, 0)
		r.at(time.Minute, 48*time.Hour) // what is to come is missed, and decided
		ran, since := len(f.ticks), time.Now()
		r.at(10*time.Minute+time.Second, 0)
		if n := len(f.ticks) - ran; n < 9 {
			t.Errorf("%d ticks ran in the 10 minutes since the clock was right again, want one a minute", n)
		}
		for i, tick := range f.ticks {
			if i >= ran && tick.At.Before(since.Add(-time.Minute)) || !tick.Previous.Before(tick.At) {
				t.Errorf("%d: %+v", i, tick)
			}
		}
		r.stopWell()
	})
}

// A request whose reply was lost is not put back until it is answered.
func TestAClockThatGoesBackWhileATickIsUnansweredSilencesNoEntry(t *testing.T) {
	for what, meanwhile := range map[string]func(server *scripted){
		"the reply is lost": func(*scripted) {},
		"it is refused then": func(server *scripted) { // and is asked for anew
			server.refused.Store(&[]string{":cron_dispatch:e"})
			server.lost.Store(nil)
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, f := newRig(t, worker.Config{}), &fired{}
				worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
				r.sup.Schedule(each(time.Minute))
				server := r.script()
				r.at(0, 0)
				r.start()
				r.at(90*time.Second, 0)
				server.lost.Store(&[]string{":cron_dispatch:e"})
				r.at(40*time.Second, 0) // a tick
				const off = -48 * time.Hour
				r.at(65*time.Second, off)
				meanwhile(server)
				r.at(5*time.Second, off)
				server.lost.Store(nil)
				server.refused.Store(nil)
				ran := len(f.ticks)
				r.at(5*time.Minute, off)
				if n := len(f.ticks) - ran; n < 4 {
					t.Errorf("%d ticks ran in the 5 minutes since it is answered again, want one a minute", n)
				}
				r.stopWell()
			})
		})
	}
}

// A request that was planned on time may be answered late; then it says what was missed, as a plan would.
func TestATickThatIsNotMadeUpForIsNotDispatchedAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Hour)
		c.CatchUp = worker.NoCatchUp
		r, f := cronRig(t, worker.Config{}, c)
		settle(10 * time.Second) // so that it does not look at its tick
		r.start()
		settle(time.Hour - 15*time.Second)
		r.fault.Unplug()
		settle(25 * time.Second) // less than for how long a request is made again
		r.fault.Plug()
		settle(20 * time.Second)
		if d := r.dispatches(store.DispatchFilter{}); len(f.ticks) != 0 || len(d) != 1 || d[0].Status != store.StatusSkipped || !strings.Contains(d[0].Reason, "missed") {
			t.Errorf("%+v, %+v; want it skipped", f.ticks, d)
		}
		settle(time.Hour)
		if len(f.ticks) != 1 {
			t.Errorf("%+v, want the next one", f.ticks)
		}
		r.stopWell()
	})
}

func TestATickIsNotMissedWithinASecondHoweverShortTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(100 * time.Millisecond)
		c.Window = 20 * time.Millisecond
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", returns(nil))
		r.sup.Schedule(c)
		r.start()
		settle(time.Second)
		r.latency(300 * time.Millisecond) // three ticks for each call
		settle(10 * time.Second)
		r.stopWell()
		if skipped := byStatus(r.events, "e", store.StatusSkipped); len(skipped) > 0 {
			t.Errorf("%d ticks were skipped, the first %+v; want none", len(skipped), skipped[0])
		}
		if n := len(byStatus(r.events, "e", store.StatusDispatched)); n < 90 {
			t.Errorf("%d ticks were dispatched in 11 s, want 10 a second", n)
		}
	})
}

// Each process that declares an entry knows what its parts are to be.
func TestGarbageInPlaceOfAPartOfAnEntryIsPutRight(t *testing.T) {
	for _, part := range []string{"cron", "cron_jobs"} {
		for _, garbage := range []string{"", "garbage", "garbage 5x", "{", "1"} {
			t.Run(part+" "+garbage, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r, m := metered(t)
					ran := 0
					worker.Handle(r.sup, "x", func(context.Context, none) error { ran++; return nil })
					r.sup.Schedule(each(time.Minute))
					r.start()
					settle(10 * time.Second)
					must(t, r.st.Runtime().Client().HSet(t.Context(), "stint:{x}:"+part, "e", garbage).Err())
					must(t, r.st.Runtime().Client().HSet(t.Context(), "stint:{x}:cron_ticks", "", "1").Err()) // it is read again
					calls := m.during(10 * time.Minute)
					if calls["registering entries"] > 2 || calls["reading entries"] > 30 || calls["dispatching"] > 13 || ran < 9 {
						t.Errorf("%d ticks ran in 10 minutes, by %v; want it registered again", ran, calls)
					}
					r.stopWell()
				})
			})
		}
	}
}
