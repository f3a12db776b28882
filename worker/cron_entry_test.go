package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

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
