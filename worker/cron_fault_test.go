package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// What happens to entries whose keys, clock or names are not what they were.

// at lets fake time pass with the server's clock an offset ahead of ours.
func (r *rig) at(d, offset time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		r.st.Runtime().SetTime(time.Now().Add(offset))
	}
}

// byStatus returns the events of one entry's ticks that have a status.
func byStatus(l *eventLog, entry, status string) []worker.TickDispatched {
	var some []worker.TickDispatched
	for _, e := range of[worker.TickDispatched](l) {
		if e.Entry == entry && e.Status == status {
			some = append(some, e)
		}
	}
	return some
}

func TestAClockThatGoesBackByDaysSilencesNoEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := newRig(t, worker.Config{}), &fired{}
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
		weekly := each(time.Minute)
		weekly.Key, weekly.Spec = "w", "@weekly"
		r.sup.Schedule(each(time.Minute), weekly)
		r.at(0, 0)
		r.start()
		r.at(3*time.Minute+10*time.Second, 0)
		if n := len(f.ticks); n != 3 {
			t.Fatalf("%d ticks ran, want 3", n)
		}
		const off = -48 * time.Hour
		r.at(10*time.Minute, off)
		fresh := r.again(f, worker.Config{}, each(time.Minute)) // and one that starts with it
		fresh.start()
		r.at(5*time.Minute+5*time.Second, off)
		since := f.ticks[3:]
		if len(since) != 15 {
			t.Errorf("%d ticks ran in the 15 minutes after that, want one a minute: %+v", len(since), since)
		}
		for i, tick := range since {
			if i > 0 && tick.At.Sub(since[i-1].At) != time.Minute || tick.Late < 0 || tick.Late > 31*time.Second {
				t.Errorf("tick %d is %+v", i, tick)
			}
		}
		r.at(10*time.Minute, 0) // and forth again: what has a record by then stays as it is
		seen := map[time.Time]bool{}
		for _, tick := range f.ticks {
			if seen[tick.At] {
				t.Errorf("the tick of %v has run twice", tick.At)
			}
			seen[tick.At] = true
		}
		if last := f.ticks[len(f.ticks)-1]; time.Since(last.At) > 61*time.Second {
			t.Errorf("the last to run is of %v", last.At)
		}
		r.stopWell()
		fresh.stopWell()
	})
}

// The process' own clock, which tests may set, does not decide when it looks at what others have changed.
func TestATimerThatGoesBackHidesNoChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var off atomic.Int64
		r, f := newRig(t, worker.Config{Now: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }}), &fired{}
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
		r.sup.Schedule(each(time.Minute))
		r.start()
		settle(10 * time.Second)
		must(t, r.st.EnableEntry(t.Context(), "e", false))
		settle(time.Minute)
		must(t, r.st.EnableEntry(t.Context(), "e", true))
		off.Store(int64(-48 * time.Hour))
		settle(5*time.Minute + 5*time.Second)
		if n := len(f.ticks); n < 4 {
			t.Errorf("%d ticks ran in 5 minutes", n)
		}
		r.stopWell()
	})
}

func TestAForeignKeyOfOneEntryStopsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := each(time.Minute), each(time.Minute)
		a.Key, b.Key = "a", "b"
		r, f := cronRig(t, worker.Config{Node: "here"}, a, b)
		r.start()
		settle(10 * time.Second)
		mend := r.spoil("stint:{x}:cron_dispatch:a")
		settle(3 * time.Minute)
		if n := len(byStatus(r.events, "b", store.StatusDispatched)); n != 3 || len(f.ticks) != 3 {
			t.Errorf("%d ticks of the other one, %d ran, want 3", n, len(f.ticks))
		}
		failed := byStatus(r.events, "a", store.StatusFailed)
		if len(failed) != 3 || !strings.Contains(failed[0].Reason, "stint:{x}:cron_dispatch:a") || failed[0].Node != "here" || failed[0].DispatchedAt.IsZero() {
			t.Errorf("%+v, want an event a tick that names the key", failed)
		}
		if n := r.logs.count("can't be dispatched"); n != 1 || len(of[worker.LoopFailed](r.events)) != 0 {
			t.Errorf("%d lines in the log, want one, and %+v", n, of[worker.LoopFailed](r.events))
		}
		mend()
		settle(10 * time.Second)
		if all := byStatus(r.events, "a", store.StatusDispatched); len(all) != 1 || !all[0].At.Equal(failed[2].At) {
			t.Errorf("%+v, want the latest made up for", all)
		}
		r.stopWell()
	})
}

func TestAnEntryThatCantBeRegisteredForAForeignKeyStopsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := each(time.Minute), each(time.Minute)
		a.Key, b.Key = "a", "b"
		r, f := newRig(t, worker.Config{}), &fired{}
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
		r.sup.Schedule(a, b)
		rdb, key := r.st.Runtime().Client(), "stint:{x}:cron_removed:a"
		must(t, rdb.SAdd(t.Context(), key, "foreign").Err())
		r.start()
		settle(3*time.Minute + time.Second)
		refused := of[worker.EntryRefused](r.events)
		if len(refused) != 1 || refused[0].Entry != "a" || !strings.Contains(refused[0].Err.Error(), key) || len(f.ticks) != 3 {
			t.Errorf("%+v, %d ticks ran; want one refused that names the key", refused, len(f.ticks))
		}
		must(t, rdb.Del(t.Context(), key).Err())
		settle(2 * time.Minute)
		if n := len(byStatus(r.events, "a", store.StatusDispatched)); n < 1 {
			t.Error("it does not fire though it could")
		}
		r.stopWell()
	})
}

func TestAnEntryThatHasLostAPartIsRegisteredAgainAndFires(t *testing.T) {
	for _, lost := range []string{"cron_jobs", "cron", "cron_ticks"} {
		t.Run(lost, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				type report struct{ Name string }
				r := newRig(t, worker.Config{})
				r.st.Runtime().SetSole()
				var got []string
				handle := func(_ context.Context, p report) error { got = append(got, p.Name); return nil }
				worker.Handle(r.sup, "x", handle, worker.Concurrency(1))
				c := each(time.Hour)
				c.Payload = report{"sales"}
				r.sup.Schedule(c)
				r.start()
				settle(90 * time.Minute)
				must(t, r.st.Runtime().Client().HDel(t.Context(), "stint:{x}:"+lost, "e").Err())
				settle(2 * time.Hour)
				r.stopWell()
				must(t, r.st.Runtime().Client().HDel(t.Context(), "stint:{x}:"+lost, "e").Err())
				p := r.second(worker.Config{}) // one that starts finds it so
				worker.Handle(p.sup, "x", handle, worker.Concurrency(1))
				p.sup.Schedule(c)
				p.start()
				settle(2 * time.Hour)
				if want := 5; len(got) != want && lost != "cron_ticks" || len(got) < 4 {
					t.Errorf("%d ran, want %d", len(got), want)
				}
				for _, name := range got {
					if name != "sales" {
						t.Errorf("a job has the payload %q", got)
					}
				}
				failed := byStatus(r.events, "e", store.StatusFailed)
				if lost == "cron_jobs" && (len(failed) != 1 || failed[0].Reason != store.ReasonUnmade) || lost != "cron_jobs" && len(failed) > 0 {
					t.Errorf("failed: %+v", failed)
				}
				for _, d := range r.dispatches(store.DispatchFilter{}) {
					if d.Status != store.StatusDispatched {
						t.Errorf("%+v, want it upgraded", d)
					}
				}
				p.stopWell()
			})
		})
	}
}

func TestWhatCantBeReadOfAnEntryIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := cronRig(t, worker.Config{}, each(time.Hour))
		r.start()
		settle(time.Minute)
		later := store.Definition{Key: "e", Spec: "@full-moon", Job: store.NewJob{Payload: []byte("{}")}} // of a later version
		_, _, err := r.st.Runtime().Register(t.Context(), "x", []store.Definition{later}, false)
		must(t, err)
		settle(3 * time.Hour)
		if refused := of[worker.EntryRefused](r.events); len(refused) != 1 || !strings.Contains(refused[0].Err.Error(), "can't be read") || len(f.ticks) != 0 {
			t.Errorf("%+v, %d ticks ran; want it refused", refused, len(f.ticks))
		}
		p := r.again(f, worker.Config{}, each(time.Hour))
		p.start()
		settle(time.Second)
		p.stopWell()
		settle(3 * time.Hour)
		if len(f.ticks) != 3 {
			t.Errorf("%d ticks ran, want 3 since it can be read again", len(f.ticks))
		}
		r.stopWell()
	})
}

// Names are looked after in turn, some at a time.
func TestEachEntryThatHasLostItsNameGetsItBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var all []worker.Cron
		for i := range 250 {
			c := each(24 * time.Hour)
			c.Key = "e" + strings.Repeat("i", i%100) + string(rune('a'+i/100))
			all = append(all, c)
		}
		r, _ := cronRig(t, worker.Config{}, all...)
		rdb := r.st.Runtime().Client()
		r.start()
		settle(time.Minute)
		for _, i := range []int{3, 130, 249} {
			must(t, rdb.HDel(t.Context(), "stint:entries", all[i].Key).Err())
		}
		must(t, rdb.HSet(t.Context(), "stint:entries", all[150].Key, "y").Err())
		settle(41 * time.Minute)
		if n := rdb.HLen(t.Context(), "stint:entries").Val(); n != 250 {
			t.Errorf("%d names, want all 250", n)
		}
		if refused := of[worker.EntryRefused](r.events); len(refused) != 1 || refused[0].Entry != all[150].Key || !strings.Contains(refused[0].Err.Error(), "instance y") {
			t.Errorf("%+v, want the one refused that another instance has", refused)
		}
		r.stopWell()
	})
}
