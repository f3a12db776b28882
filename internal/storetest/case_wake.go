package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Waking without polling and without a herd.
func wakeCases() []Case {
	return named(anEnqueueOfNWakesAtMostNWaiters, aDeadWaiterIsPassedOver, aWaiterThatHasJustDiedCostsOneWakeUpAtMost, anEarlierDueTimeWakesOne, aRetryThatIsDueFirstWakesOne,
		aPausedInstanceWakesNobodyAndResumeDoes, whateverMakesJobsClaimableWakes, aProcessThatLeavesPassesItsWakeUpOn,
		aClaimThatComesBackFullDoesNotWait, aProcessThatReleasesWhilePausedIsWokenByResume, aNewlyWaitingProcessIsWokenOnlyByNewWork,
		processesThatDiedWaitingAreForgotten, aDeletedInstanceTellsThoseWhoWait, aWakeUpForWhatIsDueIsPassedOn)
}

// waiter is a process that has asked for work in vain and listens.
type waiter struct {
	process uuid.UUID
	ear     *ear
}

// ask lets a process claim for one worker; the claim is to come back empty, so that it waits.
func (e *Env) ask(t *testing.T, process uuid.UUID) {
	t.Helper()
	terms := e.Terms()
	terms.Process = process
	if got := e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true}).Leases; len(got) != 0 {
		t.Fatalf("a process that is to wait got %d jobs", len(got))
	}
}

// waiters returns n processes that wait, in this order.
func (e *Env) waiters(t *testing.T, n int) []*waiter {
	t.Helper()
	all := e.listeners(t, n)
	for _, w := range all {
		e.ask(t, w.process)
		e.Later(t, time.Millisecond)
	}
	return all
}

// messages returns what a waiter has been told up to now: a last word is said to it and awaited.
func (e *Env) messages(t *testing.T, w *waiter) []store.Message {
	t.Helper()
	e.say(t, e.Runtime.ProcessChannel(w.process), "end")
	return w.ear.until(t, func(m store.Message) bool { return m.Kind == store.Nothing })
}

// wantWoken fails the test unless exactly those were woken, each once.
func (e *Env) wantWoken(t *testing.T, what string, all []*waiter, woken ...int) {
	t.Helper()
	want := map[int]int{}
	for _, i := range woken {
		want[i] = 1
	}
	for i, w := range all {
		got := e.messages(t, w)
		if len(got) != want[i] {
			t.Errorf("%s: process %d was woken %d times, want %d", what, i, len(got), want[i])
		}
		for _, m := range got {
			if m.Kind != store.Wake || m.Instance != instance {
				t.Errorf("%s: process %d was told %+v", what, i, m)
			}
		}
	}
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
	dead, all := uuid.New(), e.waiters(t, 2)
	terms := e.Terms()
	terms.Process = dead // nobody listens for it
	e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true})
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

// listeners returns n processes that listen but have not asked for work.
func (e *Env) listeners(t *testing.T, n int) []*waiter {
	t.Helper()
	all := make([]*waiter, n)
	for i := range all {
		process := uuid.New()
		all[i] = &waiter{process, e.listen(t, e.Runtime.ProcessChannel(process))}
	}
	return all
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

func aProcessThatLeavesPassesItsWakeUpOn(t *testing.T, e *Env) {
	all := e.waiters(t, 3)
	e.one(t)
	e.wantWoken(t, "a job", all, 0)
	leave := func(i int) {
		t.Helper()
		must(t, e.Runtime.Leave(t.Context(), store.Process{ID: all[i].process, Instances: []string{instance}}))
	}
	leave(0) // without having looked
	e.wantWoken(t, "the process leaves", all, 1)
	e.claimOne(t)
	leave(1)
	e.wantWoken(t, "with nothing to do", all)
	leave(2)
	e.one(t)
	e.wantWoken(t, "a job after all have left", all)
}

func aClaimThatComesBackFullDoesNotWait(t *testing.T, e *Env) {
	all := e.waiters(t, 2)
	e.one(t)
	e.wantWoken(t, "a job", all, 0)
	terms := e.Terms()
	terms.Process = all[0].process
	if got := e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true}).Leases; len(got) != 1 {
		t.Fatalf("claimed %d jobs, want 1", len(got))
	}
	e.one(t)
	e.wantWoken(t, "a job while the first is busy", all, 1)

	// Nor does one that waited before, and was busy by the time of the job.
	e.claimOne(t)
	id := e.hiddenJob(t)
	e.ask(t, all[1].process)
	e.ask(t, all[0].process)
	e.put(t, "ZADD", e.Key(instance, "todo"), "1", id) // without a word to anybody
	if got := e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true}).Leases; len(got) != 1 {
		t.Fatalf("claimed %d jobs, want 1", len(got))
	}
	e.Add(t, 2)
	e.wantWoken(t, "2 jobs while the first is busy", all, 1)
}

// hiddenJob returns the member of a job that is in no state for now.
func (e *Env) hiddenJob(t *testing.T) string {
	t.Helper()
	id := e.Enqueue(t, store.NewJob{Delay: time.Hour})[0]
	e.put(t, "ZREM", e.Key(instance, "scheduled"), id[:])
	return string(id[:])
}

func aProcessThatReleasesWhilePausedIsWokenByResume(t *testing.T, e *Env) {
	l := e.hold(t)
	w := e.listeners(t, 1)
	terms := e.Terms()
	terms.Process = w[0].process
	must(t, e.Store.Pause(t.Context(), instance))
	e.Exchange(t, terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Release}}, Claims: []uuid.UUID{l.Worker()}, Wait: true})
	must(t, e.Store.Resume(t.Context(), instance))
	e.wantWoken(t, "resumed", w, 0)
}

// Its own claim has seen what there was.
func aNewlyWaitingProcessIsWokenOnlyByNewWork(t *testing.T, e *Env) {
	all := e.waiters(t, 1)
	e.Later(t, time.Minute)
	e.ask(t, all[0].process) // as it does from time to time
	e.wantWoken(t, "asking again", all)
	e.one(t)
	e.wantWoken(t, "a job", all, 0)
}

func processesThatDiedWaitingAreForgotten(t *testing.T, e *Env) {
	for range 5 {
		e.ask(t, uuid.New())
	}
	e.Later(t, 2*time.Minute)
	e.ask(t, e.Process)
	e.Reap(t)
	left, err := e.Raw.ZRange(t.Context(), e.Key(instance, "waiting"), 0, -1).Result()
	if err != nil || len(left) != 1 || left[0] != e.Runtime.ProcessChannel(e.Process) {
		t.Errorf("%q wait still, %v; want the living one", left, err)
	}
}

// They are forgotten with it, and would not be woken by its next job.
func aDeletedInstanceTellsThoseWhoWait(t *testing.T, e *Env) {
	all := e.waiters(t, 3)
	e.one(t)
	e.wantWoken(t, "a job", all, 0)
	id := e.one(t)
	_, err := e.Runtime.Await(t.Context(), instance, id)
	must(t, err)
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

// By who was to look then and is busy; whoever is told looks, and makes what is due todo.
func aWakeUpForWhatIsDueIsPassedOn(t *testing.T, e *Env) {
	all := e.waiters(t, 2)
	e.Enqueue(t, store.NewJob{Delay: time.Second})
	e.wantWoken(t, "the scheduled job", all, 0)
	e.Exchange(t, e.Terms(), store.Exchange{})
	e.wantWoken(t, "before its time", all)
	e.Later(t, time.Second)
	e.Exchange(t, e.Terms(), store.Exchange{})
	e.wantWoken(t, "at its time", all, 1)
}
