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
type round struct {
	ctx   context.Context
	st    *store.Store
	rt    *store.Runtime
	admin *redis.Client // has every right
	me    store.Process
	terms store.Terms
	lane  store.Lane
}

// makeRound makes one, with all that rdb may do.
func makeRound(t *testing.T, rdb, admin *redis.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st := open(t, rdb, "")
	me := store.Process{ID: uuid.New(), Instances: []string{"x"}, Since: time.Now()}
	keep := store.Retention{Age: time.Hour, Count: 2}
	r := &round{ctx: ctx, st: st, rt: st.Runtime(), admin: admin, me: me,
		terms: store.Terms{Instance: "x", Process: me.ID, Lease: 10 * time.Second, Period: time.Second, MaxCrashes: 3, Done: keep, Dead: keep}}
	sub := r.rt.Subscribe(r.rt.ProcessChannel(me.ID))
	defer sub.Close()
	_, _ = sub.Receive(time.Second)
	_ = sub.Add(ctx, r.rt.EndedChannel(me.ID))
	_ = sub.Remove(ctx, r.rt.EndedChannel(me.ID))
	_ = r.rt.Announce(ctx, me, time.Minute)
	_, _ = r.st.Processes(ctx)
	r.work()
	r.reap()
	r.claim(r.terms, 1)
	r.list()
	r.family()
	r.administer()
	r.cron()
	_ = r.st.DeleteInstance(ctx, "x", true)
	_ = r.rt.Leave(ctx, me)
}

func (r *round) add(n int, job store.NewJob) (ids []uuid.UUID) {
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = job
		jobs[i].ID, jobs[i].Payload = uuid.New(), json.RawMessage(`{}`)
		ids = append(ids, jobs[i].ID)
	}
	_, _ = r.rt.Enqueue(r.ctx, &r.lane, "x", jobs)
	return ids
}

func (r *round) claim(terms store.Terms, n int) []*store.Lease {
	x := store.Exchange{Wait: true}
	for range n {
		x.Claims = append(x.Claims, uuid.New())
	}
	got, _ := r.rt.Exchange(r.ctx, &r.lane, terms, x)
	return got.Leases
}

// work takes jobs of each kind through each end.
func (r *round) work() {
	r.claim(r.terms, 1) // waits in vain, so that it is woken
	waiting := r.add(8, store.NewJob{Deadline: time.Now().Add(time.Hour)})
	r.add(2, store.NewJob{Unique: store.Unique{Key: "k", Mode: store.UniqueTerminal}})
	r.add(1, store.NewJob{Unique: store.Unique{Key: "w", Mode: store.UniqueWindow, Window: time.Hour}})
	r.add(2, store.NewJob{Delay: time.Hour})
	_, _ = r.rt.Await(r.ctx, "x", waiting[0])
	for _, verb := range []store.Verb{store.Complete, store.Retry, store.Snooze, store.Release, store.Bury, store.Cancel} {
		for _, l := range r.claim(r.terms, 1) {
			_, _, _ = r.rt.Heartbeat(r.ctx, r.terms, []store.Beat{{Lease: l, Progress: json.RawMessage(`1`)}}, []uuid.UUID{uuid.New()})
			_ = r.st.Cancel(r.ctx, waiting[7])
			f := store.Finish{Lease: l, Verb: verb, Delay: time.Hour, Error: "e", Progress: json.RawMessage(`2`)}
			_, _ = r.rt.Exchange(r.ctx, &r.lane, r.terms, store.Exchange{Finishes: []store.Finish{f}})
		}
	}
}

// reap ends leases that run out at once.
func (r *round) reap() {
	short := r.terms
	short.Lease = time.Millisecond
	if ran := r.claim(short, 2); len(ran) > 0 { // one of them loses its run
		_ = r.admin.HDel(r.ctx, "stint:{x}:runs", string(ran[0].Job.ID[:])).Err()
	}
	time.Sleep(5 * time.Millisecond)
	_, _ = r.rt.Reap(r.ctx, r.terms)
	_, _ = r.rt.Reap(r.ctx, short)
	time.Sleep(5 * time.Millisecond)
	_, _ = r.rt.Reap(r.ctx, r.terms)
}

// list reads jobs of each state, also where the cursor has lost its job.
func (r *round) list() {
	for _, state := range []store.State{store.Todo, store.Scheduled, store.Doing, store.Done, store.Dead, store.Cancelled} {
		p, _ := r.st.List(r.ctx, store.Filter{Instance: "x", State: state, Limit: 1})
		for _, j := range p.Jobs {
			_, _ = r.st.Get(r.ctx, j.ID)
			_, _ = r.st.Explain(r.ctx, j.ID)
			_, _ = r.st.List(r.ctx, store.Filter{Instance: "x", State: state, Limit: 1, Cursor: p.Next})
			_ = r.admin.ZRem(r.ctx, "stint:{x}:"+string(state), string(j.ID[:])).Err()
			_, _ = r.st.List(r.ctx, store.Filter{Instance: "x", State: state, Limit: 1, Cursor: p.Next})
		}
	}
}

// family does what parents and children do.
func (r *round) family() {
	r.add(1, store.NewJob{Priority: store.MaxPriority})
	for _, l := range r.claim(r.terms, 1) {
		child := store.NewJob{ID: store.ChildID(&l.Job, "child", 0), Payload: json.RawMessage(`{}`),
			Parent: store.Parent{ID: l.Job.ID, Instance: "x", Step: "child"}}
		limits := store.StepLimits{Count: 10, Bytes: 10_000}
		_, _ = r.rt.Commit(r.ctx, l, limits, store.StepWrite{Name: "b", Kind: store.LocalStep, Value: json.RawMessage(`1`)})
		_, _ = r.rt.Commit(r.ctx, l, limits, store.StepWrite{Name: "a", Kind: store.LocalStep, Value: json.RawMessage(`1`)},
			store.StepWrite{Name: "child", Kind: store.AsyncStep, Instance: "x", Child: child})
		_, _ = r.rt.Enqueue(r.ctx, new(store.Lane), "x", []store.NewJob{child})
		_, _ = r.st.Steps(r.ctx, l.Job.ID, "")
		_, _ = r.st.Unresolved(r.ctx, "x", "")
		_ = r.rt.Lapse(r.ctx, "x", child.ID)
		_, _ = r.rt.Wanted(r.ctx, &store.Job{ID: child.ID, Instance: "x", Parent: child.Parent})
		_ = r.rt.Relay(r.ctx, []store.Outcome{{Child: child.ID, Instance: "x", Parent: child.Parent, Fate: store.FateDone, Text: `1`}})
		_, _ = r.rt.Exchange(r.ctx, new(store.Lane), r.terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Bury}}})
		_, _ = r.rt.Sweep(r.ctx, "x")
	}
}

// administer does what an operator does with jobs and instances.
func (r *round) administer() {
	_, _ = r.st.Stats(r.ctx)
	_, _ = r.st.Instances(r.ctx)
	_, _ = r.st.Workers(r.ctx, "x")
	_ = r.st.Pause(r.ctx, "x")
	_ = r.st.Resume(r.ctx, "x")
	for at, steps := (store.AuditCursor{}), 0; steps < 100; steps++ {
		_, next, err := r.rt.Audit(r.ctx, "x", at)
		if at = next; err != nil || at == (store.AuditCursor{}) {
			break
		}
	}
	for range 3 {
		_ = r.st.Delete(r.ctx, r.add(1, store.NewJob{})[0])
	}
	all := store.Filter{Instance: "x"}
	_, _ = r.st.RequeueAll(r.ctx, all)
	_, _ = r.st.CancelAll(r.ctx, all)
	for _, j := range r.add(1, store.NewJob{}) {
		_ = r.st.Cancel(r.ctx, j)
		_ = r.st.Requeue(r.ctx, j, store.RequeueMode{})
	}
	_, _ = r.st.Purge(r.ctx, all)
}

// cron does all that there is to do with an entry, and leaves it registered.
func (r *round) cron() {
	entry := store.Definition{Key: "e", Spec: "* * * * *", RecordCount: 1, Job: store.NewJob{Payload: json.RawMessage(`{}`)}}
	_, _, _ = r.rt.Register(r.ctx, "x", []store.Definition{entry}, false)
	for range 3 {
		time.Sleep(2 * time.Millisecond)
		if read, err := r.rt.Entries(r.ctx, "x", "", []string{"e"}); err == nil {
			ticks := []store.EntryTicks{{Entry: read.Entries[0], Decisions: []store.Decision{{Tick: read.Now}}}}
			_, _, _ = r.rt.Undispatched(r.ctx, "x", "n", "why", ticks)
			_, _, _ = r.rt.Dispatch(r.ctx, &r.lane, "x", "n", ticks)
		}
	}
	_, _ = r.st.RunEntry(r.ctx, "e")
	_, _ = r.st.FindDispatch(r.ctx, "e", time.Now())
	_, _ = r.st.Dispatches(r.ctx, store.DispatchFilter{})
	_, _ = r.st.Entries(r.ctx)
	_ = r.st.EnableEntry(r.ctx, "e", false)
	_ = r.st.EnableEntry(r.ctx, "e", true)
	_ = r.st.RemoveEntry(r.ctx, "e")
	_, _, _ = r.rt.Register(r.ctx, "x", []store.Definition{entry}, false)
}
