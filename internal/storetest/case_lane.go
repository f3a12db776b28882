package storetest

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A lane tells a request that comes again from a new one.
func laneCases() []Case {
	return named(aRequestOfFreshJobsHappensOnceAlsoOnALaneThatWasForgotten, aKnownIDIsFoundBesideFreshOnes,
		lanesKeepApartWhereTheIDsOfTheApplicationComeAgain, aLowerNumberIsRefused,
		scriptsThatTheServerHasForgottenAreSentAgain, lanesKeepApart)
}

// Jobs whose ids were made for them are not looked for, so that it is the lane that tells a repeated request from a new one: but for
// its first, and when it was forgotten, the ids are looked for all the same.
func aRequestOfFreshJobsHappensOnceAlsoOnALaneThatWasForgotten(t *testing.T, e *Env) {
	var lane store.Lane
	for round := range 3 {
		for _, forgotten := range []bool{false, true} {
			jobs := freshJobs(3)
			e.loseReply(t, func() error { return errOf(e.Runtime.Enqueue(t.Context(), &lane, instance, jobs)) })
			l := e.claimOne(t) // the first of them runs already
			for _, key := range e.keys(t) {
				if forgotten && strings.Contains(key, "}:lane:") {
					e.put(t, "DEL", key)
				}
			}
			outcome, err := e.Runtime.Enqueue(t.Context(), &lane, instance, jobs)
			must(t, err)
			for i, one := range outcome {
				if one != nil {
					t.Errorf("round %d, the lane forgotten: %v: job %d again: %v", round, forgotten, i, one)
				}
			}
			if j := e.Job(t, l.Job.ID); j.State != store.Doing {
				t.Errorf("round %d: the job that runs is %s", round, j.State)
			}
			e.end(t, l, store.Complete)
			wantIDs(t, "todo", e.Listed(t, store.Todo), []uuid.UUID{jobs[1].ID, jobs[2].ID})
			for range 2 {
				e.end(t, e.claimOne(t), store.Complete)
			}
		}
	}
}

// A job of a call that names another one's id is refused, whatever the others are.
func aKnownIDIsFoundBesideFreshOnes(t *testing.T, e *Env) {
	var lane store.Lane
	enqueue := func(jobs ...store.NewJob) []error {
		outcome, err := e.Runtime.Enqueue(t.Context(), &lane, instance, jobs)
		must(t, err)
		return outcome
	}
	first := newJobs(1)[0]
	enqueue(freshJobs(2)...)
	enqueue(first)
	mixed := append(freshJobs(2), first)
	outcome := enqueue(mixed...)
	if outcome[0] != nil || outcome[1] != nil {
		t.Errorf("the fresh ones: %v, %v", outcome[0], outcome[1])
	}
	wantErr(t, "the known one", outcome[2], store.ErrExists)
	if s := e.Stats(t); s.Total != 5 {
		t.Errorf("%d jobs, want 5", s.Total)
	}
	lane.Abandon()
	outcome = enqueue(mixed...) // as after the lane was forgotten: the fresh ones were accepted
	if outcome[0] != nil || outcome[1] != nil {
		t.Errorf("the fresh ones again: %v, %v", outcome[0], outcome[1])
	}
	wantErr(t, "the known one again", outcome[2], store.ErrExists)
	if s := e.Stats(t); s.Total != 5 {
		t.Errorf("%d jobs after the repetition, want 5", s.Total)
	}
}

// An application may have made its ids repeatable (uuid.SetRand): two lanes are two all the same.
func lanesKeepApartWhereTheIDsOfTheApplicationComeAgain(t *testing.T, e *Env) {
	jobs := newJobs(3)
	uuid.SetRand(always(7))
	defer uuid.SetRand(nil)
	for i := range jobs {
		outcome, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, jobs[i:i+1])
		must(t, err)
		must(t, outcome[0])
	}
	wantIDs(t, "todo", e.Listed(t, store.Todo), []uuid.UUID{jobs[0].ID, jobs[1].ID, jobs[2].ID})
}

// always is a source of randomness that has none.
type always byte

func (a always) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(a)
	}
	return len(b), nil
}

func aLowerNumberIsRefused(t *testing.T, e *Env) {
	ctx := t.Context()
	var lane, working store.Lane
	if _, err := e.Runtime.Enqueue(ctx, &lane, instance, newJobs(1)); err != nil {
		t.Fatal(err)
	}
	late := lane // its request is about to be overtaken
	if _, err := e.Runtime.Enqueue(ctx, &lane, instance, newJobs(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Runtime.Enqueue(ctx, &lane, instance, newJobs(1)); err != nil {
		t.Fatal(err)
	}
	exchange := func(l *store.Lane) error {
		return errOf(e.Runtime.Exchange(ctx, l, e.Terms(), store.Exchange{Claims: workers(1)}))
	}
	must(t, exchange(&working))
	lateWorking := working
	must(t, exchange(&working))
	must(t, exchange(&working))
	before := e.Content(t)
	if outcome, err := e.Runtime.Enqueue(ctx, &late, instance, newJobs(1)); err == nil {
		t.Errorf("an overtaken enqueue is answered with %v", outcome)
	}
	if err := exchange(&lateWorking); err == nil {
		t.Error("an overtaken exchange is answered")
	}
	wantSame(t, "an overtaken request", before, e.Content(t))
}

// As after a restart.
func scriptsThatTheServerHasForgottenAreSentAgain(t *testing.T, e *Env) {
	for range 2 {
		e.put(t, "SCRIPT", "FLUSH")
		id := e.one(t)
		e.put(t, "SCRIPT", "FLUSH")
		l := e.claimOne(t)
		e.put(t, "SCRIPT", "FLUSH")
		e.end(t, l, store.Complete)
		e.Want(t, store.Done, id)
	}
}

func lanesKeepApart(t *testing.T, e *Env) {
	ctx := t.Context()
	for range 3 {
		var a, b store.Lane
		for _, lane := range []*store.Lane{&a, &b, &a, &b} {
			outcome, err := e.Runtime.Enqueue(ctx, lane, instance, newJobs(1))
			if err != nil || outcome[0] != nil {
				t.Errorf("an enqueue ended with %v, %v", outcome, err)
			}
		}
	}
	if s := e.Stats(t); s.Todo != 12 {
		t.Errorf("%d jobs, want 12", s.Todo)
	}
}
