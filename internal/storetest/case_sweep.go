package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The sweeper brings back what a crash left. People report: a limit that counts what is resolved hides what is lost; a unit that merely
// waits is dispatched again at each sweep.
func sweepCases() []Case {
	return named(aChildThatWasNeverEnqueuedIsDispatchedAgain, aChildThatMerelyWaitsIsLeftAlone, aChildThatIsNowhereTooOftenFails,
		aChildThatEndedUnnoticedIsFound, aDelayedChildThatWasLostKeepsItsTime, aBadRecordStopsNothing, oneLostAmongManyResolvedIsReached,
		aSweepCostsNothingWhereThereIsNothing, unresolvedStepsArePaged, rubbishAmongTheChoresIsRemoved, looksAtAnOpenChildGetRarer,
		sweepsUseAFewLanesHoweverManyTheyAre)
}

// forsake writes the record of a child and does not enqueue it, as a crash in between would.
func (e *Env) forsake(t *testing.T, l *store.Lease, edit func(*store.NewJob), names ...string) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	for _, name := range names {
		w := child(l, name)
		if edit != nil {
			edit(&w.Child)
		}
		e.commit(t, l, w)
		ids = append(ids, w.Child.ID)
	}
	return ids
}

func aChildThatWasNeverEnqueuedIsDispatchedAgain(t *testing.T, e *Env) {
	l := e.hold(t)
	edit := func(n *store.NewJob) {
		n.Payload, n.Priority, n.MaxAttempts, n.Metadata = []byte(`{"x":1}`), 9, 4, map[string]string{"k": "v"}
	}
	id := e.forsake(t, l, edit, "thumb")[0]
	e.parkFor(t, l, "thumb")
	if got := e.sweep(t, instance); len(got.Again) != 0 {
		t.Errorf("within its grace it was dispatched again: %+v", got)
	}
	e.Later(t, 11*time.Second)
	got := e.sweep(t, instance)
	if len(got.Again) != 1 || got.Again[0].Child != id || got.Again[0].Sweeps != 1 || got.Again[0].Name != "thumb" {
		t.Errorf("swept: %+v", got)
	}
	j := e.Job(t, id)
	if j.State != store.Todo || j.Priority != 9 || string(j.Payload) != `{"x":1}` || j.MaxAttempts != 4 || j.Metadata["k"] != "v" || j.Parent.ID != l.Job.ID {
		t.Errorf("it is %+v", j)
	}
	e.finishChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete})
	e.Want(t, store.Todo, l.Job.ID)
}

func aChildThatMerelyWaitsIsLeftAlone(t *testing.T, e *Env) {
	l := e.hold(t)
	id := e.spawn(t, l, nil, "thumb")[0]
	e.parkFor(t, l, "thumb")
	for range 50 {
		e.Later(t, 11*time.Minute)
		if got := e.sweep(t, instance); len(got.Again)+len(got.Lost)+len(got.Found) != 0 {
			t.Fatalf("swept: %+v", got)
		}
	}
	if s := e.step(t, l.Job.ID, "thumb"); s.Sweeps != 0 || s.State != store.StepDispatched {
		t.Errorf("its step is %+v", s)
	}
	e.Want(t, store.Todo, id)
}

func aChildThatIsNowhereTooOftenFails(t *testing.T, e *Env) {
	l := e.hold(t)
	id := e.forsake(t, l, nil, "thumb")[0]
	e.parkFor(t, l, "thumb")
	for i := range store.MaxSweeps {
		e.Later(t, 11*time.Minute)
		if got := e.sweep(t, instance); len(got.Again) != 1 || got.Again[0].Sweeps != i+1 {
			t.Fatalf("sweep %d: %+v", i, got)
		}
		e.put(t, "DEL", e.Key(childInstance, "jobs"), e.Key(childInstance, "todo"), e.Key(childInstance, "parents"))
	}
	e.Later(t, 11*time.Minute)
	if got := e.sweep(t, instance); len(got.Lost) != 1 || got.Lost[0].Child != id || got.Lost[0].State != store.StepFailed {
		t.Errorf("the last sweep: %+v", got)
	}
	e.wantStep(t, l.Job.ID, "thumb", store.StepFailed, "", store.FateLost)
	e.Want(t, store.Todo, l.Job.ID)
	if got := e.Raw.Exists(t.Context(), e.Key(instance, "chores"), e.Key(instance, "children")).Val(); got != 0 {
		t.Error("something is left to be looked after")
	}
}

func aChildThatEndedUnnoticedIsFound(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "thumb")
	e.parkFor(t, l, "thumb")
	e.endChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete, Result: []byte(`7`)})
	e.put(t, "DEL", e.Key(childInstance, "outbox"), e.Key(childInstance, "chores")) // as if the delivery was lost by its server
	e.Later(t, 11*time.Second)
	if got := e.sweep(t, instance); len(got.Found) != 1 || got.Found[0].Name != "thumb" {
		t.Errorf("swept: %+v", got)
	}
	e.wantStep(t, l.Job.ID, "thumb", store.StepCompleted, `7`, store.FateDone)
	e.Want(t, store.Todo, l.Job.ID)
}

func aDelayedChildThatWasLostKeepsItsTime(t *testing.T, e *Env) {
	l := e.hold(t)
	id := e.forsake(t, l, func(n *store.NewJob) { n.Delay = time.Hour }, "thumb")[0]
	e.Later(t, 11*time.Second)
	e.sweep(t, instance)
	if j := e.Job(t, id); j.State != store.Scheduled || (j.RunAt.Sub(e.Now(t))-time.Hour+11*time.Second).Abs() > e.slack() {
		t.Errorf("it is %s, due at %v", j.State, j.RunAt)
	}
}

func aBadRecordStopsNothing(t *testing.T, e *Env) {
	l := e.hold(t)
	names := []string{"a", "b", "c"}
	ids := e.forsake(t, l, nil, names...)
	key := e.stepsKey(l.Job.ID)
	e.put(t, "HSET", key, "b", "no record at all")
	e.parkFor(t, l, "a", "c")
	e.Later(t, 11*time.Second)
	got := e.sweep(t, instance)
	if len(got.Again) != 2 || len(got.Lost) != 1 || got.Lost[0].Name != "b" {
		t.Errorf("swept: %+v", got)
	}
	for _, i := range []int{0, 2} {
		e.Want(t, store.Todo, ids[i])
	}
	e.wantStep(t, l.Job.ID, "b", store.StepFailed, "", store.FateLost)
	e.Tampered = true // its bytes are counted wrongly
}

func oneLostAmongManyResolvedIsReached(t *testing.T, e *Env) {
	n := e.size(300, 9_000)
	parents := e.size(1, 12)
	var lost uuid.UUID
	for p := range parents {
		l := e.hold(t)
		var writes []store.StepWrite
		var outcomes []store.Outcome
		for _, name := range stepsOf(n) {
			w := child(l, name)
			w.Child.ID = store.ChildID(&l.Job, name, 0)
			writes = append(writes, w)
			outcomes = append(outcomes, store.Outcome{Child: w.Child.ID, Instance: childInstance, Parent: w.Child.Parent, Fate: store.FateDone, Text: `1`})
		}
		if p == parents/2 {
			lost = outcomes[n/2].Child
			outcomes = slices.Delete(outcomes, n/2, n/2+1)
		}
		for some := range slices.Chunk(writes, store.MaxCall) {
			e.commit(t, l, some...)
		}
		must(t, e.Runtime.Relay(t.Context(), outcomes))
		e.sleepFor(t, l, "nap", 24*time.Hour)
	}
	e.Later(t, 11*time.Second)
	if got := e.sweep(t, instance); len(got.Again) != 1 || got.Again[0].Child != lost {
		t.Errorf("one pass over %d records: %+v", n*parents, got)
	}
}

func aSweepCostsNothingWhereThereIsNothing(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("a", `1`))
	if m := e.Reap(t); m.Sweep >= 0 {
		t.Errorf("a reap says that there is something to do in %v", m.Sweep)
	}
	if got := e.sweep(t, instance); got.Next >= 0 {
		t.Errorf("a sweep: %+v", got)
	}
}

func unresolvedStepsArePaged(t *testing.T, e *Env) {
	n := e.size(250, 2500)
	l := e.hold(t)
	e.spawn(t, l, nil, stepsOf(n)...)
	seen, cursor := map[string]bool{}, ""
	for pages := 1; ; pages++ {
		page, err := e.Store.Unresolved(t.Context(), instance, cursor)
		if err != nil || len(page.Steps) > 100 || pages > n {
			t.Fatalf("page %d: %d steps, %v", pages, len(page.Steps), err)
		}
		for _, s := range page.Steps {
			seen[s.Name] = s.Job == l.Job.ID && s.Instance == childInstance && s.Child == store.ChildID(&l.Job, s.Name, 0)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	right := 0
	for _, ok := range seen {
		if ok {
			right++
		}
	}
	if right != n {
		t.Errorf("%d of %d were listed", right, n)
	}
	wantErr(t, "a bad cursor", errOf(e.Store.Unresolved(t.Context(), instance, "no cursor!")), store.ErrInvalid)
	wantErr(t, "a bad cursor of a job's steps", errOf(e.Store.Steps(t.Context(), l.Job.ID, "no cursor!")), store.ErrInvalid)
}

func rubbishAmongTheChoresIsRemoved(t *testing.T, e *Env) {
	l := e.hold(t)
	id := e.forsake(t, l, nil, "thumb")[0]
	for _, rubbish := range []string{"", "o", "ofoo", "r", "rfoo", "s", "scfoo", "zz"} {
		e.put(t, "ZADD", e.Key(instance, "chores"), 1, rubbish)
	}
	e.Later(t, 11*time.Second)
	if got := e.sweep(t, instance); len(got.Again) != 1 || got.Again[0].Child != id {
		t.Errorf("swept: %+v", got)
	}
	if n := e.Raw.ZCard(t.Context(), e.Key(instance, "chores")).Val(); n != 1 {
		t.Errorf("%d chores are left, want the one child", n)
	}
}

func looksAtAnOpenChildGetRarer(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "thumb")
	looks, last := 0, time.Duration(0)
	for passed := time.Duration(0); passed < 3*time.Hour && looks < 100; looks++ {
		due := e.Raw.ZRangeWithScores(t.Context(), e.Key(instance, "chores"), 0, 0).Val()[0].Score
		wait := time.UnixMilli(int64(due)).Sub(e.Now(t))
		if wait < last-e.slack() || wait > 10*time.Minute {
			t.Errorf("look %d comes %v after the one before, which came after %v", looks+1, wait, last)
		}
		e.Later(t, wait)
		e.sweep(t, instance)
		passed, last = passed+wait, wait
	}
	if looks < 15 || looks > 40 || last < 9*time.Minute {
		t.Errorf("%d looks in three hours, the last after %v", looks, last)
	}
}

func sweepsUseAFewLanesHoweverManyTheyAre(t *testing.T, e *Env) {
	l := e.hold(t)
	for i := range 10 {
		e.forsake(t, l, nil, stepsOf(10)[i])
		e.Later(t, 11*time.Minute)
		if got := e.sweep(t, instance); len(got.Again) != 1 {
			t.Fatalf("swept: %+v", got)
		}
	}
	lanes := 0
	for _, key := range e.keys(t) {
		if strings.HasPrefix(key, e.Key(childInstance, "lane:")) {
			lanes++
		}
	}
	if lanes != 1 {
		t.Errorf("10 sweeps left %d lanes, want the one that they use again", lanes)
	}
}
