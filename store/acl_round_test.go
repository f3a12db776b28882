package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
)

// round makes every call of the store at least once, and goes every way that needs a command of its own. What fails is seen
// in the server's log of refusals.
func round(t *testing.T, rdb, admin *redis.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st := open(t, rdb, "")
	rt := st.Runtime()
	me := store.Process{ID: uuid.New(), Instances: []string{"x"}, Since: time.Now()}
	keep := store.Retention{Age: time.Hour, Count: 2}
	terms := store.Terms{Instance: "x", Process: me.ID, Lease: 10 * time.Second, Period: time.Second, MaxCrashes: 3, Done: keep, Dead: keep}
	var lane store.Lane

	sub := rt.Subscribe(rt.ProcessChannel(me.ID))
	defer sub.Close()
	_, _ = sub.Receive(time.Second)
	_ = sub.Add(ctx, rt.EndedChannel(me.ID))
	_ = sub.Remove(ctx, rt.EndedChannel(me.ID))
	_ = rt.Announce(ctx, me, time.Minute)
	_, _ = st.Processes(ctx)

	add := func(n int, job store.NewJob) (ids []uuid.UUID) {
		jobs := make([]store.NewJob, n)
		for i := range jobs {
			jobs[i] = job
			jobs[i].ID, jobs[i].Payload = uuid.New(), json.RawMessage(`{}`)
			ids = append(ids, jobs[i].ID)
		}
		_, _ = rt.Enqueue(ctx, &lane, "x", jobs)
		return ids
	}
	// With a shorter lease a claim runs out at once.
	claim := func(terms store.Terms, n int) []*store.Lease {
		x := store.Exchange{Wait: true}
		for range n {
			x.Claims = append(x.Claims, uuid.New())
		}
		got, _ := rt.Exchange(ctx, &lane, terms, x)
		return got.Leases
	}
	short := terms
	short.Lease = time.Millisecond

	claim(terms, 1) // waits in vain, so that it is woken
	waiting := add(8, store.NewJob{Deadline: time.Now().Add(time.Hour)})
	add(2, store.NewJob{Unique: store.Unique{Key: "k", Mode: store.UniqueTerminal}})
	add(1, store.NewJob{Unique: store.Unique{Key: "w", Mode: store.UniqueWindow, Window: time.Hour}})
	add(2, store.NewJob{Delay: time.Hour})
	_, _ = rt.Await(ctx, "x", waiting[0])
	for _, verb := range []store.Verb{store.Complete, store.Retry, store.Snooze, store.Release, store.Bury, store.Cancel} {
		for _, l := range claim(terms, 1) {
			_, _, _ = rt.Heartbeat(ctx, terms, []store.Beat{{Lease: l, Progress: json.RawMessage(`1`)}}, []uuid.UUID{uuid.New()})
			_ = st.Cancel(ctx, waiting[7])
			f := store.Finish{Lease: l, Verb: verb, Delay: time.Hour, Error: "e", Progress: json.RawMessage(`2`)}
			_, _ = rt.Exchange(ctx, &lane, terms, store.Exchange{Finishes: []store.Finish{f}})
		}
	}
	if ran := claim(short, 2); len(ran) > 0 { // one of them loses its run
		_ = admin.HDel(ctx, "stint:{x}:runs", string(ran[0].Job.ID[:])).Err()
	}
	time.Sleep(5 * time.Millisecond)
	_, _ = rt.Reap(ctx, terms)
	_, _ = rt.Reap(ctx, short)
	time.Sleep(5 * time.Millisecond)
	_, _ = rt.Reap(ctx, terms)

	claim(terms, 1)
	for _, state := range []store.State{store.Todo, store.Scheduled, store.Doing, store.Done, store.Dead, store.Cancelled} {
		p, _ := st.List(ctx, store.Filter{Instance: "x", State: state, Limit: 1})
		for _, j := range p.Jobs {
			_, _ = st.Get(ctx, j.ID)
			_, _ = st.Explain(ctx, j.ID)
			_, _ = st.List(ctx, store.Filter{Instance: "x", State: state, Limit: 1, Cursor: p.Next})
			_ = admin.ZRem(ctx, "stint:{x}:"+string(state), string(j.ID[:])).Err() // so that the cursor has lost its job
			_, _ = st.List(ctx, store.Filter{Instance: "x", State: state, Limit: 1, Cursor: p.Next})
		}
	}
	family(ctx, st, add, claim, terms)
	_, _ = st.Stats(ctx)
	_, _ = st.Instances(ctx)
	_, _ = st.Workers(ctx, "x")
	_ = st.Pause(ctx, "x")
	_ = st.Resume(ctx, "x")
	for at, steps := (store.AuditCursor{}), 0; steps < 100; steps++ {
		_, next, err := rt.Audit(ctx, "x", at)
		if at = next; err != nil || at == (store.AuditCursor{}) {
			break
		}
	}
	for range 3 {
		_ = st.Delete(ctx, add(1, store.NewJob{})[0])
	}
	all := store.Filter{Instance: "x"}
	_, _ = st.RequeueAll(ctx, all)
	_, _ = st.CancelAll(ctx, all)
	for _, j := range add(1, store.NewJob{}) {
		_ = st.Cancel(ctx, j)
		_ = st.Requeue(ctx, j, store.RequeueMode{})
	}
	_, _ = st.Purge(ctx, all)
	entry := store.Definition{Key: "e", Spec: "* * * * *", RecordCount: 1, Job: store.NewJob{Payload: json.RawMessage(`{}`)}}
	_, _, _ = rt.Register(ctx, "x", []store.Definition{entry}, false)
	for range 3 {
		time.Sleep(2 * time.Millisecond)
		if read, err := rt.Entries(ctx, "x", "", []string{"e"}); err == nil {
			ticks := []store.EntryTicks{{Entry: read.Entries[0], Decisions: []store.Decision{{Tick: read.Now}}}}
			_, _, _ = rt.Undispatched(ctx, "x", "n", "why", ticks)
			_, _, _ = rt.Dispatch(ctx, &lane, "x", "n", ticks)
		}
	}
	_, _ = st.RunEntry(ctx, "e")
	_, _ = st.FindDispatch(ctx, "e", time.Now())
	_, _ = st.Dispatches(ctx, store.DispatchFilter{})
	_, _ = st.Entries(ctx)
	_ = st.EnableEntry(ctx, "e", false)
	_ = st.EnableEntry(ctx, "e", true)
	_ = st.RemoveEntry(ctx, "e")
	_, _, _ = rt.Register(ctx, "x", []store.Definition{entry}, false)
	_ = st.DeleteInstance(ctx, "x", true)
	_ = rt.Leave(ctx, me)
}

// family does what parents and children do.
func family(ctx context.Context, st *store.Store, add func(int, store.NewJob) []uuid.UUID, claim func(store.Terms, int) []*store.Lease, terms store.Terms) {
	rt := st.Runtime()
	add(1, store.NewJob{Priority: store.MaxPriority})
	for _, l := range claim(terms, 1) {
		child := store.NewJob{ID: store.ChildID(&l.Job, "child", 0), Payload: json.RawMessage(`{}`),
			Parent: store.Parent{ID: l.Job.ID, Instance: "x", Step: "child"}}
		limits := store.StepLimits{Count: 10, Bytes: 10_000}
		_, _ = rt.Commit(ctx, l, limits, store.StepWrite{Name: "b", Kind: store.LocalStep, Value: json.RawMessage(`1`)})
		_, _ = rt.Commit(ctx, l, limits, store.StepWrite{Name: "a", Kind: store.LocalStep, Value: json.RawMessage(`1`)},
			store.StepWrite{Name: "child", Kind: store.AsyncStep, Instance: "x", Child: child})
		_, _ = rt.Enqueue(ctx, new(store.Lane), "x", []store.NewJob{child})
		_, _ = st.Steps(ctx, l.Job.ID, "")
		_, _ = st.Unresolved(ctx, "x", "")
		_ = rt.Lapse(ctx, "x", child.ID)
		_, _ = rt.Wanted(ctx, &store.Job{ID: child.ID, Instance: "x", Parent: child.Parent})
		_ = rt.Relay(ctx, []store.Outcome{{Child: child.ID, Instance: "x", Parent: child.Parent, Fate: store.FateDone, Text: `1`}})
		_, _ = rt.Exchange(ctx, new(store.Lane), terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Bury}}})
		_, _ = rt.Sweep(ctx, "x")
	}
}
