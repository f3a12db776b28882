package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Sweeps and loads are bounded, and use their bounds.
func stepBoundCases() []Case {
	return named(aSweepReadsNoMoreOutcomesThanItTakes, aSweepLooksUpNoMoreChildrenThanItTakes, manySmallStepsAreLoadedInFewCalls)
}

func aSweepReadsNoMoreOutcomesThanItTakes(t *testing.T, e *Env) {
	const n = 20
	l := e.hold(t)
	e.spawn(t, l, nil, stepsOf(n)...)
	e.parkFor(t, l, stepsOf(n)...)
	big := fmt.Sprintf("%q", strings.Repeat("x", 700_000))
	for _, k := range e.claimChildren(t, n) {
		e.endChild(t, k, store.Finish{Verb: store.Complete, Result: []byte(big)})
	}
	e.Later(t, 11*time.Second)
	if got := e.calls(t, "hget", func() { e.sweep(t, childInstance) }); got > n/2 {
		t.Errorf("a sweep that brings one outcome of %d read %d times", n, got)
	}
	for range n {
		e.sweep(t, childInstance)
	}
	e.Want(t, store.Todo, l.Job.ID)
}

func aSweepLooksUpNoMoreChildrenThanItTakes(t *testing.T, e *Env) {
	parents, kids := e.size(4, 12), 210
	for range parents {
		l := e.hold(t)
		e.spawn(t, l, nil, stepsOf(kids)...)
		e.end(t, l, store.Bury)
	}
	if got := e.calls(t, "zrangebylex", func() { e.sweep(t, instance) }); got > 6 {
		t.Errorf("a sweep looked up the children of %d parents, and took those of 3 at most", got)
	}
	for range 3 * parents {
		e.sweep(t, instance)
	}
	e.Later(t, 11*time.Second)
	for range 3 * parents { // each tells 200 of them
		e.sweep(t, childInstance)
	}
	e.sweep(t, instance)
	e.wantNoFamily(t)
}

func manySmallStepsAreLoadedInFewCalls(t *testing.T, e *Env) {
	n := e.size(500, 5000)
	l := e.hold(t)
	for from := 0; from < n; from += 500 {
		var writes []store.StepWrite
		for i := range 500 {
			writes = append(writes, local(fmt.Sprint(from+i), fmt.Sprintf(`"%050d"`, i)))
		}
		e.commit(t, l, writes...)
	}
	var all store.Steps
	got := e.calls(t, "evalsha", func() {
		var err error
		all, err = e.Runtime.Load(t.Context(), l)
		must(t, err)
	})
	if len(all.Known) != n || got > 15 {
		t.Errorf("%d steps of %d were loaded in %d calls", len(all.Known), n, got)
	}
}
