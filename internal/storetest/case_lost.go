package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// Requests happen once, whatever is lost on the way.
func lostCases() []Case {
	return named(aLostReplyOfAClaimCostsNothing, aLostReplyOfAFinishCostsNothing, aLostReplyOfAnEnqueueCostsNothing,
		aRepeatedRequestOfAnEndedAndRemovedJobIsAnsweredAsTheFirst, aRepeatedFinishAndClaimIsAnsweredAsTheFirst,
		theClientsOwnRetryHappensOnce, aRequestThatNeverArrivedIsCarriedOut, aRepeatedClaimAfterAReapBringsNothing, anAbandonedClaimIsHandedOverAgain)
}

var onlyScripts = redistest.Named("eval")

// loseReply makes a call that is carried out, and of which the reply is lost.
func (e *Env) loseReply(t *testing.T, call func() error) {
	t.Helper()
	struck := e.Fault.LoseReplyNth(1, onlyScripts)
	if err := call(); !errors.Is(err, redistest.ErrFault) {
		t.Fatalf("with its reply lost a call ended with %v", err)
	}
	<-struck
}

// lost makes a call of which the reply is lost, and then the same again.
func (e *Env) lost(t *testing.T, call func() error) {
	t.Helper()
	e.loseReply(t, call)
	if err := call(); err != nil {
		t.Fatalf("the call again: %v", err)
	}
}

// twice makes an exchange of which the reply is lost, and returns what the second try brings.
func (e *Env) twice(t *testing.T, lane *store.Lane, x store.Exchange) (out store.Exchanged) {
	t.Helper()
	e.lost(t, func() (err error) {
		out, err = e.Runtime.Exchange(t.Context(), lane, e.Terms(), x)
		return err
	})
	return out
}

func aLostReplyOfAClaimCostsNothing(t *testing.T, e *Env) {
	ids := e.Add(t, 5)
	var lane store.Lane
	mine := workers(3)
	got := e.twice(t, &lane, store.Exchange{Claims: mine}).Leases
	wantIDs(t, "claimed", jobIDs(got), ids[:3])
	for i, l := range got {
		if l.Worker() != mine[i] || l.Job.Attempt != 1 || l.Broken != nil || string(l.Job.Payload) != `{}` {
			t.Errorf("lease %+v, want the first attempt of worker %d", l.Job, i)
		}
	}
	if s := e.Stats(t); s.Doing != 3 || s.Todo != 2 {
		t.Errorf("stats are %+v, want 3 doing and 2 todo", s)
	}
	for i, s := range e.Finish(t, store.Finish{Verb: store.Complete}, got...) {
		if s != store.Done {
			t.Errorf("finish %d led to %q", i, s)
		}
	}
}

func aLostReplyOfAFinishCostsNothing(t *testing.T, e *Env) {
	var lane store.Lane
	for _, v := range allVerbs {
		l := e.hold(t)
		out := e.twice(t, &lane, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: v, Error: "once"}}})
		j := e.Job(t, l.Job.ID)
		if out.Ended[0] != j.State || j.State == store.Doing || out.Ended[0] == "" {
			t.Errorf("%q again is answered with %q; the job is %s", v, out.Ended[0], j.State)
		}
		charged := 1
		if v == store.Release || v == store.Snooze {
			charged = 0
		}
		if j.Attempt != charged {
			t.Errorf("after %q twice attempt %d is charged, want %d", v, j.Attempt, charged)
		}
		if !j.State.Terminal() {
			must(t, e.Store.Delete(t.Context(), j.ID))
		}
	}
}

func aLostReplyOfAnEnqueueCostsNothing(t *testing.T, e *Env) {
	jobs := newJobs(4)
	known := e.Enqueue(t, jobs[2])
	var lane store.Lane
	e.lost(t, func() error {
		outcome, err := e.Runtime.Enqueue(t.Context(), &lane, instance, jobs)
		if err == nil {
			for i, one := range outcome {
				if i == 2 {
					wantErr(t, "a known id", one, store.ErrExists)
				} else {
					must(t, one)
				}
			}
		}
		return err
	})
	wantIDs(t, "todo", e.Listed(t, store.Todo), []uuid.UUID{known[0], jobs[0].ID, jobs[1].ID, jobs[3].ID})
	outcome, err := e.Runtime.Enqueue(t.Context(), &lane, instance, jobs[:1]) // another request, which the caller means
	must(t, err)
	wantErr(t, "the same id in another request", outcome[0], store.ErrExists)
}

func aRepeatedRequestOfAnEndedAndRemovedJobIsAnsweredAsTheFirst(t *testing.T, e *Env) {
	ctx, terms := t.Context(), e.Terms()
	terms.Done = store.Retention{} // nothing is kept
	jobs := newJobs(1)
	var enqueuing, working, ending store.Lane
	// Each reply is lost, and the request is repeated when all is over.
	e.loseReply(t, func() error { return errOf(e.Runtime.Enqueue(ctx, &enqueuing, instance, jobs)) })
	l := e.claimOne(t)
	finish := store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Complete}}}
	e.loseReply(t, func() error { return errOf(e.Runtime.Exchange(ctx, &ending, terms, finish)) })
	e.WantGone(t, jobs[0].ID)
	outcome, err := e.Runtime.Enqueue(ctx, &enqueuing, instance, jobs)
	if err != nil || outcome[0] != nil {
		t.Errorf("the enqueue again is answered with %v, %v; want accepted", outcome, err)
	}
	out, err := e.Runtime.Exchange(ctx, &ending, terms, finish)
	if err != nil || out.Ended[0] != store.Done {
		t.Errorf("the finish again is answered with %q, %v; want done", out.Ended, err)
	}
	if got := e.Claim(t, 1); len(got) != 0 {
		t.Error("the job was accepted twice")
	}

	// The same for a claim whose job has ended and is gone: there is nothing to hand over any more.
	e.one(t)
	mine := workers(1)
	e.loseReply(t, func() error { return errOf(e.Runtime.Exchange(ctx, &working, terms, store.Exchange{Claims: mine})) })
	_, found, err := e.Runtime.Heartbeat(ctx, terms, nil, mine)
	must(t, err)
	e.end(t, found[0], store.Bury)
	must(t, e.Store.Delete(ctx, found[0].Job.ID))
	e.one(t)
	if out, err = e.Runtime.Exchange(ctx, &working, terms, store.Exchange{Claims: mine}); err != nil || len(out.Leases) != 0 {
		t.Errorf("the claim again is answered with %d jobs, %v; want none", len(out.Leases), err)
	}
	if out.Next != 0 {
		t.Errorf("the next look is after %v, want at once", out.Next)
	}
}

func aRepeatedFinishAndClaimIsAnsweredAsTheFirst(t *testing.T, e *Env) {
	ids := e.Add(t, 3)
	var lane store.Lane
	mine := workers(1)
	first := e.twice(t, &lane, store.Exchange{Claims: mine}).Leases[0]
	out := e.twice(t, &lane, store.Exchange{Finishes: []store.Finish{{Lease: first, Verb: store.Complete}}, Claims: mine})
	if out.Ended[0] != store.Done || len(out.Leases) != 1 || out.Leases[0].Job.ID != ids[1] {
		t.Fatalf("answered with %+v, want done and the second job", out)
	}
	e.Want(t, store.Todo, ids[2])
	e.end(t, out.Leases[0], store.Complete)
}

// go-redis repeats a command by itself when the connection is lost before the answer.
func theClientsOwnRetryHappensOnce(t *testing.T, e *Env) {
	jobs := newJobs(1)
	struck := e.Fault.CutReplyNth(1, onlyScripts)
	outcome, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, jobs)
	if err != nil || outcome[0] != nil {
		t.Errorf("the enqueue ended with %v, %v; want accepted", outcome, err)
	}
	<-struck
	struck = e.Fault.CutReplyNth(1, onlyScripts)
	l := e.claimOne(t)
	<-struck
	if l.Job.Attempt != 1 {
		t.Errorf("attempt %d, want 1", l.Job.Attempt)
	}
	struck = e.Fault.CutReplyNth(1, onlyScripts)
	if got := e.Finish(t, store.Finish{Verb: store.Complete}, l)[0]; got != store.Done {
		t.Errorf("the finish led to %q, want done", got)
	}
	<-struck
	if s := e.Stats(t); s.Total != 1 || s.Done != 1 {
		t.Errorf("stats are %+v, want one job, done", s)
	}
}

func aRequestThatNeverArrivedIsCarriedOut(t *testing.T, e *Env) {
	ctx := t.Context()
	jobs := newJobs(1)
	var lane, working store.Lane
	e.Fault.FailNth(1, onlyScripts)
	if _, err := e.Runtime.Enqueue(ctx, &lane, instance, jobs); err == nil {
		t.Fatal("it did not fail")
	}
	outcome, err := e.Runtime.Enqueue(ctx, &lane, instance, jobs)
	if err != nil || outcome[0] != nil {
		t.Errorf("the enqueue again ended with %v, %v; want accepted", outcome, err)
	}
	x := store.Exchange{Claims: workers(1)}
	e.Fault.FailNth(1, onlyScripts)
	if _, err := e.Runtime.Exchange(ctx, &working, e.Terms(), x); err == nil {
		t.Fatal("it did not fail")
	}
	out, err := e.Runtime.Exchange(ctx, &working, e.Terms(), x)
	if err != nil || len(out.Leases) != 1 {
		t.Errorf("the claim again brought %d jobs, %v; want 1", len(out.Leases), err)
	}
}

// The lease of a claim whose reply was lost may have run out before the request is repeated.
func aRepeatedClaimAfterAReapBringsNothing(t *testing.T, e *Env) {
	id := e.one(t)
	ctx := t.Context()
	var lane store.Lane
	x := store.Exchange{Claims: workers(1)}
	e.loseReply(t, func() error { return errOf(e.Runtime.Exchange(ctx, &lane, e.Terms(), x)) })
	e.Later(t, lease+time.Millisecond)
	e.Reap(t)
	out, err := e.Runtime.Exchange(ctx, &lane, e.Terms(), x)
	if err != nil || len(out.Leases) != 0 {
		t.Errorf("the claim again brought %d jobs, %v; want none", len(out.Leases), err)
	}
	e.Want(t, store.Todo, id)
	if out, err = e.Runtime.Exchange(ctx, &lane, e.Terms(), x); err != nil || len(out.Leases) != 1 {
		t.Errorf("the next claim brought %d jobs, %v; want 1", len(out.Leases), err)
	}
}

func anAbandonedClaimIsHandedOverAgain(t *testing.T, e *Env) {
	ids := e.Add(t, 2)
	ctx := t.Context()
	var lane store.Lane
	x := store.Exchange{Claims: workers(1)}
	e.loseReply(t, func() error { return errOf(e.Runtime.Exchange(ctx, &lane, e.Terms(), x)) })
	lane.Abandon()
	out, err := e.Runtime.Exchange(ctx, &lane, e.Terms(), x)
	must(t, err)
	wantIDs(t, "claimed", jobIDs(out.Leases), ids[:1])
	if out.Leases[0].Job.Attempt != 1 {
		t.Errorf("attempt %d, want the first still", out.Leases[0].Job.Attempt)
	}
}
