package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// A parked job is held by nobody, and todo again when what it waits for is there.
func parkCases() []Case {
	return named(aSleepingJobWakesAtItsTimeAtItsOldPlace, aParkGivesTheAttemptBack, aParkResetsTheCrashes, aParentOfManyWakesOnce, aParentWakesAtTheFirstFailure,
		aParentMayWaitForAny, whatHoldsAlreadyParksNobody, aParkedJobCanBeCancelledDeletedAndExpire, aParkOfACancelledJobIsACancel,
		whatAParkedJobWaitsForIsExplained, anUnparkWakesAWaiter, aMarkOfAnOldWaitCountsForNothing, aStepThatIsNamedTwiceComesOnce)
}

// sleepFor commits a sleeping step and parks the job on it.
func (e *Env) sleepFor(t *testing.T, l *store.Lease, name string, d time.Duration) (store.State, time.Time) {
	t.Helper()
	until := e.commit(t, l, store.StepWrite{Name: name, Kind: store.SleepStep, Sleep: d})[0].Until
	return e.Finish(t, store.Finish{Verb: store.Park, Wait: store.Wait{Until: until, Steps: []string{name}}}, l)[0], until
}

func aSleepingJobWakesAtItsTimeAtItsOldPlace(t *testing.T, e *Env) {
	l := e.hold(t)
	state, until := e.sleepFor(t, l, "cool-off", time.Hour)
	if state != store.Parked {
		t.Fatalf("the job is %s, want parked", state)
	}
	later := e.Add(t, 2)
	if j := e.Job(t, l.Job.ID); j.RunAt != until {
		t.Errorf("it says that it wakes at %v, want %v", j.RunAt, until)
	}
	if m := e.Reap(t); m.Sweep <= 0 || m.Sweep > time.Hour {
		t.Errorf("a reap says that there is something to do in %v, want within the hour", m.Sweep)
	}
	e.Later(t, time.Hour-e.slack())
	if got := e.sweep(t, instance); len(got.Woken) != 0 || got.Next <= 0 || got.Next > e.slack() {
		t.Errorf("%v early: woken %v, next in %v", e.slack(), got.Woken, got.Next)
	}
	e.Want(t, store.Parked, l.Job.ID)
	e.Later(t, e.slack())
	wantIDs(t, "woken", e.sweep(t, instance).Woken, jobIDs([]*store.Lease{l}))
	wantIDs(t, "claimed", jobIDs(e.Claim(t, 3)), append(jobIDs([]*store.Lease{l}), later...))
}

func aParkGivesTheAttemptBack(t *testing.T, e *Env) {
	e.one(t)
	for i := range 3 {
		l := e.claimOne(t)
		if l.Job.Attempt != 1 || l.Job.Crashes != 0 {
			t.Fatalf("claimed with attempt %d and %d crashes", l.Job.Attempt, l.Job.Crashes)
		}
		if state, _ := e.sleepFor(t, l, fmt.Sprint("nap ", i), 10*lease); state != store.Parked {
			t.Fatalf("it is %s, want parked", state)
		}
		e.Later(t, 10*lease)
		e.sweep(t, instance)
	}
}

// Also where the step stands already, so that it is no new one that resets them.
func aParkResetsTheCrashes(t *testing.T, e *Env) {
	l := e.hold(t)
	until := e.commit(t, l, store.StepWrite{Name: "nap", Kind: store.SleepStep, Sleep: 100 * lease})[0].Until
	e.end(t, l, store.Release)
	e.crash(t)
	e.crash(t)
	l = e.claimOne(t)
	got := e.Finish(t, store.Finish{Verb: store.Park, Wait: store.Wait{Until: until, Steps: []string{"nap"}}}, l)[0]
	if j := e.Job(t, l.Job.ID); got != store.Parked || j.Crashes != 0 || j.Attempt != 0 {
		t.Errorf("it is %s after %d crashes, attempt %d; want parked, 0, 0", got, j.Crashes, j.Attempt)
	}
}

func aParentOfManyWakesOnce(t *testing.T, e *Env) {
	l := e.hold(t)
	names := stepsOf(e.size(20, 1000))
	e.spawn(t, l, nil, names...)
	if got := e.parkFor(t, l, names...); got != store.Parked {
		t.Fatalf("the parent is %s, want parked", got)
	}
	kids := e.claimChildren(t, len(names))
	for i, k := range kids {
		e.Want(t, store.Parked, l.Job.ID)
		e.endChild(t, k, store.Finish{Verb: store.Complete, Result: []byte(`"` + k.Job.Parent.Step + `"`)})
		must(t, e.Runtime.Relay(t.Context(), []store.Outcome{store.OutcomeOf(&k.Job, store.Done, []byte(`"`+k.Job.Parent.Step+`"`), "")}))
		if i == len(kids)/2 {
			must(t, e.Runtime.Relay(t.Context(), []store.Outcome{store.OutcomeOf(&k.Job, store.Done, []byte(`"twice"`), "")}))
		}
	}
	e.Want(t, store.Todo, l.Job.ID)
	again := e.claimOne(t)
	if len(again.Steps.Known) != len(names) {
		t.Fatalf("it has %d steps, want %d", len(again.Steps.Known), len(names))
	}
	for _, s := range again.Steps.Known {
		if string(s.Result) != `"`+s.Name+`"` || s.State != store.StepCompleted {
			t.Fatalf("step %s is %s with %s", s.Name, s.State, s.Result)
		}
	}
}

// finishChild ends the child of a step and tells its parent.
func (e *Env) finishChild(t *testing.T, k *store.Lease, f store.Finish) {
	t.Helper()
	e.endChild(t, k, f)
	j := e.Job(t, k.Job.ID)
	must(t, e.Runtime.Relay(t.Context(), []store.Outcome{store.OutcomeOf(&j, j.State, j.Result, j.LastError)}))
}

func aStepThatIsNamedTwiceComesOnce(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "a", "b")
	if got := e.parkFor(t, l, "a", "b", "a"); got != store.Parked {
		t.Fatalf("the parent is %s, want parked", got)
	}
	for _, k := range e.claimChildren(t, 2) {
		e.Want(t, store.Parked, l.Job.ID)
		e.finishChild(t, k, store.Finish{Verb: store.Complete})
	}
	e.Want(t, store.Todo, l.Job.ID)
}

func aParentWakesAtTheFirstFailure(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "a", "b", "c")
	e.parkFor(t, l, "a", "b", "c")
	kids := e.claimChildren(t, 3)
	e.finishChild(t, kids[0], store.Finish{Verb: store.Complete})
	e.Want(t, store.Parked, l.Job.ID)
	e.finishChild(t, kids[1], store.Finish{Verb: store.Bury, Error: "no ink"})
	e.Want(t, store.Todo, l.Job.ID)
	e.wantStep(t, l.Job.ID, kids[1].Job.Parent.Step, store.StepFailed, "", store.FateDead)
	e.finishChild(t, kids[2], store.Finish{Verb: store.Complete})
	e.Want(t, store.Todo, l.Job.ID)
}

func aParentMayWaitForAny(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "a", "b")
	got := e.Finish(t, store.Finish{Verb: store.Park, Wait: store.Wait{Steps: []string{"a", "b"}, Any: true}}, l)
	if got[0] != store.Parked {
		t.Fatalf("it is %s", got[0])
	}
	e.finishChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete})
	e.Want(t, store.Todo, l.Job.ID)
}

func whatHoldsAlreadyParksNobody(t *testing.T, e *Env) {
	l := e.hold(t)
	e.commit(t, l, local("done", `1`))
	e.spawn(t, l, nil, "a", "b")
	kids := e.claimChildren(t, 2)
	e.finishChild(t, kids[0], store.Finish{Verb: store.Bury, Error: "no ink"})
	e.finishChild(t, kids[1], store.Finish{Verb: store.Complete})
	for what, w := range map[string]store.Wait{
		"a step that is committed":    {Steps: []string{"done"}},
		"children that have ended":    {Steps: []string{"a", "b"}},
		"any of them":                 {Steps: []string{"a", "b"}, Any: true},
		"a time that is past":         {Until: e.Now(t), Steps: []string{"nap"}},
		"a step that is not there":    {Steps: []string{"who"}},
		"nothing that could be named": {},
	} {
		if got := e.Finish(t, store.Finish{Verb: store.Park, Wait: w}, l)[0]; got != store.Todo {
			t.Fatalf("waiting for %s, the job is %q, want todo", what, got)
		}
		l = e.claimOne(t)
	}
	if l.Job.Attempt != 1 {
		t.Errorf("attempt %d, want the first", l.Job.Attempt)
	}
}

func aParkedJobCanBeCancelledDeletedAndExpire(t *testing.T, e *Env) {
	soon := e.Now(t).Add(time.Hour)
	ids := e.Enqueue(t, store.NewJob{}, store.NewJob{}, store.NewJob{Deadline: soon})
	for _, l := range e.Claim(t, 3) {
		e.sleepFor(t, l, "nap", 24*time.Hour)
	}
	e.Want(t, store.Parked, ids...)
	e.cancel(t, ids[0])
	e.Want(t, store.Cancelled, ids[0])
	must(t, e.Store.Delete(t.Context(), ids[1]))
	e.WantGone(t, ids[1])
	e.Later(t, time.Hour+time.Second)
	e.Reap(t)
	e.Want(t, store.Dead, ids[2])
	e.Later(t, 24*time.Hour)
	if got := e.sweep(t, instance); len(got.Woken) != 0 {
		t.Errorf("woken: %v", got.Woken)
	}
}

func aParkOfACancelledJobIsACancel(t *testing.T, e *Env) {
	l := e.hold(t)
	e.cancel(t, l.Job.ID)
	if got, _ := e.sleepFor(t, l, "nap", time.Hour); got != store.Cancelled {
		t.Errorf("it is %s", got)
	}
}

func whatAParkedJobWaitsForIsExplained(t *testing.T, e *Env) {
	explain := func(l *store.Lease, until bool, words ...string) {
		t.Helper()
		x, err := e.Store.Explain(t.Context(), l.Job.ID)
		if err != nil || x.Reason != store.ReasonParked || x.Until.IsZero() == until {
			t.Errorf("explained as %+v, %v", x, err)
		}
		for _, w := range words {
			if !strings.Contains(x.Detail, w) {
				t.Errorf("%q does not say %q", x.Detail, w)
			}
		}
	}
	a := e.hold(t)
	e.sleepFor(t, a, "cool-off", time.Hour)
	explain(a, true, "sleeps", `"cool-off"`)
	b := e.hold(t)
	ids := e.spawn(t, b, nil, "thumb")
	e.parkFor(t, b, "thumb")
	explain(b, false, `"thumb"`, ids[0].String(), childInstance)
	c := e.hold(t)
	e.spawn(t, c, nil, "x", "y", "z")
	e.parkFor(t, c, "x", "y", "z")
	explain(c, false, "all of 3 steps", `"x"`)
	open := map[string]*store.Lease{}
	for _, k := range e.claimChildren(t, 4) {
		open[k.Job.Parent.Step] = k
	}
	e.finishChild(t, open["x"], store.Finish{Verb: store.Complete})
	explain(c, false, "all of 2 steps")
	if x, err := e.Store.Explain(t.Context(), c.Job.ID); err != nil || strings.Contains(x.Detail, `"x"`) {
		t.Errorf("when that has ended it is explained as %q, %v", x.Detail, err)
	}
	e.finishChild(t, open["y"], store.Finish{Verb: store.Complete})
	explain(c, false, `it waits for step "z"`, open["z"].Job.ID.String())
}

func anUnparkWakesAWaiter(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "a")
	e.parkFor(t, l, "a")
	ears := e.waiters(t, 1)
	e.finishChild(t, e.claimChildren(t, 1)[0], store.Finish{Verb: store.Complete})
	e.wantWoken(t, "a waiter", ears, 0)
}

func aMarkOfAnOldWaitCountsForNothing(t *testing.T, e *Env) {
	l := e.hold(t)
	e.spawn(t, l, nil, "a", "b", "c")
	e.parkFor(t, l, "a", "b")
	kids := map[string]*store.Lease{}
	for _, k := range e.claimChildren(t, 3) {
		kids[k.Job.Parent.Step] = k
	}
	e.finishChild(t, kids["a"], store.Finish{Verb: store.Bury, Error: "no ink"}) // it wakes, with b still open
	again := e.claimOne(t)
	e.parkFor(t, again, "c")
	e.finishChild(t, kids["b"], store.Finish{Verb: store.Complete})
	e.Want(t, store.Parked, l.Job.ID)
	e.finishChild(t, kids["c"], store.Finish{Verb: store.Complete})
	e.Want(t, store.Todo, l.Job.ID)
}
