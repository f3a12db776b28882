package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A committed step is there for every later attempt, and only who holds the job commits one.
func stepCases() []Case {
	return named(aCommittedStepComesWithTheNextClaim, aStepSurvivesTheLossOfItsProcess, theFirstValueOfAStepStands, aReplacementTakesThePlaceItNames,
		aStaleWorkerCommitsNothing, aLostReplyOfAStepCostsNothing, aNewStepResetsTheCrashes, stepsOverTheLimitAreRefusedWhole,
		stepsThatAreManyAreLoaded, stepsGoWithTheirJob, aCursorKeepsTheLatestSave,
		aForeignKeyOfStepsIsNamedAndStopsNobodyElse, stepsAreFoundAndListed, aJobOlderThanAnyBoundStillHasItsSteps)
}

func aCommittedStepComesWithTheNextClaim(t *testing.T, e *Env) {
	l := e.hold(t)
	if len(l.Steps.Known) != 0 || !l.Steps.Complete {
		t.Errorf("a new job has the steps %+v", l.Steps)
	}
	e.commit(t, l, local("charge", `"receipt"`))
	e.commit(t, l, store.StepWrite{Name: "ship", Kind: store.LocalStep, Error: "no such address"})
	e.end(t, l, store.Release)
	got := e.claimOne(t).Steps
	if len(got.Known) != 2 || !got.Complete || got.Count != 2 || got.Now.IsZero() {
		t.Fatalf("claimed with %+v, want two steps, complete", got)
	}
	byName := map[string]store.Step{got.Known[0].Name: got.Known[0], got.Known[1].Name: got.Known[1]}
	if s := byName["charge"]; s.State != store.StepCompleted || string(s.Result) != `"receipt"` || s.Number != 1 {
		t.Errorf("the first step is %+v", s)
	}
	if s := byName["ship"]; s.State != store.StepFailed || s.Error != "no such address" || s.Number != 2 {
		t.Errorf("the second step is %+v", s)
	}
}

func aStepSurvivesTheLossOfItsProcess(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("charge", `1`))
	e.Later(t, lease+time.Second)
	e.Reap(t)
	again := e.claimOne(t)
	if len(again.Steps.Known) != 1 || again.Job.Crashes != 1 {
		t.Errorf("after a crash it has %+v and %d crashes", again.Steps, again.Job.Crashes)
	}
	wantErr(t, "the first holder's next step", errOf(e.Runtime.Commit(t.Context(), l, limits, local("ship", `1`))), store.ErrLeaseLost)
}

func theFirstValueOfAStepStands(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("charge", `1`))
	if got := e.commit(t, l, local("charge", `2`)); string(got[0].Result) != `1` {
		t.Errorf("a second commit is answered with %s, want the first value", got[0].Result)
	}
	e.wantStep(t, l.Job.ID, "charge", store.StepCompleted, `1`, 0)
}

func aReplacementTakesThePlaceItNames(t *testing.T, e *Env) {
	l := e.hold(t)
	old := e.commit(t, l, local("charge", `1`))[0]
	w := local("charge", `{"n":1}`)
	w.Replace = old.Number
	if got := e.commit(t, l, w); string(got[0].Result) != `{"n":1}` {
		t.Errorf("a replacement is answered with %s", got[0].Result)
	}
	w.Value = []byte(`3`)
	if got := e.commit(t, l, w); string(got[0].Result) != `{"n":1}` {
		t.Errorf("a second replacement of the same record gave %s", got[0].Result)
	}
}

func aStaleWorkerCommitsNothing(t *testing.T, e *Env) {
	l := e.hold(t)
	e.Later(t, lease+time.Second)
	e.Reap(t)
	holder := e.claimOne(t)
	e.commit(t, holder, local("charge", `"second"`))
	before := e.Content(t)
	for _, w := range []store.StepWrite{local("charge", `"first"`), local("ship", `1`), child(l, "thumb"),
		{Name: "nap", Kind: store.SleepStep, Sleep: time.Hour}, {Name: "rows", Kind: store.CursorStep, Save: 1, Value: []byte(`1`)}} {
		wantErr(t, "a step of who lost the job", errOf(e.Runtime.Commit(t.Context(), l, limits, w)), store.ErrLeaseLost)
	}
	if got := e.parkFor(t, l, "charge"); got != "" {
		t.Errorf("a stale park led to %q", got)
	}
	after := e.Content(t)
	for k := range after {
		if strings.Contains(k, "}:lane:") {
			delete(after, k)
		}
	}
	for k := range before {
		if strings.Contains(k, "}:lane:") {
			delete(before, k)
		}
	}
	wantSame(t, "stale steps", before, after)
}

func aLostReplyOfAStepCostsNothing(t *testing.T, e *Env) {
	l := e.hold(t)
	for _, w := range []store.StepWrite{local("a", `1`), child(l, "b")} {
		struck := e.Fault.CutReplyNth(1, onlyScripts) // which the client makes again
		e.commit(t, l, w)
		<-struck
	}
	if all := e.steps(t, l.Job.ID); len(all) != 2 || all["a"].Number != 1 || all["b"].Number != 2 {
		t.Errorf("there are %+v", all)
	}
}

func aNewStepResetsTheCrashes(t *testing.T, e *Env) {
	e.one(t)
	for i := range 6 {
		l := e.claimOne(t)
		e.commit(t, l, local(fmt.Sprint(i), `1`))
		e.Later(t, lease+time.Second)
		if got := e.Reap(t).Reaped; len(got) != 1 || got[0].Crashes != 1 || got[0].State != store.Todo {
			t.Fatalf("crash %d: %+v, want the first in a row", i, got)
		}
	}
}

func stepsOverTheLimitAreRefusedWhole(t *testing.T, e *Env) {
	l := e.hold(t)
	few := store.StepLimits{Count: 3, Bytes: 1000}
	e.commit(t, l, local("a", `1`))
	before := e.Kept(t)
	for what, writes := range map[string][]store.StepWrite{
		"steps":          {local("b", `1`), local("c", `1`), local("d", `1`)},
		"bytes of steps": {local("b", `"`+strings.Repeat("x", 1000)+`"`)},
	} {
		_, err := e.Runtime.Commit(t.Context(), l, few, writes...)
		var le *store.StepLimitError
		if !errors.As(err, &le) || le.What != what || !errors.Is(err, store.ErrInvalid) || le.Got <= le.Max {
			t.Errorf("too many %s: %v", what, err)
		}
	}
	wantSame(t, "what is over the limit", before, e.Kept(t))
	if _, err := e.Runtime.Commit(t.Context(), l, few, local("b", `1`), local("c", `1`)); err != nil {
		t.Errorf("just within the limit: %v", err)
	}
}

func stepsThatAreManyAreLoaded(t *testing.T, e *Env) {
	l := e.hold(t)
	n := e.size(100, 700)
	for i := range n {
		e.commit(t, l, local(fmt.Sprint("step ", i), fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", 2000))))
	}
	e.end(t, l, store.Release)
	again := e.claimOne(t)
	if again.Steps.Complete || len(again.Steps.Known) != 0 || again.Steps.Count != n {
		t.Fatalf("%d steps came with the claim, complete: %v", len(again.Steps.Known), again.Steps.Complete)
	}
	all, err := e.Runtime.Load(t.Context(), again)
	if err != nil || len(all.Known) != n || !all.Complete {
		t.Fatalf("loaded %d steps, %v; want %d", len(all.Known), err, n)
	}
	for _, s := range all.Known {
		if !strings.HasPrefix(string(s.Result), `"`+strings.TrimPrefix(s.Name, "step ")+" ") {
			t.Fatalf("step %s has another's result", s.Name)
		}
	}
}

func stepsGoWithTheirJob(t *testing.T, e *Env) {
	e.one(t)
	e.end(t, e.claimOne(t), store.Complete)
	must(t, e.Store.Delete(t.Context(), e.Listed(t, store.Done)[0]))
	l := e.hold(t)
	e.end(t, l, store.Release)
	must(t, e.Store.Delete(t.Context(), l.Job.ID)) // runs keeps an empty field from then on
	before := e.Kept(t)
	terms := e.Terms()
	terms.Done, terms.Dead = store.Retention{}, store.Retention{Age: time.Millisecond}
	for _, verb := range []store.Verb{store.Complete, store.Bury, store.Cancel} {
		e.one(t)
		l := e.claimOne(t)
		e.commit(t, l, local("a", `1`), local("b", `1`))
		e.Exchange(t, terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: verb}}})
		e.Later(t, time.Second)
		e.reap(t, terms)
		e.WantGone(t, l.Job.ID)
	}
	l = e.hold(t)
	e.commit(t, l, local("a", `1`))
	e.end(t, l, store.Release)
	must(t, e.Store.Delete(t.Context(), l.Job.ID))
	after := e.Kept(t)
	for k := range after {
		if strings.HasPrefix(k, e.Key(instance, "meta ")) {
			delete(after, k)
			delete(before, k)
		}
	}
	wantSame(t, "jobs with steps that are gone", before, after)
}

func aCursorKeepsTheLatestSave(t *testing.T, e *Env) {
	l := e.hold(t)
	save := func(n int, value string) store.StepWrite {
		return store.StepWrite{Name: "rows", Kind: store.CursorStep, Save: n, Value: []byte(value)}
	}
	e.commit(t, l, save(1, `10`))
	e.commit(t, l, save(2, `20`))
	e.commit(t, l, save(1, `10`)) // the first comes again, late
	if s := e.step(t, l.Job.ID, "rows"); string(s.Result) != `20` || s.Saves != 2 || s.Kind != store.CursorStep {
		t.Errorf("the cursor is %+v, want 20 of save 2", s)
	}
}

func aForeignKeyOfStepsIsNamedAndStopsNobodyElse(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("a", `1`))
	key := e.stepsKey(l.Job.ID)
	undo := e.spoil(t, key, "list")
	_, err := e.Runtime.Commit(t.Context(), l, limits, local("b", `1`))
	e.wantKeyError(t, "a step", err, key, "list", "hash")
	_, err = e.Runtime.Load(t.Context(), l)
	e.wantKeyError(t, "loading", err, key, "list", "hash")
	e.end(t, l, store.Release)
	other := e.one(t)
	got := e.Claim(t, 2)
	if len(got) != 2 || got[0].Steps.Complete || got[1].Job.ID != other {
		t.Errorf("claimed %d jobs, want both, the first without its steps", len(got))
	}
	undo()
}

func stepsAreFoundAndListed(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("a", `1`), child(l, "b"), store.StepWrite{Name: "c", Kind: store.SleepStep, Sleep: time.Hour})
	all := e.steps(t, l.Job.ID)
	if len(all) != 3 || all["a"].Kind != store.LocalStep || all["b"].Instance != childInstance || all["b"].State != store.StepDispatched {
		t.Errorf("the steps are %+v", all)
	}
	if d := time.Until(all["c"].Until); e.Fake && (d < 59*time.Minute || d > time.Hour) {
		t.Errorf("it sleeps for %v", d)
	}
	wantErr(t, "a step that is not there", errOf(e.Store.Step(t.Context(), l.Job.ID, "z")), store.ErrNotFound)
	wantErr(t, "a job that is not there", errOf(e.Store.Step(t.Context(), uuid.New(), "a")), store.ErrNotFound)
	wantErr(t, "a bad name", errOf(e.Store.Step(t.Context(), l.Job.ID, "a\nb")), store.ErrInvalid)
}

func aJobOlderThanAnyBoundStillHasItsSteps(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("a", `1`), store.StepWrite{Name: "nap", Kind: store.SleepStep, Sleep: 400 * 24 * time.Hour})
	e.Finish(t, store.Finish{Verb: store.Park, Wait: store.Wait{Until: e.step(t, l.Job.ID, "nap").Until, Steps: []string{"nap"}}}, l)
	e.Later(t, 399*24*time.Hour)
	e.Reap(t)
	e.Want(t, store.Parked, l.Job.ID)
	e.Later(t, 24*time.Hour+time.Second)
	e.sweep(t, instance)
	if got := e.claimOne(t).Steps; len(got.Known) != 2 {
		t.Errorf("after more than a year it has %d steps", len(got.Known))
	}
}
