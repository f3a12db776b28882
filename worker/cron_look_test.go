package worker_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// What a scheduler does when it can't look at what others have changed, or when that is not what it thinks.

// scripted comes between a rig and its server, at each script: it may refuse it, or lose its reply.
type scripted struct {
	refused, lost atomic.Pointer[[]string] // where a key or an argument is one of these, or ends with it
}

func (s *scripted) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	names := func(cmd redis.Cmder, what *[]string) bool {
		for _, arg := range cmd.Args()[1:] {
			for _, end := range *what {
				if text, ok := arg.(string); ok && strings.HasSuffix(text, end) {
					return true
				}
			}
		}
		return false
	}
	if p := s.refused.Load(); p != nil && strings.HasPrefix(cmd.Name(), "eval") && names(cmd, p) {
		cmd.SetErr(refusal{})
		return refusal{}
	}
	err := next(ctx, cmd)
	if p := s.lost.Load(); err == nil && p != nil && strings.HasPrefix(cmd.Name(), "eval") && names(cmd, p) {
		cmd.SetErr(io.EOF)
		return io.EOF
	}
	return err
}

// script puts one between.
func (r *rig) script() *scripted {
	s := &scripted{}
	r.intercept(s.intercept)
	return s
}

func TestTicksGoOnWhereTheNamesOfEntriesCantBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Minute)
		c.CatchUp = worker.NoCatchUp // what is late is lost
		r, f := cronRig(t, worker.Config{}, c)
		rdb := r.st.Runtime().Client()
		r.start()
		settle(10 * time.Second)
		must(t, rdb.Del(t.Context(), "stint:entries").Err())
		must(t, rdb.Set(t.Context(), "stint:entries", "foreign", 0).Err())
		settle(10 * time.Minute)
		if len(f.ticks) != 10 {
			t.Errorf("%d ticks ran in 10 minutes, want one a minute", len(f.ticks))
		}
		if failed := of[worker.LoopFailed](r.events); len(failed) != 1 || !strings.Contains(failed[0].Err.Error(), "stint:entries") {
			t.Errorf("%+v, want that the names can't be read", failed)
		}
		r.stopWell()
		r = r.again(f, worker.Config{}, c) // nor does one that starts now need them
		r.start()
		settle(5 * time.Minute)
		if len(f.ticks) != 15 {
			t.Errorf("%d ticks ran in 15 minutes, want one a minute", len(f.ticks))
		}
		must(t, rdb.Del(t.Context(), "stint:entries").Err())
		settle(time.Minute)
		if n := len(of[worker.LoopRecovered](r.events)); n != 1 || rdb.HLen(t.Context(), "stint:entries").Val() != 1 {
			t.Errorf("%d times recovered, want once, and the name noted again", n)
		}
		r.stopWell()
	})
}

func TestATickThatFindsNoMemoryHasFailedThoughAnotherEntryCantBeRegistered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		barred := each(time.Minute)
		barred.Key = "barred"
		r, f := newRig(t, worker.Config{}), &fired{} // looks each 30 s
		worker.Handle(r.sup, "x", f.handle, worker.Concurrency(1))
		r.sup.Schedule(each(time.Minute), barred)
		server := r.script()
		must(t, r.st.Runtime().Client().SAdd(t.Context(), "stint:{x}:cron_removed:barred", "foreign").Err())
		r.start()
		settle(10 * time.Second)
		server.refused.Store(&[]string{":cron_jobs", ":entries"}) // what registers and dispatches takes memory
		settle(3 * time.Minute)
		failed := byStatus(r.events, "e", store.StatusFailed)
		if len(failed) != 3 || !strings.Contains(failed[0].Reason, "OOM") {
			t.Errorf("%+v, want that each tick has failed", failed)
		}
		if all := r.dispatches(store.DispatchFilter{Status: store.StatusFailed}); len(all) != 3 {
			t.Errorf("%+v, want it on record", all)
		}
		server.refused.Store(nil)
		settle(10 * time.Second)
		if len(f.ticks) != 1 {
			t.Errorf("%d ticks ran when there is memory again, want the latest", len(f.ticks))
		}
		r.stopWell()
	})
}

func TestWhoHasSeenARemovalFiresAnEntryThatIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(10 * time.Minute)
		a, f := cronRig(t, worker.Config{}, c)
		b := a.again(f, worker.Config{}, c)
		a.start()
		b.start()
		settle(time.Minute)
		must(t, a.st.RemoveEntry(t.Context(), "e"))
		settle(time.Hour)
		if len(f.ticks) != 0 {
			t.Errorf("%d ticks ran of an entry that was removed", len(f.ticks))
		}
		fresh := a.again(f, worker.Config{}, c)
		fresh.start()
		settle(time.Second)
		fresh.stopWell()
		settle(time.Hour)
		if len(f.ticks) < 5 {
			t.Errorf("%d ticks ran in an hour after another process had brought it back, want 6 or so", len(f.ticks))
		}
		must(t, a.st.RemoveEntry(t.Context(), "e"))
		ran := len(f.ticks)
		settle(time.Hour)
		if len(f.ticks) != ran || len(a.dispatches(store.DispatchFilter{})) != 0 {
			t.Errorf("%d ticks ran, removed again", len(f.ticks)-ran)
		}
		a.stopWell()
		b.stopWell()
	})
}

func TestWhoWaitsForAnEntrysKeyReplacesNothingThatWasRegisteredSince(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Hour)
		c.Instance = "elsewhere"
		r, f := cronRig(t, worker.Config{}, c)
		r.start()
		settle(time.Second)
		waits := r.again(f, worker.Config{}, each(time.Hour))
		waits.start()
		settle(time.Second)
		must(t, r.st.RemoveEntry(t.Context(), "e"))
		newer := each(10 * time.Minute)
		fresh := r.again(f, worker.Config{}, newer)
		fresh.start()
		settle(30 * time.Minute) // looks are rare where nobody else uses the server
		if all, err := r.st.Entries(t.Context()); err != nil || len(all) != 1 || all[0].Spec != newer.Spec || all[0].Instance != "x" {
			t.Errorf("%+v, %v; want what was registered last", all, err)
		}
		if n := len(of[worker.EntryReplaced](waits.events)); n != 1 {
			t.Errorf("%d events that another definition stands, want one", n)
		}
		r.stopWell()
		waits.stopWell()
		fresh.stopWell()
	})
}

// Whoever asks again for what was answered long ago is told what was so then.
func TestAnEntryThatWasEnabledSinceItsTickWasAskedForFires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := cronRig(t, worker.Config{}, each(time.Hour))
		server := r.script()
		settle(10 * time.Second)
		r.start() // others' changes are looked at 10 s after each half minute
		settle(time.Hour - 20*time.Second)
		must(t, r.st.EnableEntry(t.Context(), "e", false))
		server.lost.Store(&[]string{":cron_dispatch:e"})
		settle(15 * time.Second) // its tick
		must(t, r.st.EnableEntry(t.Context(), "e", true))
		settle(10 * time.Second) // a look
		server.lost.Store(nil)
		settle(2*time.Hour + time.Minute)
		if len(f.ticks) != 2 {
			t.Errorf("%d ticks ran in two hours, want both", len(f.ticks))
		}
		r.stopWell()
	})
}

// What has no room in a call is not planned for it.
func TestEachOfManyLargeJobsIsPlannedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told := 0
		r := newRig(t, worker.Config{OnTick: func(string, worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
			told++
			return nil, nil
		}})
		r.st.Runtime().SetSole()
		n := 60
		for i := range n {
			c := each(time.Hour)
			c.Key, c.Payload = fmt.Sprint("e", i), strings.Repeat("x", 100_000)
			r.sup.Schedule(c)
		}
		r.start()
		settle(time.Hour + 10*time.Second)
		if s := r.stats("x"); s.Todo != int64(n) || told != n {
			t.Errorf("%d jobs, planned %d times, want %d once each", s.Todo, told, n)
		}
		r.stopWell()
	})
}
