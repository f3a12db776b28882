package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Which processes wait, so that they may be woken: those that asked last in vain and have not left.
func waitCases() []Case {
	return named(aProcessThatLeavesPassesItsWakeUpOn, aClaimThatComesBackFullDoesNotWait, aProcessThatReleasesWhilePausedIsWokenByResume,
		aNewlyWaitingProcessIsWokenOnlyByNewWork, processesThatDiedWaitingAreForgotten, aWakeUpForWhatIsDueIsPassedOn)
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
