package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A key keeps a second job out, until its mode says otherwise.
func uniqueCases() []Case {
	return named(aKeyIsFreeAgainWhenItsModeSays, onlyItsOwnerReleasesAKey, aRefusedJobLeavesNothing, keysAreUniqueWithinACall,
		aRepeatedEnqueueIsRefusedAsTheFirst, aWindowHoldsUntilItIsOverAndIsRenewed, requeueTakesTheKeyAgainOrNamesTheHolder,
		aWindowThatIsOverTakesNoOthersKey, keysAreOfOneInstance, aKeyMayBeAnyText, aKeyOfAJobThatVanishedIsFree)
}

const window = time.Hour

func unique(mode store.UniqueMode, key string) store.NewJob {
	u := store.Unique{Key: key, Mode: mode}
	if mode == store.UniqueWindow {
		u.Window = window
	}
	return store.NewJob{ID: uuid.New(), Payload: []byte(`{}`), Unique: u}
}

// try enqueues jobs, some of which may be refused.
func (e *Env) try(t testing.TB, jobs ...store.NewJob) []error {
	t.Helper()
	outcome, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, jobs)
	if err != nil {
		t.Fatalf("enqueuing: %v", err)
	}
	return outcome
}

// wantHolder fails the test unless the error is that of a key that another job has.
func wantHolder(t testing.TB, what string, err error, holder uuid.UUID) {
	t.Helper()
	var d *store.DuplicateError
	if !errors.As(err, &d) || !errors.Is(err, store.ErrDuplicate) || d.Holder != holder {
		t.Errorf("%s: %v, want a *DuplicateError that names %s", what, err, holder)
	}
}

// become is what may become of a job that has a key, and in which modes the key is free then.
type become struct {
	name string
	free string // the modes
	do   func(e *Env, t *testing.T, id uuid.UUID)
}

func finishing(v store.Verb) func(e *Env, t *testing.T, id uuid.UUID) {
	return func(e *Env, t *testing.T, id uuid.UUID) {
		l := e.claimOne(t)
		e.Finish(t, store.Finish{Verb: v, Delay: 10 * time.Hour}, l)
	}
}

func becomes() []become {
	return []become{
		{"waiting", "", func(*Env, *testing.T, uuid.UUID) {}},
		{"claimed", "c", func(e *Env, t *testing.T, _ uuid.UUID) { e.claimOne(t) }},
		{"complete", "cdt", finishing(store.Complete)},
		{"bury", "ct", finishing(store.Bury)},
		{"cancel by its worker", "ct", finishing(store.Cancel)},
		{"release", "c", finishing(store.Release)},
		{"retry", "c", finishing(store.Retry)},
		{"snooze", "c", finishing(store.Snooze)},
		{"cancel while todo", "ct", func(e *Env, t *testing.T, id uuid.UUID) { must(t, e.Store.Cancel(t.Context(), id)) }},
		{"cancel while doing", "ct", func(e *Env, t *testing.T, id uuid.UUID) {
			l := e.claimOne(t)
			must(t, e.Store.Cancel(t.Context(), id))
			e.end(t, l, store.Retry)
		}},
		{"reap", "c", func(e *Env, t *testing.T, _ uuid.UUID) { e.crash(t) }},
		{"reap of a cancelled one", "ct", func(e *Env, t *testing.T, id uuid.UUID) {
			e.claimOne(t)
			must(t, e.Store.Cancel(t.Context(), id))
			e.Later(t, lease+time.Second)
			e.Reap(t)
		}},
		{"dead by crashes", "ct", func(e *Env, t *testing.T, _ uuid.UUID) {
			for range e.Terms().MaxCrashes {
				e.crash(t)
			}
		}},
		{"lost record", "ct", func(e *Env, t *testing.T, id uuid.UUID) {
			e.loseRecord(t, id)
			e.Claim(t, 1)
		}},
		{"delete", "cdt", func(e *Env, t *testing.T, id uuid.UUID) { must(t, e.Store.Delete(t.Context(), id)) }},
		{"delete of a dead one", "cdt", func(e *Env, t *testing.T, id uuid.UUID) {
			e.end(t, e.claimOne(t), store.Bury)
			must(t, e.Store.Delete(t.Context(), id))
		}},
		{"purge", "cdt", func(e *Env, t *testing.T, id uuid.UUID) {
			e.end(t, e.claimOne(t), store.Bury)
			must(t, errOf(e.Store.Purge(t.Context(), store.Filter{State: store.Dead})))
		}},
		{"kept not at all", "cdt", func(e *Env, t *testing.T, _ uuid.UUID) {
			terms := e.Terms()
			terms.Done = store.Retention{}
			e.finishAll(t, terms, store.Cancel, e.claimOne(t))
		}},
		{"trim by age", "cdt", func(e *Env, t *testing.T, _ uuid.UUID) {
			e.end(t, e.claimOne(t), store.Bury)
			e.Later(t, 10*time.Minute)
			terms := e.Terms()
			terms.Dead = store.Retention{Age: time.Minute}
			e.reap(t, terms)
		}},
		{"trim by count", "cdt", func(e *Env, t *testing.T, _ uuid.UUID) {
			terms := e.Terms()
			terms.Dead = store.Retention{Count: 1}
			e.end(t, e.claimOne(t), store.Bury)
			e.Later(t, time.Millisecond)
			e.one(t)
			e.finishAll(t, terms, store.Bury, e.claimOne(t))
		}},
		{"requeue", "", func(e *Env, t *testing.T, id uuid.UUID) {
			e.end(t, e.claimOne(t), store.Complete)
			must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
		}},
		{"requeue, then done", "cdt", func(e *Env, t *testing.T, id uuid.UUID) {
			e.end(t, e.claimOne(t), store.Bury)
			must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
			e.end(t, e.claimOne(t), store.Complete)
		}},
	}
}

func aKeyIsFreeAgainWhenItsModeSays(t *testing.T, e *Env) {
	for _, mode := range "cdtw" {
		for _, b := range becomes() {
			first, second := unique(store.UniqueMode(mode), "k"), unique(store.UniqueMode(mode), "k")
			must(t, e.try(t, first)[0])
			b.do(e, t, first.ID)
			err := e.try(t, second)[0]
			free := false
			for _, m := range b.free {
				free = free || m == mode
			}
			switch what := string(mode) + ": " + b.name; {
			case free && err != nil:
				t.Errorf("%s: the key is not free: %v", what, err)
			case !free:
				wantHolder(t, what, err, first.ID)
				e.WantGone(t, second.ID)
			}
			e.Check(t)
			must(t, e.Store.DeleteInstance(t.Context(), instance, true))
		}
	}
}

func onlyItsOwnerReleasesAKey(t *testing.T, e *Env) {
	for _, mode := range []store.UniqueMode{store.UniqueClaimed, store.UniqueDone, store.UniqueTerminal} {
		first, second, third := unique(mode, "k"), unique(mode, "k"), unique(mode, "k")
		must(t, e.try(t, first)[0])
		l := e.claimOne(t)
		if mode != store.UniqueClaimed {
			e.end(t, l, store.Complete)
		}
		must(t, e.try(t, second)[0])
		if mode == store.UniqueClaimed { // it comes back, is claimed and ends: the key is another's by now
			e.end(t, l, store.Release)
			l = e.claimOne(t)
			wantIDs(t, "claimed", []uuid.UUID{l.Job.ID}, []uuid.UUID{first.ID})
			wantHolder(t, "claimed again", e.try(t, third)[0], second.ID)
			e.end(t, l, store.Complete)
		}
		wantHolder(t, "the first is done", e.try(t, third)[0], second.ID)
		must(t, e.Store.Delete(t.Context(), first.ID))
		wantHolder(t, "the first is deleted", e.try(t, third)[0], second.ID)
		must(t, e.Store.Delete(t.Context(), second.ID))
		must(t, e.try(t, third)[0])
		must(t, e.Store.Delete(t.Context(), third.ID))
	}
}

func aRefusedJobLeavesNothing(t *testing.T, e *Env) {
	for _, mode := range "cdtw" {
		first, second := unique(store.UniqueMode(mode), "k"), unique(store.UniqueMode(mode), "k")
		must(t, e.try(t, first)[0])
		second.Deadline, second.Delay = e.Now(t).Add(time.Hour), time.Minute
		before := e.Kept(t)
		wantHolder(t, "the second", e.try(t, second)[0], first.ID)
		known := unique(store.UniqueMode(mode), "another") // a known id with a key that is free
		known.ID = first.ID
		wantErr(t, "a known id", e.try(t, known)[0], store.ErrExists)
		wantSame(t, "refused", before, e.Kept(t))
		third := unique(store.UniqueMode(mode), "another")
		must(t, e.try(t, third)[0])
		must(t, e.Store.DeleteInstance(t.Context(), instance, true))
	}
}

func keysAreUniqueWithinACall(t *testing.T, e *Env) {
	jobs := []store.NewJob{unique('d', "a"), unique('t', "a"), unique('w', "b"), unique('c', "b"), unique('c', "c"), {ID: uuid.New(), Payload: []byte(`1`)}}
	twice := unique('d', "d") // refused for its id, so its key stays free
	twice.ID = jobs[0].ID
	jobs = append(jobs, twice, unique('d', "d"))
	outcome := e.try(t, jobs...)
	for i, holder := range []int{-1, 0, -1, 2, -1, -1, -1, -1} {
		switch {
		case i == 6:
			wantErr(t, "an id twice", outcome[i], store.ErrExists)
		case holder < 0:
			must(t, outcome[i])
		default:
			wantHolder(t, "a key twice", outcome[i], jobs[holder].ID)
		}
	}
	if n := e.Stats(t).Todo; n != 5 {
		t.Errorf("%d jobs were accepted, want 5", n)
	}
}
