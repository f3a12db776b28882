package storetest

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// What holds after any operation.
func stateCases() []Case {
	return named(aJobIsInExactlyOneStateAfterEachOperation, aFailedCommandLeavesNothingHalfDone, eachJobGoesToOneClaimer,
		aWorkerHoldsOneJobAndItsMappingWhileItDoes, aClaimHandsAWorkerWhatItHolds, terminalIsFinal, emptyMeansEmpty)
}

func aJobIsInExactlyOneStateAfterEachOperation(t *testing.T, e *Env) {
	step := func(want store.State, id uuid.UUID) {
		t.Helper()
		e.Want(t, want, id)
		e.Check(t)
	}
	id := e.one(t)
	step(store.Todo, id)
	for _, v := range []store.Verb{store.Release, store.Retry, store.Snooze} {
		e.end(t, e.claimOne(t), v)
		e.Check(t)
	}
	l := e.claimOne(t)
	step(store.Doing, id)
	if _, _, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), []store.Beat{{Lease: l, Progress: []byte(`1`)}}, nil); err != nil {
		t.Fatal(err)
	}
	step(store.Doing, id)
	e.Later(t, lease+time.Millisecond)
	e.Reap(t)
	step(store.Todo, id)
	must(t, e.Store.Cancel(t.Context(), id))
	step(store.Cancelled, id)
	must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
	step(store.Todo, id)
	e.end(t, e.claimOne(t), store.Bury)
	step(store.Dead, id)
	must(t, e.Store.Requeue(t.Context(), id, store.RequeueMode{}))
	e.end(t, e.claimOne(t), store.Complete)
	step(store.Done, id)
	must(t, e.Store.Delete(t.Context(), id))
	e.WantGone(t, id)
	later := e.Enqueue(t, store.NewJob{Delay: time.Hour})[0]
	step(store.Scheduled, later)
	e.Later(t, time.Hour)
	e.Claim(t, 1)
	step(store.Doing, later)
}

// Whatever command of an operation is the one that fails, or that is carried out and not heard of: what is there then is
// whole, and the operation called again does what it should.
func aFailedCommandLeavesNothingHalfDone(t *testing.T, e *Env) {
	arms := []func(int, ...redistest.Match) <-chan struct{}{e.Fault.FailNth, e.Fault.LoseReplyNth, e.Fault.CutNth, e.Fault.CutReplyNth}
	for _, arm := range arms {
		for n := 1; ; n++ {
			if n > 10 {
				t.Fatal("an operation of more than 10 commands")
			}
			struck := arm(n)
			e.oneLife(t)
			e.checkData(t)
			select {
			case <-struck:
				continue
			default:
			}
			for range n { // use the fault up: the life had fewer commands than that
				_, _ = e.Store.Instances(t.Context())
			}
			break
		}
	}
}

// oneLife runs a job from its enqueue to its end, repeating what fails.
func (e *Env) oneLife(t *testing.T) {
	t.Helper()
	ctx, terms := t.Context(), e.Terms()
	var enqueuing, working store.Lane
	jobs := newJobs(1)
	e.retry(t, func() error {
		outcome, err := e.Runtime.Enqueue(ctx, &enqueuing, instance, jobs)
		return errors.Join(append(outcome, err)...)
	})
	e.checkData(t)
	var out store.Exchanged
	exchange := func(x store.Exchange) {
		t.Helper()
		e.retry(t, func() (err error) {
			out, err = e.Runtime.Exchange(ctx, &working, terms, x)
			return err
		})
		e.checkData(t)
	}
	exchange(store.Exchange{Claims: workers(1)})
	if len(out.Leases) != 1 || out.Leases[0].Job.ID != jobs[0].ID || out.Leases[0].Job.Attempt != 1 {
		t.Fatalf("claimed %+v, want the one job at its first attempt", out.Leases)
	}
	exchange(store.Exchange{Finishes: []store.Finish{{Lease: out.Leases[0], Verb: store.Complete}}})
	if out.Ended[0] != store.Done {
		t.Fatalf("the job ended as %q, want done", out.Ended[0])
	}
}

// retry calls f until it succeeds: ten times at most.
func (e *Env) retry(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("still failing: %v", err)
}

func eachJobGoesToOneClaimer(t *testing.T, e *Env) {
	const claimers, jobs = 8, 400
	ids := e.Add(t, jobs)
	ctx, terms := t.Context(), e.Terms()
	var mu sync.Mutex
	ran := map[uuid.UUID]int{}
	var wg sync.WaitGroup
	for c := range claimers {
		wg.Go(func() {
			var lane store.Lane
			mine := workers(1 + c)
			x := store.Exchange{Claims: mine}
			for range jobs {
				out, err := e.Runtime.Exchange(ctx, &lane, terms, x)
				if err != nil {
					t.Error(err)
					return
				}
				if len(out.Leases) == 0 {
					return
				}
				x.Finishes = nil
				mu.Lock()
				for _, l := range out.Leases {
					ran[l.Job.ID]++
					x.Finishes = append(x.Finishes, store.Finish{Lease: l, Verb: store.Complete})
				}
				mu.Unlock()
			}
			t.Error("more claims brought something than there are jobs")
		})
	}
	wg.Wait()
	for _, id := range ids {
		if ran[id] != 1 {
			t.Errorf("a job was claimed %d times", ran[id])
		}
	}
	if s := e.Stats(t); s.Done != jobs || s.Doing != 0 {
		t.Errorf("stats are %+v, want all done", s)
	}
}

func aWorkerHoldsOneJobAndItsMappingWhileItDoes(t *testing.T, e *Env) {
	mapped := func() map[uuid.UUID]uuid.UUID {
		t.Helper()
		all, err := e.Store.Workers(t.Context(), instance)
		must(t, err)
		m := map[uuid.UUID]uuid.UUID{}
		for _, w := range all {
			m[w.ID] = w.Job
		}
		return m
	}
	verbs := []store.Verb{store.Complete, store.Bury, store.Cancel, store.Release, store.Retry, store.Snooze, 0}
	for _, v := range verbs {
		id := e.one(t)
		l := e.claimOne(t)
		if got, want := mapped(), (map[uuid.UUID]uuid.UUID{l.Worker(): id}); !maps.Equal(got, want) {
			t.Fatalf("while doing the workers are %v, want %v", got, want)
		}
		if v != 0 {
			e.end(t, l, v)
		} else {
			e.Later(t, lease+time.Millisecond)
			e.Reap(t)
		}
		if got := mapped(); len(got) != 0 {
			t.Fatalf("after %q the workers are %v, want none", v, got)
		}
		if s := e.Job(t, id).State; !s.Terminal() {
			must(t, e.Store.Delete(t.Context(), id))
		}
	}
}

func aClaimHandsAWorkerWhatItHolds(t *testing.T, e *Env) {
	ids := e.Add(t, 3)
	worker := workers(1)
	first := e.Exchange(t, e.Terms(), store.Exchange{Claims: worker}).Leases
	again := e.Exchange(t, e.Terms(), store.Exchange{Claims: append(workers(1), worker...)}).Leases
	if len(again) != 2 {
		t.Fatalf("got %d leases, want 2", len(again))
	}
	wantIDs(t, "first claim", jobIDs(first), ids[:1])
	byWorker := map[uuid.UUID]uuid.UUID{}
	for _, l := range again {
		byWorker[l.Worker()] = l.Job.ID
	}
	if byWorker[worker[0]] != ids[0] {
		t.Errorf("the worker was given %s, want what it holds", byWorker[worker[0]])
	}
	i := slices.IndexFunc(again, func(l *store.Lease) bool { return l.Worker() == worker[0] })
	if a := again[i].Job.Attempt; a != 1 {
		t.Errorf("attempt %d, want the first still", a)
	}
	e.Want(t, store.Todo, ids[2])
	e.end(t, first[0], store.Complete) // it is the same lease
	if got := e.Finish(t, store.Finish{Verb: store.Complete}, again[i])[0]; got != "" {
		t.Errorf("the lease was ended twice: %s", got)
	}
}

func terminalIsFinal(t *testing.T, e *Env) {
	ctx := t.Context()
	for verb, state := range map[store.Verb]store.State{store.Complete: store.Done, store.Bury: store.Dead, store.Cancel: store.Cancelled} {
		l := e.hold(t)
		id := l.Job.ID
		e.end(t, l, verb)
		before := e.Kept(t)
		for _, v := range []store.Verb{store.Complete, store.Retry, store.Snooze, store.Release, store.Bury, store.Cancel} {
			if got := e.Finish(t, store.Finish{Verb: v, Error: "late"}, l)[0]; got != "" {
				t.Errorf("%s: a second finish led to %s", state, got)
			}
		}
		verdicts, _, err := e.Runtime.Heartbeat(ctx, e.Terms(), []store.Beat{{Lease: l, Progress: []byte(`1`)}}, []uuid.UUID{l.Worker()})
		if err != nil || verdicts[0] != store.Lost {
			t.Errorf("%s: a heartbeat got %v, %v", state, verdicts, err)
		}
		wantErr(t, "cancel of "+string(state), e.Store.Cancel(ctx, id), store.ErrTerminal)
		outcome, err := e.Runtime.Enqueue(ctx, new(store.Lane), instance, []store.NewJob{{ID: id, Payload: []byte(`2`)}})
		must(t, err)
		wantErr(t, "enqueue of "+string(state), outcome[0], store.ErrExists)
		e.Reap(t)
		if got := e.Claim(t, 5); len(got) != 0 {
			t.Errorf("%s: claimed %d jobs", state, len(got))
		}
		wantSame(t, string(state), before, e.Kept(t))
		e.Want(t, state, id)
		must(t, e.Store.Requeue(ctx, id, store.RequeueMode{}))
		e.Want(t, store.Todo, id)
		must(t, e.Store.Delete(ctx, id))
	}
}

func emptyMeansEmpty(t *testing.T, e *Env) {
	e.one(t)
	l := e.claimOne(t)
	before := e.Content(t)
	e.Fault.Unplug()
	for _, op := range append(operations(), globalOperations()...) {
		err := op.call(e, t, l)
		if err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s with no server: %v, want the server's error", op.name, err)
		}
	}
	e.Fault.Plug()
	e.retry(t, func() error { return errOf(e.Store.Instances(t.Context())) })
	wantSame(t, "with no server", before, e.Content(t))
}
