package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// What administration may do, and what it is told.
func adminCases() []Case {
	return named(requeueIsForWhatHasEnded, deleteIsForWhatNobodyHolds, requeueKeepsProgressAndDropsTheEnd, aJobIsFoundByItsIDAlone,
		statsAddUp, theOldestTodoIsToldByItsAge, instancesAreThoseThatAreUsed, whatNoInstanceCanBeCalledIsNone,
		manyInstancesAreCountedInAFewRoundTrips, workersAreThoseThatHoldAJob, processesAreThoseThatSayTheyLive)
}

// inEachState returns a job in each state.
func (e *Env) inEachState(t *testing.T) map[store.State]uuid.UUID {
	t.Helper()
	m := map[store.State]uuid.UUID{}
	for v, s := range map[store.Verb]store.State{store.Complete: store.Done, store.Bury: store.Dead, store.Cancel: store.Cancelled} {
		l := e.hold(t)
		e.Finish(t, store.Finish{Verb: v, Error: "e", Result: []byte(`1`), Progress: []byte(`2`)}, l)
		m[s] = l.Job.ID
	}
	m[store.Doing] = e.hold(t).Job.ID
	m[store.Parked] = e.one(t)
	e.park(t, m[store.Parked])
	m[store.Todo] = e.one(t)
	m[store.Scheduled] = e.Enqueue(t, store.NewJob{Delay: time.Hour})[0]
	return m
}

func requeueIsForWhatHasEnded(t *testing.T, e *Env) {
	ctx := t.Context()
	for s, id := range e.inEachState(t) {
		err := e.Store.Requeue(ctx, id, store.RequeueMode{})
		if s.Terminal() {
			must(t, err)
			e.Want(t, store.Todo, id)
		} else {
			wantErr(t, "a "+string(s)+" job", err, store.ErrState)
			e.Want(t, s, id)
		}
	}
	wantErr(t, "an unknown id", e.Store.Requeue(ctx, uuid.New(), store.RequeueMode{}), store.ErrNotFound)
}

func deleteIsForWhatNobodyHolds(t *testing.T, e *Env) {
	ctx := t.Context()
	for s, id := range e.inEachState(t) {
		err := e.Store.Delete(ctx, id)
		if s == store.Doing {
			wantErr(t, "a doing job", err, store.ErrState)
			e.Want(t, s, id)
		} else {
			must(t, err)
			e.WantGone(t, id)
			wantErr(t, "a deleted job", e.Store.Delete(ctx, id), store.ErrNotFound)
		}
	}
	if s := e.Stats(t); s.Total != 1 {
		t.Errorf("%d jobs are left, want 1", s.Total)
	}
}

func requeueKeepsProgressAndDropsTheEnd(t *testing.T, e *Env) {
	l := e.hold(t)
	e.end(t, l, store.Retry)
	l = e.claimOne(t)
	e.Finish(t, store.Finish{Verb: store.Complete, Result: []byte(`1`), Progress: []byte(`2`)}, l)
	must(t, e.Store.Requeue(t.Context(), l.Job.ID, store.RequeueMode{}))
	j := e.Job(t, l.Job.ID)
	if j.Result != nil || j.LastError != "" || j.Attempt != 0 || j.Crashes != 0 || !j.FinishedAt.IsZero() {
		t.Errorf("requeued it has %q, %q, attempt %d, crashes %d", j.Result, j.LastError, j.Attempt, j.Crashes)
	}
	if l := e.claimOne(t); l.Job.Attempt != 1 || l.Job.LastError != "" || string(l.Job.Progress) != `2` {
		t.Errorf("claimed again it is attempt %d, with progress %q", l.Job.Attempt, l.Job.Progress)
	}
}

func aJobIsFoundByItsIDAlone(t *testing.T, e *Env) {
	where := map[uuid.UUID]string{}
	for _, name := range []string{"a", "b.c", "d/e:f", "G_h-1"} {
		for _, id := range e.EnqueueTo(t, name, newJobs(2)...) {
			where[id] = name
		}
	}
	for id, name := range where {
		if j := e.Job(t, id); j.ID != id || j.Instance != name || j.State != store.Todo {
			t.Errorf("got %+v, want it in %s", j, name)
		}
	}
	wantErr(t, "an unknown id", errOf(e.Store.Get(t.Context(), uuid.New())), store.ErrNotFound)
	for id := range where {
		e.cancel(t, id)
		must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
		must(t, e.Store.Delete(t.Context(), id))
	}
}

// The total is the number of records and the sum of the states.
func statsAddUp(t *testing.T, e *Env) {
	e.inEachState(t)
	e.Add(t, 3)
	want := store.Stats{Instance: instance, Total: 10, Todo: 4, Scheduled: 1, Doing: 1, Parked: 1, Done: 1, Dead: 1, Cancelled: 1}
	got := e.Stats(t)
	got.OldestTodo = 0
	if got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
	e.EnqueueTo(t, "zoo", newJobs(1)...)
	e.EnqueueTo(t, "ant", newJobs(2)...)
	all, err := e.Store.Stats(t.Context())
	if err != nil || len(all) != 3 || all[0].Instance != "ant" || all[0].Todo != 2 || all[1].Instance != instance || all[2].Instance != "zoo" {
		t.Errorf("stats are %+v, %v; want those of ant, %s and zoo", all, err, instance)
	}
}

func theOldestTodoIsToldByItsAge(t *testing.T, e *Env) {
	if got := e.Stats(t).OldestTodo; got != 0 {
		t.Errorf("with no job the oldest is %v old", got)
	}
	const d = 50 * time.Millisecond
	wait := func() {
		start := e.Now(t)
		for deadline := time.Now().Add(10 * time.Second); e.Now(t).Before(start.Add(d)) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
	start := e.Now(t)
	e.Enqueue(t, store.NewJob{Priority: 1})
	after := e.Now(t)
	wait()
	e.Enqueue(t, store.NewJob{Priority: 10})
	before := e.Now(t)
	got := e.Stats(t).OldestTodo
	if got < before.Sub(after) || got > e.Now(t).Sub(start) {
		t.Errorf("the oldest is %v old, want %v to %v", got, before.Sub(after), e.Now(t).Sub(start))
	}
}

func instancesAreThoseThatAreUsed(t *testing.T, e *Env) {
	ctx := t.Context()
	if got, err := e.Store.Instances(ctx); len(got) != 0 || err != nil {
		t.Errorf("at first there are %q, %v", got, err)
	}
	e.EnqueueTo(t, "b", newJobs(1)...)
	e.EnqueueTo(t, "a", newJobs(1)...)
	must(t, e.Runtime.Announce(ctx, store.Process{ID: e.Process, Instances: []string{"served"}}, time.Minute))
	if got, err := e.Store.Instances(ctx); !slices.Equal(got, []string{"a", "b", "served"}) || err != nil {
		t.Errorf("there are %q, %v", got, err)
	}
	// An instance of which all is gone is seen again when a job comes.
	for _, key := range []string{"jobs", "todo", "meta"} {
		e.put(t, "DEL", e.Key("a", key))
	}
	e.put(t, "SREM", e.Prefix+":instances", "a")
	var lane store.Lane
	job := newJobs(1)
	struck := e.Fault.FailNth(1, redistest.Named("sadd")) // also when that fails at first
	for range 2 {
		_, err := e.Runtime.Enqueue(ctx, &lane, "a", job)
		select {
		case <-struck:
		default:
			t.Errorf("the instance was not noted; %v", err)
		}
	}
	if got, err := e.Store.Instances(ctx); !slices.Contains(got, "a") || err != nil {
		t.Errorf("there are %q, %v; want a among them", got, err)
	}
}

func workersAreThoseThatHoldAJob(t *testing.T, e *Env) {
	ctx := t.Context()
	const n = 25
	e.Add(t, n)
	before := e.Now(t)
	held := map[uuid.UUID]uuid.UUID{}
	for _, l := range e.Claim(t, n) {
		held[l.Worker()] = l.Job.ID
	}
	e.EnqueueTo(t, "other", newJobs(1)...)
	terms := e.Terms()
	terms.Instance = "other"
	e.Exchange(t, terms, store.Exchange{Claims: workers(1)})
	got, err := e.Store.Workers(ctx, instance)
	if err != nil || len(got) != n {
		t.Fatalf("got %d workers, %v; want %d", len(got), err, n)
	}
	for _, w := range got {
		if w.Instance != instance || w.Process != e.Process || held[w.ID] != w.Job || w.Since.Before(before) || w.Since.After(e.Now(t)) {
			t.Errorf("worker %+v", w)
		}
	}
	if all, err := e.Store.Workers(ctx, ""); err != nil || len(all) != n+1 {
		t.Errorf("got %d workers of all instances, %v; want %d", len(all), err, n+1)
	}
	if none, err := e.Store.Workers(ctx, "nobody"); err != nil || len(none) != 0 {
		t.Errorf("got %v, %v; want none", none, err)
	}
}

func processesAreThoseThatSayTheyLive(t *testing.T, e *Env) {
	ctx := t.Context()
	since := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	process := func(i int) store.Process {
		return store.Process{ID: uuid.New(), Node: "n", Host: "h", PID: 7 + i, Instances: []string{instance}, Since: since.Add(time.Duration(-i) * time.Hour)}
	}
	a, b := process(0), process(1)
	for range 2 {
		must(t, e.Runtime.Announce(ctx, a, time.Minute))
	}
	must(t, e.Runtime.Announce(ctx, b, time.Hour))
	list := func(want ...store.Process) {
		t.Helper()
		got, err := e.Store.Processes(ctx)
		same := slices.EqualFunc(got, want, func(g, w store.Process) bool {
			return g.ID == w.ID && g.Node == w.Node && g.Host == w.Host && g.PID == w.PID && g.Since.Equal(w.Since) && slices.Equal(g.Instances, w.Instances)
		})
		if err != nil || !same {
			t.Errorf("alive are %+v, %v; want %+v", got, err, want)
		}
	}
	list(b, a)
	e.Later(t, time.Minute+time.Millisecond)
	list(b)
	must(t, e.Runtime.Announce(ctx, b, time.Hour)) // which removes those that are gone
	if n := e.Raw.ZCard(ctx, e.Prefix+":processes").Val(); n != 1 {
		t.Errorf("%d processes are kept, want 1", n)
	}
	must(t, e.Runtime.Leave(ctx, b))
	list()
	if err := e.Runtime.Leave(ctx, b); err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Errorf("leaving twice: %v", err)
	}
}
