package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A listing shows each job once, in order, in bounded pages.
func listCases() []Case {
	return named(pagingSeesEachJobOnce, aListingIsInOrder, pagingOverAllInstancesAndStates, aPageHasAMiBAtMost,
		aPageGoesOnWhereTheLastEndedThoughItsJobHasLeft, aPageGoesOnWhereTheLastEndedThoughItsJobHasMoved, anEmptyListing)
}

// pages walks through a listing and hands each page to f.
func (e *Env) pages(t *testing.T, f store.Filter, each func(p store.Page)) {
	t.Helper()
	for range 10_000 {
		p, err := e.Store.List(t.Context(), f)
		if err != nil {
			t.Fatalf("listing: %v", err)
		}
		each(p)
		if f.Cursor = p.Next; f.Cursor == "" {
			return
		}
	}
	t.Fatal("a listing without end")
}

func pagingSeesEachJobOnce(t *testing.T, e *Env) {
	const n = 2_500
	ids := e.Enqueue(t, newJobs(n)...)
	for _, limit := range []int{0, 333, store.MaxCall} {
		var got []uuid.UUID
		e.pages(t, store.Filter{Instance: instance, State: store.Todo, Limit: limit}, func(p store.Page) {
			want := limit
			if limit == 0 {
				want = 100
			}
			if len(p.Jobs) > want || p.Next != "" && len(p.Jobs) == 0 {
				t.Errorf("a page of %d jobs, limit %d", len(p.Jobs), limit)
			}
			for _, j := range p.Jobs {
				got = append(got, j.ID)
				if j.State != store.Todo || j.Instance != instance {
					t.Errorf("listed %+v", j)
				}
			}
		})
		wantIDs(t, fmt.Sprintf("by %d", limit), got, ids)
	}
}

func aListingIsInOrder(t *testing.T, e *Env) {
	var ended, due []uuid.UUID
	for range 3 {
		l := e.hold(t)
		e.Later(t, time.Second)
		e.end(t, l, store.Complete)
		ended = append(ended, l.Job.ID)
		e.Later(t, time.Second)
	}
	slices.Reverse(ended)
	wantIDs(t, "done: the latest first", e.Listed(t, store.Done), ended)
	for _, d := range []time.Duration{3, 1, 2} {
		due = append(due, e.Enqueue(t, store.NewJob{Delay: d * time.Minute})[0])
	}
	wantIDs(t, "scheduled: the next first", e.Listed(t, store.Scheduled), []uuid.UUID{due[1], due[2], due[0]})
	low, high := e.Enqueue(t, store.NewJob{Priority: 2})[0], e.Enqueue(t, store.NewJob{Priority: 8})[0]
	wantIDs(t, "todo: as it will be served", e.Listed(t, store.Todo), []uuid.UUID{high, low})
}

func pagingOverAllInstancesAndStates(t *testing.T, e *Env) {
	want := map[uuid.UUID]store.State{}
	for s, id := range e.inEachState(t) {
		want[id] = s
	}
	for _, name := range []string{"ant", "zoo"} {
		for _, id := range e.EnqueueTo(t, name, newJobs(3)...) {
			want[id] = store.Todo
		}
	}
	for _, limit := range []int{1, 2, 5, 100} {
		seen := map[uuid.UUID]int{}
		var order []string
		e.pages(t, store.Filter{Limit: limit}, func(p store.Page) {
			for _, j := range p.Jobs {
				seen[j.ID]++
				if j.State != want[j.ID] {
					t.Errorf("listed as %s, want %s", j.State, want[j.ID])
				}
				order = append(order, fmt.Sprintf("%s %d", j.Instance, slices.Index(allStates, j.State)))
			}
		})
		for id := range want {
			if seen[id] != 1 {
				t.Errorf("by %d: a %s job was seen %d times", limit, want[id], seen[id])
			}
		}
		if len(seen) != len(want) || !slices.IsSorted(order) {
			t.Errorf("by %d: saw %d jobs in the order %q, want %d", limit, len(seen), order, len(want))
		}
	}
	e.pages(t, store.Filter{State: store.Dead}, func(p store.Page) {
		if len(p.Jobs) != 1 || p.Jobs[0].State != store.Dead || p.Jobs[0].LastError != "e" {
			t.Errorf("the dead of all instances are %+v", p.Jobs)
		}
	})
}

func aPageHasAMiBAtMost(t *testing.T, e *Env) {
	e.add(t, 5, store.NewJob{Payload: sized(300 << 10)})
	e.add(t, 2, store.NewJob{Payload: sized(store.MaxPayload)})
	e.add(t, 5, store.NewJob{Payload: sized(300 << 10), Delay: time.Hour})
	n := 0
	e.pages(t, store.Filter{Limit: store.MaxCall}, func(p store.Page) {
		bytes := 0
		for _, j := range p.Jobs {
			bytes += len(j.Payload)
		}
		if bytes > mib && len(p.Jobs) > 1 {
			t.Errorf("a page of %d jobs has %d bytes", len(p.Jobs), bytes)
		}
		n += len(p.Jobs)
	})
	if n != 12 {
		t.Errorf("saw %d jobs, want 12", n)
	}
}

func aPageGoesOnWhereTheLastEndedThoughItsJobHasLeft(t *testing.T, e *Env) {
	for _, s := range []store.State{store.Todo, store.Cancelled} {
		var ids []uuid.UUID
		for range 6 {
			ids = append(ids, e.one(t))
			if s == store.Cancelled {
				e.cancel(t, ids[len(ids)-1])
				e.Later(t, time.Second)
			}
		}
		if s == store.Cancelled {
			slices.Reverse(ids)
		}
		p, err := e.Store.List(t.Context(), store.Filter{Instance: instance, State: s, Limit: 3})
		must(t, err)
		must(t, e.Store.Delete(t.Context(), p.Jobs[2].ID))
		p, err = e.Store.List(t.Context(), store.Filter{Instance: instance, State: s, Limit: 3, Cursor: p.Next})
		must(t, err)
		var got []uuid.UUID
		for _, j := range p.Jobs {
			got = append(got, j.ID)
		}
		wantIDs(t, string(s), got, ids[3:])
		for _, id := range e.Listed(t, s) {
			must(t, e.Store.Delete(t.Context(), id))
		}
	}
}

func anEmptyListing(t *testing.T, e *Env) {
	for _, f := range []store.Filter{{}, {Instance: "nobody"}, {State: store.Done}, {Instance: "nobody", State: store.Parked}} {
		if p, err := e.Store.List(t.Context(), f); err != nil || len(p.Jobs) != 0 || p.Next != "" {
			t.Errorf("%+v: %+v, %v; want an empty page, the last", f, p, err)
		}
	}
}

// A heartbeat puts a job behind all others of the listing.
func aPageGoesOnWhereTheLastEndedThoughItsJobHasMoved(t *testing.T, e *Env) {
	ids := e.Add(t, 5)
	leases := e.Claim(t, 5)
	e.Later(t, time.Second)
	seen := map[uuid.UUID]bool{}
	e.pages(t, store.Filter{State: store.Doing, Limit: 2}, func(p store.Page) {
		if len(seen) == 0 {
			last := p.Jobs[1].ID
			e.beat(t, store.Beat{Lease: leases[slices.IndexFunc(leases, func(l *store.Lease) bool { return l.Job.ID == last })]})
		}
		for _, j := range p.Jobs {
			seen[j.ID] = true
		}
	})
	if len(seen) != len(ids) {
		t.Errorf("listed %d of %d", len(seen), len(ids))
	}
}
