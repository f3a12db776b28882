package stint_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
	_ "time/tzdata" // as a program should that schedules by zones

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Cron over processes.

// playCron schedules the entries of these stories. Handlers count, by tick, how often they ran.
func (r role) playCron(sup *worker.Supervisor, rdb redis.UniversalClient) bool {
	every := map[string]time.Duration{"cron": 100 * time.Millisecond, "slow-cron": 2 * time.Second}[r.Play]
	if every == 0 {
		return false
	}
	worker.Handle(sup, "story", func(ctx context.Context, _ struct{}) error {
		tick, _ := worker.TickFrom(ctx)
		return rdb.HIncrBy(ctx, "ran-"+r.Prefix, strconv.FormatInt(tick.At.UnixMilli(), 10), 1).Err()
	}, worker.MaxCrashes(1000))
	sup.Schedule(worker.Cron{Key: "e", Spec: "@every " + every.String(), Instance: "story", Payload: struct{}{}, CatchUp: worker.MaxCatchUp})
	return true
}

// dispatches returns all records, the earliest first.
func (s *stage) dispatches(t *testing.T) []store.Dispatch {
	t.Helper()
	var all []store.Dispatch
	f := store.DispatchFilter{Limit: store.MaxCall}
	for range 100 {
		page, err := s.st.Dispatches(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Dispatches...)
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	slices.Reverse(all) // they come latest first
	return all
}

// wantOneJobATick fails the test unless each tick from the first on was dispatched, to a job of its own, by one of the nodes and not early,
// that what is done of these has run, and that no other tick has.
func (s *stage) wantOneJobATick(t *testing.T, all []store.Dispatch, every time.Duration, nodes map[string]bool) {
	t.Helper()
	ran, err := s.rdb.HGetAll(t.Context(), "ran-"+s.Prefix).Result()
	if err != nil || len(ran) == 0 {
		t.Fatalf("%d ticks have run, %v", len(ran), err)
	}
	jobs := map[uuid.UUID]bool{}
	for i, d := range all {
		if want := all[0].FireAt.Add(time.Duration(i) * every); !d.FireAt.Equal(want) {
			t.Fatalf("record %d is of %v, want %v", i, d.FireAt, want)
		}
		if d.Status != store.StatusDispatched || !nodes[d.Node] || d.DispatchedAt.Before(d.FireAt) || jobs[d.Job] {
			t.Errorf("%+v", d)
		}
		jobs[d.Job] = true
		if j, err := s.st.Get(t.Context(), d.Job); err != nil || !j.Tick.At.Equal(d.FireAt) {
			t.Errorf("the job of %v: %+v, %v", d.FireAt, j.Tick, err)
		} else if tick := strconv.FormatInt(d.FireAt.UnixMilli(), 10); j.State == store.Done && ran[tick] == "" {
			t.Errorf("the job of %v is done and has not run", d.FireAt)
		} else {
			delete(ran, tick)
		}
	}
	if len(ran) > 0 {
		t.Errorf("ran without a record: %v", ran)
	}
	stats, err := s.st.Stats(t.Context())
	if err != nil || len(stats) != 1 || stats[0].Total != int64(len(all)) {
		t.Errorf("%+v, %v; want %d jobs", stats, err, len(all))
	}
}

func TestFiveProcessesFireEachTickOnceThroughKills(t *testing.T) {
	s := setup(t)
	n := redistest.Size(100, 1000)
	var all []*service
	nodes := map[string]bool{}
	start := func(i int) *service {
		r := s.as("cron")
		r.Node, r.Skew = fmt.Sprint("node", i), time.Duration(rand.N(600)-300)*time.Second
		nodes[r.Node] = true
		return r.start(t)
	}
	for i := range 5 {
		all = append(all, start(i))
	}
	kills := 0
	for deadline := time.Now().Add(10 * time.Minute); len(s.dispatches(t)) < n; kills++ {
		if time.Now().After(deadline) {
			t.Fatalf("%d ticks within 10 minutes, want %d", len(s.dispatches(t)), n)
		}
		time.Sleep(time.Duration(100+rand.N(400)) * time.Millisecond)
		victim := rand.N(len(all))
		all[victim].signal(t, syscall.SIGKILL)
		all[victim].rest()
		all[victim] = start(5 + kills)
	}
	for _, one := range all {
		one.signal(t, syscall.SIGTERM)
		one.rest()
	}
	records := s.dispatches(t)
	s.wantOneJobATick(t, records, 100*time.Millisecond, nodes)
	by, late := map[string]int{}, time.Duration(0)
	for _, d := range records {
		by[d.Node]++
		late = max(late, d.DispatchedAt.Sub(d.FireAt))
	}
	t.Logf("%d ticks through %d kills, dispatched by %d processes, the latest after %v", len(records), kills, len(by), late)
	if len(by) < 2 {
		t.Errorf("all were dispatched by %v", by)
	}
}

func TestTicksInABlackHoleAreDispatchedLateAndOnce(t *testing.T) {
	s := setup(t)
	var running sync.WaitGroup
	proxy := redistest.NewProxy(t, running.Go, s.Addrs[0])
	r := s.as("slow-cron")
	r.Addrs, r.Node = []string{proxy.Addr()}, "there"
	svc := r.start(t)
	until := func(what string, ok func(all []store.Dispatch) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(s.dispatches(t)); {
			if time.Now().After(deadline) {
				t.Fatalf("not within a minute: %s", what)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	until("a tick", func(all []store.Dispatch) bool { return len(all) > 0 })
	proxy.Swallow()
	time.Sleep(redistest.Size(3*time.Second, 10*time.Second)) // a tick or more
	dark := len(s.dispatches(t))
	proxy.Pass()
	until("the ticks since", func(all []store.Dispatch) bool { return len(all) > dark+3 })
	svc.signal(t, syscall.SIGTERM)
	svc.rest()
	all := s.dispatches(t)
	s.wantOneJobATick(t, all, 2*time.Second, map[string]bool{"there": true})
	late := time.Duration(0)
	for _, d := range all {
		late = max(late, d.DispatchedAt.Sub(d.FireAt))
	}
	t.Logf("the latest came %v after its time", late)
	if late < 500*time.Millisecond {
		t.Errorf("no tick fell into the black hole")
	}
}
