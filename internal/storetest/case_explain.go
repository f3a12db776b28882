package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Explain says why a job is not running.
func explainCases() []Case {
	return named(eachReasonIsExplained, aWaitingJobIsExplainedByWhatHasToGoFirst, aLimitAndARateAreExplained, aJobInNoStateIsExplained)
}

func (e *Env) serve(t testing.TB, instances ...string) {
	t.Helper()
	must(t, e.Runtime.Announce(t.Context(), store.Process{ID: uuid.New(), Instances: instances}, time.Hour))
}

// wantReason fails the test unless the job is explained so, in a text that contains detail.
func (e *Env) wantReason(t testing.TB, id uuid.UUID, want store.Reason, detail string) store.Explanation {
	t.Helper()
	x, err := e.Store.Explain(t.Context(), id)
	if err != nil || x.Reason != want || x.Detail == "" || !strings.Contains(x.Detail, detail) {
		t.Errorf("it is explained by %+v, %v; want %s: %s", x, err, want, detail)
	}
	return x
}

func eachReasonIsExplained(t *testing.T, e *Env) {
	ids := e.inEachState(t)
	e.serve(t, instance)
	running := e.wantReason(t, ids[store.Doing], store.ReasonRunning, "")
	if want := e.Job(t, ids[store.Doing]).LeaseUntil; !running.Until.Equal(want) {
		t.Errorf("it runs until %v, want %v", running.Until, want)
	}
	scheduled := e.wantReason(t, ids[store.Scheduled], store.ReasonScheduled, "due at")
	if want := e.Job(t, ids[store.Scheduled]).RunAt; !scheduled.Until.Equal(want) {
		t.Errorf("it is scheduled until %v, want %v", scheduled.Until, want)
	}
	e.wantReason(t, ids[store.Parked], store.ReasonParked, "")
	e.wantReason(t, ids[store.Todo], store.ReasonQueued, "0 jobs are ahead")
	e.wantReason(t, ids[store.Done], store.ReasonEnded, "done")
	e.wantReason(t, ids[store.Dead], store.ReasonEnded, "dead: e")
	e.wantReason(t, ids[store.Cancelled], store.ReasonEnded, "cancelled: e")
	must(t, e.Store.Cancel(t.Context(), ids[store.Doing]))
	e.wantReason(t, ids[store.Doing], store.ReasonCancelling, "")
	wantErr(t, "an unknown id", errOf(e.Store.Explain(t.Context(), uuid.New())), store.ErrNotFound)
}

func aWaitingJobIsExplainedByWhatHasToGoFirst(t *testing.T, e *Env) {
	ctx := t.Context()
	suspects := e.suspected(t, 2)
	ids := e.Add(t, 3)
	e.serve(t, "other")
	must(t, e.Store.Pause(ctx, instance))
	e.wantReason(t, ids[2], store.ReasonPaused, instance)
	e.wantReason(t, suspects[1], store.ReasonPaused, instance)
	must(t, e.Store.Resume(ctx, instance))
	e.wantReason(t, ids[2], store.ReasonUnserved, instance)
	e.serve(t, "other", instance)
	e.wantReason(t, ids[2], store.ReasonQueued, "2 jobs are ahead")
	e.wantReason(t, suspects[1], store.ReasonSuspect, "1 such")
	e.Later(t, 2*time.Hour) // the process is not heard of again
	e.wantReason(t, ids[2], store.ReasonUnserved, instance)
}

func aLimitAndARateAreExplained(t *testing.T, e *Env) {
	e.serve(t, instance)
	ids := e.Add(t, 4)
	e.take(t, "limited", e.limited(1), 4, 1)
	x := e.wantReason(t, ids[3], store.ReasonLimit, "the limit is 1")
	if !x.Until.IsZero() {
		t.Errorf("a limit until %v", x.Until)
	}
	e.take(t, "rated", e.rated(1, time.Hour), 4, 1)
	x = e.wantReason(t, ids[3], store.ReasonRate, "1 are ahead")
	if in := x.Until.Sub(e.Now(t)); in > time.Hour || in < time.Hour-10*time.Second {
		t.Errorf("the rate holds it up for %v, want about an hour", in)
	}
	e.Later(t, time.Hour)
	e.serve(t, instance) // as processes do again and again
	e.wantReason(t, ids[3], store.ReasonQueued, "")
	e.take(t, "rated again", e.rated(1, time.Hour), 4, 1)
	e.Exchange(t, e.Terms(), store.Exchange{}) // by a process with neither: they were taken out
	e.wantReason(t, ids[3], store.ReasonQueued, "0 jobs are ahead")
}

func aJobInNoStateIsExplained(t *testing.T, e *Env) {
	id := e.one(t)
	e.put(t, "ZREM", e.Key(instance, "todo"), id[:])
	e.wantReason(t, id, store.ReasonLost, "no state")
	e.audit(t)
	e.wantReason(t, id, store.ReasonEnded, "no state")
}
