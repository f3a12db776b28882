package store_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// With a million jobs waiting every reading operation answers within 50 ms, and no command, those that change all of them
// included, holds Redis for longer than 10 ms. The short form has fewer jobs and bounds ten times as wide.
func TestAMillionWaitingJobsSlowNothingDown(t *testing.T) {
	n := redistest.Size(50_000, 1_000_000)
	server := redistest.Start(t)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	m := &million{t: t, server: server, pulse: redistest.NewPulse(t, wg.Go), Env: storetest.Real(t, server.Addr()),
		bound: redistest.Size(500*time.Millisecond, 50*time.Millisecond), hold: redistest.Size(100*time.Millisecond, 10*time.Millisecond)}
	m.must(m.Raw.ConfigSet(t.Context(), "slowlog-log-slower-than", fmt.Sprint(m.hold.Microseconds())).Err())
	m.must(m.Raw.ConfigSet(t.Context(), "slowlog-max-len", "100000").Err())

	var ids []uuid.UUID
	m.phase("filling", func() {
		const held = 1000
		ids = m.Add(t, held)
		m.Claim(t, held)
		ids = append(ids, m.Add(t, n)...)
	})
	m.phase("reading", func() { m.reads(ids) })
	m.phase("cancelling all", func() {
		m.all(m.Store.CancelAll, store.Filter{Instance: "mail", State: store.Todo}, n)
	})
	m.phase("reading what has ended", func() { m.reads(ids) })
	m.phase("requeuing all", func() {
		m.all(m.Store.RequeueAll, store.Filter{Instance: "mail", State: store.Cancelled}, n)
	})
	m.phase("cancelling all again, by age", func() {
		m.all(m.Store.CancelAll, store.Filter{Instance: "mail", State: store.Todo, OlderThan: time.Nanosecond}, n)
	})
	m.phase("trimming by retention", func() {
		terms := m.Terms()
		terms.Done.Count = n - n/10
		for next := time.Duration(0); next == 0; {
			got, err := m.Runtime.Reap(t.Context(), terms)
			m.must(err)
			next = got.Next
		}
	})
	m.phase("purging all", func() { m.all(m.Store.Purge, store.Filter{Instance: "mail"}, n-n/10) })
	m.phase("filling again", func() { m.Add(t, n) })
	m.phase("deleting the instance", func() { m.must(m.Store.DeleteInstance(t.Context(), "mail", true)) })
}

type million struct {
	*storetest.Env
	t      *testing.T
	server *redistest.Server
	pulse  *redistest.Pulse
	bound  time.Duration // of a reading operation
	hold   time.Duration // of a command
}

func (m *million) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// phase does something and looks which commands have held Redis for long meanwhile. The slow log tells of time that has passed, and the
// machine has others to serve: what is beyond the bound in all must be more than the server has waited for a processor, and than the
// machine stood still.
func (m *million) phase(name string, f func()) {
	m.t.Helper()
	ctx := m.t.Context()
	m.must(m.Raw.Do(ctx, "slowlog", "reset").Err())
	start, before, missed := time.Now(), m.waited(), m.pulse.Missed()
	f()
	took, waited, still := time.Since(start), m.waited()-before, m.pulse.Missed()-missed
	slow, err := m.Raw.SlowLogGet(ctx, -1).Result()
	m.must(err)
	var longest, beyond time.Duration
	var which []string
	for _, s := range slow {
		if !slices.Contains([]string{"eval", "evalsha", "hscan", "smembers", "hexists"}, strings.ToLower(s.Args[0])) {
			continue // within a script, which is there as well
		}
		longest = max(longest, s.Duration)
		beyond += s.Duration - m.hold
		which = append(which, fmt.Sprintf("%.12q %v", s.Args[:2], s.Duration))
	}
	m.t.Logf("%s: %v; %d slow commands, the longest %v, beyond the bound by %v in all; the server waited %v for a processor, the machine stood still for %v",
		name, took.Round(time.Millisecond), len(which), longest, beyond, waited, still)
	if beyond > waited+still {
		m.t.Errorf("%s: these held Redis for more than %v: %v", name, m.hold, which)
	}
}

// waited is how long the server's main thread has been ready to run and did not, where the system tells.
func (m *million) waited() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/schedstat", m.server.PID()))
	var ran, waited int64
	if err == nil {
		_, err = fmt.Sscan(string(text), &ran, &waited)
	}
	if err != nil {
		return 0
	}
	return time.Duration(waited)
}

// all makes a change to n jobs.
func (m *million) all(change func(context.Context, store.Filter) (int, error), f store.Filter, n int) {
	m.t.Helper()
	got, err := change(m.t.Context(), f)
	m.must(err)
	if got != n {
		m.t.Errorf("%d jobs were changed, want %d", got, n)
	}
}

// reads times each reading operation, once for each of its harder cases.
func (m *million) reads(ids []uuid.UUID) {
	ctx, st := m.t.Context(), m.Store
	m.must(m.Runtime.Announce(ctx, store.Process{ID: m.Process, Instances: []string{"mail"}}, time.Minute))
	first, middle, last := ids[0], ids[len(ids)/2], ids[len(ids)-1]
	m.timed("Get", func() error { _, err := st.Get(ctx, middle); return err })
	for name, id := range map[string]uuid.UUID{"doing": first, "in the middle": middle, "last": last} {
		m.timed("Explain, "+name, func() error { _, err := st.Explain(ctx, id); return err })
	}
	m.timed("Stats", func() error { _, err := st.Stats(ctx); return err })
	m.timed("Workers", func() error { _, err := st.Workers(ctx, ""); return err })
	m.timed("Instances", func() error { _, err := st.Instances(ctx); return err })
	m.timed("Processes", func() error { _, err := st.Processes(ctx); return err })
	for _, f := range []store.Filter{{}, {Limit: store.MaxCall}, {Instance: "mail", State: store.Todo, Limit: store.MaxCall},
		{State: store.Todo, OlderThan: time.Nanosecond}, {State: store.Todo, OlderThan: time.Hour}, {State: store.Cancelled, Error: "nowhere"},
		{State: store.Cancelled, Limit: store.MaxCall}} {
		for page := range 5 {
			var p store.Page
			m.timed(fmt.Sprintf("List of %q, %d a page, page %d", f.State, f.Limit, page+1), func() (err error) {
				p, err = st.List(ctx, f)
				return err
			})
			if f.Cursor = p.Next; p.Next == "" {
				break
			}
		}
	}
}

// timed fails the test if an operation takes longer than the bound each of three times: others run on this machine, too.
func (m *million) timed(name string, f func() error) {
	m.t.Helper()
	best := time.Hour
	for range 3 {
		start := time.Now()
		if err := f(); err != nil {
			m.t.Errorf("%s: %v", name, err)
			return
		}
		if best = min(best, time.Since(start)); best <= m.bound {
			break
		}
	}
	if best > m.bound {
		m.t.Errorf("%s took %v, want %v at most", name, best, m.bound)
	} else if testing.Verbose() {
		m.t.Logf("%s: %v", name, best.Round(time.Microsecond))
	}
}
