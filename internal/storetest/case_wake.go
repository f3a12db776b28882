package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Waking without polling and without a herd.
func wakeCases() []Case {
	return named(anEnqueueOfNWakesAtMostNWaiters, aDeadWaiterIsPassedOver, aWaiterThatHasJustDiedCostsOneWakeUpAtMost,
		anEarlierDueTimeWakesOne, aRetryThatIsDueFirstWakesOne, aPausedInstanceWakesNobodyAndResumeDoes,
		whateverMakesJobsClaimableWakes, aDeletedInstanceTellsThoseWhoWait)
}

func anEnqueueOfNWakesAtMostNWaiters(t *testing.T, e *Env) {
	all := e.waiters(t, 5)
	e.Add(t, 2)
	e.wantWoken(t, "2 jobs", all, 0, 1)
	e.one(t)
	e.wantWoken(t, "1 more", all, 2)
	e.Add(t, 10)
	e.wantWoken(t, "10 more", all, 3, 4)
	e.Add(t, 10)
	e.wantWoken(t, "when nobody waits", all)
	e.EnqueueTo(t, "other", newJobs(1)...)
	e.wantWoken(t, "a job of another instance", all)
}

func aDeadWaiterIsPassedOver(t *testing.T, e *Env) {
	dead := uuid.New() // nobody listens for it
	all := e.waiters(t, 2)
	e.ask(t, dead)
	e.put(t, "ZADD", e.Key(instance, "waiting"), 1, e.Runtime.ProcessChannel(dead)) // it has waited longest
	e.one(t)
	e.wantWoken(t, "a job", all, 0)
	e.one(t)
	e.wantWoken(t, "another", all, 1)
	if n := e.Raw.ZCard(t.Context(), e.Key(instance, "waiting")).Val(); n != 0 {
		t.Errorf("%d processes wait still, want none", n)
	}
}

// Where nobody can tell that it has died, on a Cluster, it takes one wake-up with it: no more, and of others none.
func aWaiterThatHasJustDiedCostsOneWakeUpAtMost(t *testing.T, e *Env) {
	e.ask(t, uuid.New()) // nobody listens for it
	e.Later(t, time.Millisecond)
	all := e.waiters(t, 2)
	e.Add(t, 2)
	e.one(t)
	e.wantWoken(t, "for three jobs", all, 0, 1)
	e.one(t)
	e.wantWoken(t, "when nobody waits", all)
}

func anEarlierDueTimeWakesOne(t *testing.T, e *Env) {
	all := e.waiters(t, 4)
	e.Enqueue(t, store.NewJob{Delay: time.Hour})
	e.wantWoken(t, "the first scheduled job", all, 0)
	e.Enqueue(t, store.NewJob{Delay: 2 * time.Hour})
	e.wantWoken(t, "a later one", all)
	e.Enqueue(t, store.NewJob{Delay: time.Minute}, store.NewJob{Delay: time.Second})
	e.wantWoken(t, "two earlier ones", all, 1)
	e.Enqueue(t, store.NewJob{}, store.NewJob{Delay: time.Millisecond})
	e.wantWoken(t, "one that is due beside an earlier one: who gets the first may be full then", all, 2, 3)
}

// The process that retried asks for its due time, but it may be busy then.
func aRetryThatIsDueFirstWakesOne(t *testing.T, e *Env) {
	e.Add(t, 2)
	l := e.claimOne(t)
	w := e.listeners(t, 1)
	retry := func(delay time.Duration) {
		t.Helper()
		e.put(t, "ZADD", e.Key(instance, "waiting"), e.Now(t).UnixMilli(), e.Runtime.ProcessChannel(w[0].process))
		x := store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Retry, Delay: delay}}, Claims: []uuid.UUID{l.Worker()}}
		out := e.Exchange(t, e.Terms(), x)
		if len(out.Leases) != 1 {
			t.Fatalf("claimed %d jobs, want 1", len(out.Leases))
		}
		l = out.Leases[0]
	}
	retry(time.Minute)
	e.wantWoken(t, "a retry that is due first", w, 0)
	e.put(t, "ZADD", e.Key(instance, "todo"), 1, e.hiddenJob(t))
	retry(time.Hour)
	e.wantWoken(t, "a retry that is due later", w)
}

func aPausedInstanceWakesNobodyAndResumeDoes(t *testing.T, e *Env) {
	ctx := t.Context()
	all := e.waiters(t, 3)
	l := func() *store.Lease { // held from before the pause
		e.one(t)
		e.wantWoken(t, "a job", all, 0)
		return e.claimOne(t)
	}()
	must(t, e.Store.Pause(ctx, instance))
	e.one(t)
	e.Enqueue(t, store.NewJob{Delay: time.Second})
	e.end(t, l, store.Release)
	e.wantWoken(t, "while paused", all)
	must(t, e.Store.Resume(ctx, instance))
	e.wantWoken(t, "resumed", all, 1, 2)
	e.Later(t, time.Second)
	e.drain(t)
	e.Enqueue(t, store.NewJob{Delay: time.Hour})
	e.ask(t, all[0].process)
	must(t, e.Store.Resume(ctx, instance))
	e.wantWoken(t, "resumed again", all)
}

func whateverMakesJobsClaimableWakes(t *testing.T, e *Env) {
	ctx := t.Context()
	var l *store.Lease
	for _, c := range []struct {
		name        string
		before, act func()
	}{
		{"a release", func() { l = e.hold(t) }, func() { e.end(t, l, store.Release) }},
		{"a retry without delay", func() { l = e.hold(t) }, func() { e.end(t, l, store.Retry) }},
		{"a reap", func() { l = e.hold(t); e.Later(t, lease+time.Millisecond) }, func() { e.Reap(t) }},
		{"a requeue", func() { l = e.hold(t); e.end(t, l, store.Bury) }, func() {
			must(t, e.Store.Requeue(ctx, l.Job.ID, store.RequeueMode{}))
		}},
		{"a promotion of more than are claimed", func() { e.Enqueue(t, store.NewJob{Delay: time.Second}, store.NewJob{Delay: time.Second}) }, func() {
			e.Later(t, time.Second)
			e.claimOne(t)
		}},
	} {
		c.before()
		all := e.waiters(t, 2)
		c.act()
		e.wantWoken(t, c.name, all, 0)
		for _, id := range append(e.Listed(t, store.Todo), e.Listed(t, store.Scheduled)...) {
			must(t, e.Store.Delete(ctx, id))
		}
		for _, w := range all {
			must(t, e.Runtime.Leave(ctx, store.Process{ID: w.process, Instances: []string{instance}}))
		}
	}
}

// hiddenJob returns the member of a job that is in no state for now.
func (e *Env) hiddenJob(t *testing.T) string {
	t.Helper()
	id := e.Enqueue(t, store.NewJob{Delay: time.Hour})[0]
	e.put(t, "ZREM", e.Key(instance, "scheduled"), id[:])
	return string(id[:])
}

// They are forgotten with it, and would not be woken by its next job.
func aDeletedInstanceTellsThoseWhoWait(t *testing.T, e *Env) {
	all := e.waiters(t, 3)
	e.one(t)
	e.wantWoken(t, "a job", all, 0)
	id := e.one(t)
	must(t, errOf(e.Runtime.Await(t.Context(), instance, id)))
	end := e.listen(t, e.Runtime.EndedChannel(id))
	e.wantWoken(t, "a job", all, 1)
	must(t, e.Store.DeleteInstance(t.Context(), instance, false))
	e.wantWoken(t, "the deletion", all, 2)
	if m := end.hear(t, store.Ended); m.Job != id {
		t.Errorf("the end of %s was told, want %s", m.Job, id)
	}
	e.ask(t, all[2].process)
	e.one(t)
	e.wantWoken(t, "the next job", all, 2)
}
