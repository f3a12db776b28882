package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

func aRepeatedEnqueueIsRefusedAsTheFirst(t *testing.T, e *Env) {
	first := unique(store.UniqueTerminal, "k")
	must(t, e.try(t, first)[0])
	jobs := []store.NewJob{unique(store.UniqueTerminal, "k"), unique(store.UniqueTerminal, "j"), unique(store.UniqueTerminal, "k")}
	var lane store.Lane
	_, err := e.Runtime.Enqueue(t.Context(), &lane, instance, newJobs(1)) // so that the lane has an id
	must(t, err)
	again := lane
	outcome, err := e.Runtime.Enqueue(t.Context(), &lane, instance, jobs)
	must(t, err)
	must(t, e.Store.Delete(t.Context(), first.ID)) // the key is free now; what was answered stays
	repeated, err := e.Runtime.Enqueue(t.Context(), &again, instance, jobs)
	must(t, err)
	for _, o := range [][]error{outcome, repeated} {
		wantHolder(t, "the first", o[0], first.ID)
		must(t, o[1])
		wantHolder(t, "the third", o[2], first.ID)
	}
	e.WantGone(t, jobs[0].ID)
}

func aWindowHoldsUntilItIsOverAndIsRenewed(t *testing.T, e *Env) {
	first := unique(store.UniqueWindow, "k")
	must(t, e.try(t, first)[0])
	e.end(t, e.claimOne(t), store.Complete)
	must(t, e.Store.Delete(t.Context(), first.ID)) // the window holds all the same
	refused := func(what string, holder uuid.UUID) {
		t.Helper()
		wantHolder(t, what, e.try(t, unique(store.UniqueWindow, "k"))[0], holder)
		wantHolder(t, what+", another mode", e.try(t, unique(store.UniqueDone, "k"))[0], holder)
	}
	e.Later(t, window/2)
	refused("half-way", first.ID) // which does not make it longer
	e.Later(t, window/2-time.Minute)
	e.Reap(t)
	refused("a minute before its end", first.ID)
	e.Later(t, time.Minute)
	second := unique(store.UniqueWindow, "k")
	must(t, e.try(t, second)[0])
	e.Later(t, window/2)
	e.Reap(t)
	refused("in the next window", second.ID)

	must(t, e.Store.Delete(t.Context(), second.ID))
	must(t, e.try(t, second)[0]) // the owner's own id renews it
	e.Later(t, window-time.Minute)
	e.Reap(t)
	refused("renewed", second.ID)
	e.Later(t, time.Minute)
	e.Reap(t)
	for _, key := range []string{"locks", "windows"} {
		if e.Raw.Exists(t.Context(), e.Key(instance, key)).Val() != 0 {
			t.Errorf("%s outlives the window", key)
		}
	}
	if e.Fake { // to the millisecond
		third, fourth := unique(store.UniqueWindow, "k"), unique(store.UniqueWindow, "k")
		third.Unique.Window = time.Second - 1 // rounded up
		must(t, e.try(t, third)[0])
		e.Later(t, time.Second-time.Millisecond)
		wantHolder(t, "a millisecond early", e.try(t, fourth)[0], third.ID)
		e.Later(t, time.Millisecond)
		must(t, e.try(t, fourth)[0])
	}
}

// What is left of a window that is over must not take the key from the job that has it now.
func aWindowThatIsOverTakesNoOthersKey(t *testing.T, e *Env) {
	enqueue := func(j store.NewJob) { must(t, e.try(t, j)[0]) }
	for name, take := range map[string]func(j store.NewJob){
		"enqueued": enqueue,
		"requeued": func(j store.NewJob) { must(t, e.Store.Requeue(t.Context(), j.ID, store.RequeueMode{})) },
	} {
		owner := unique(store.UniqueTerminal, "k")
		if name == "requeued" {
			enqueue(owner)
			e.end(t, e.claimOne(t), store.Complete)
		}
		enqueue(unique(store.UniqueWindow, "k"))
		e.end(t, e.claimOne(t), store.Complete)
		e.Later(t, window+time.Second)
		take(owner)
		e.Reap(t)
		e.Reap(t)
		wantHolder(t, name, e.try(t, unique(store.UniqueTerminal, "k"))[0], owner.ID)
		must(t, e.Store.DeleteInstance(t.Context(), instance, false))
	}
}

func requeueTakesTheKeyAgainOrNamesTheHolder(t *testing.T, e *Env) {
	ctx := t.Context()
	for _, mode := range []store.UniqueMode{store.UniqueClaimed, store.UniqueDone, store.UniqueTerminal} {
		first, second, third := unique(mode, "k"), unique(mode, "k"), unique(mode, "k")
		must(t, e.try(t, first)[0])
		e.end(t, e.claimOne(t), store.Complete)
		must(t, e.try(t, second)[0])
		before := e.Kept(t)
		wantHolder(t, "requeue", e.Store.Requeue(ctx, first.ID, store.RequeueMode{}), second.ID)
		n, err := e.Store.RequeueAll(ctx, store.Filter{State: store.Done})
		if n != 0 || err != nil {
			t.Errorf("requeued %d, %v; want none", n, err)
		}
		wantSame(t, "a requeue that was refused", before, e.Kept(t))
		e.end(t, e.claimOne(t), store.Complete)
		n, err = e.Store.RequeueAll(ctx, store.Filter{State: store.Done}) // two with one key: one of them gets it
		if n != 1 || err != nil {
			t.Errorf("requeued %d, %v; want one", n, err)
		}
		owner := e.Listed(t, store.Todo)
		wantHolder(t, "after the requeue", e.try(t, third)[0], owner[0])
		l := e.claimOne(t)
		if mode != store.UniqueClaimed {
			wantHolder(t, "claimed", e.try(t, third)[0], owner[0])
			e.end(t, l, store.Complete)
		}
		must(t, e.try(t, third)[0])
		must(t, e.Store.DeleteInstance(ctx, instance, true))
	}
}

// Whatever else was lost with it: a key is not held for ever by a job that is not there.
func aKeyOfAJobThatVanishedIsFree(t *testing.T, e *Env) {
	for _, mode := range []store.UniqueMode{store.UniqueClaimed, store.UniqueDone, store.UniqueTerminal} {
		gone, next := unique(mode, "k"), unique(mode, "k")
		must(t, e.try(t, gone)[0])
		for key, remove := range map[string]string{"jobs": "HDEL", "owners": "HDEL", "todo": "ZREM"} {
			e.put(t, remove, e.Key(instance, key), gone.ID[:])
		}
		must(t, e.try(t, next)[0])
		wantHolder(t, "the next", e.try(t, unique(mode, "k"))[0], next.ID)
		must(t, e.Store.DeleteInstance(t.Context(), instance, false))
	}
}

func keysAreOfOneInstance(t *testing.T, e *Env) {
	must(t, e.try(t, unique(store.UniqueDone, "k"))[0])
	id := e.EnqueueTo(t, "other", unique(store.UniqueDone, "k"))[0]
	if j := e.Job(t, id); j.Instance != "other" {
		t.Errorf("it is of %s", j.Instance)
	}
}

func aKeyMayBeAnyText(t *testing.T, e *Env) {
	long := string(sized(store.MaxKey))
	for _, key := range []string{" ", "12 a", "a\nb", "\x00\xff\x00", "ключ", "{x}:%d", long} {
		for _, mode := range "cdtw" {
			first := unique(store.UniqueMode(mode), key)
			must(t, e.try(t, first)[0])
			wantHolder(t, key, e.try(t, unique(store.UniqueMode(mode), key))[0], first.ID)
			if key != long {
				must(t, e.try(t, unique(store.UniqueMode(mode), key+" "))[0])
			}
			e.end(t, e.claimOne(t), store.Complete)
			if mode != 'w' {
				must(t, e.try(t, unique(store.UniqueMode(mode), key))[0])
			}
			must(t, e.Store.DeleteInstance(t.Context(), instance, true))
		}
	}
}
