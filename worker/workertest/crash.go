package workertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/crash"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// CrashEverywhere runs a job of an instance again and again, each time in a fresh world and with a crash at another boundary of its steps, and those of
// its children: before a step's function, after it and before its result is kept, after that, and for an async step between its record and its
// child. A crash ends the handler where it stands, and its lease is reaped at once instead of in its time: the job runs again as after any crash,
// with no attempt charged, and whatever of the handler still runs is a stale worker's. setup registers the handlers, with sup, and is called
// for each run: one without a crash, and one for each boundary.
//
// It fails the test when a job does not come to be done, when a step's function runs that has been committed, or runs more than once
// for any other reason than a crash between its effect and the keeping of its result. That one nobody can rule out: it is logged, with the number
// of times each step's function and each [Effect] ran, and is what idempotency keys are for. A function that returns an error has not run, as far
// as this counts: nothing is kept of it, so it is to run again; its Effects count. An Effect outside of a step must not happen twice either, with a
// crash or without.
//
// In a bubble of testing/synctest sleeps take no time; outside of one they take theirs. Crashes take next to none.
func CrashEverywhere(t testing.TB, setup func(t testing.TB, sup *worker.Supervisor), instance string, payload any) {
	t.Helper()
	first := newRun(t, setup, instance, payload, nil)
	first.do()
	for _, what := range first.order {
		first.judgeCount(what, first.effects[what], math.MaxInt)
	}
	if len(first.seen) == 0 {
		t.Errorf("the handler of %s has no steps", instance)
	}
	t.Logf("without a crash: %s", first.counts())
	for _, p := range first.seen {
		r := newRun(t, setup, instance, payload, &p)
		r.do()
		r.judge(first)
		t.Logf("a crash of step %q of %s, %s: %s", p.step, p.instance, p.where, r.counts())
	}
}

// point is a boundary of a step; the job is told by its instance.
type point struct {
	instance, step string
	where          crash.Where
}

func (p point) String() string {
	if p.where == inside || p.where == outside {
		return fmt.Sprintf("the effect %q of %s", p.step, p.instance)
	}
	return fmt.Sprintf("the function of step %q of %s", p.step, p.instance)
}

// crashRun is a job with a crash at one point, or none.
type crashRun struct {
	t        testing.TB
	st       *store.Store
	sup      *worker.Supervisor
	instance string
	payload  any
	at       *point

	mu      sync.Mutex
	seen    []point // boundaries, in the order in which they were first come to
	known   map[point]bool
	effects map[point]int // how often each step's function has run without an error, and each Effect has happened
	order   []point       // of these
	crashed bool
}

func newRun(t testing.TB, setup func(t testing.TB, sup *worker.Supervisor), instance string, payload any, at *point) *crashRun {
	t.Helper()
	r := &crashRun{t: t, st: Store(t), instance: instance, payload: payload, at: at, known: map[point]bool{}, effects: map[point]int{}}
	var err error
	r.sup, err = worker.New(r.st, worker.Config{Middleware: []worker.Middleware{r.watch}})
	if err != nil {
		t.Fatalf("making a supervisor: %v", err)
	}
	setup(t, r.sup)
	return r
}

// watch gives handlers the hook.
func (r *crashRun) watch(next worker.Handler) worker.Handler {
	return func(ctx context.Context, job store.Job) error {
		ctx = context.WithValue(ctx, observerKey{}, &observer{r, job.Instance, worker.IdempotencyKey(ctx)})
		return next(crash.With(ctx, func(step string, where crash.Where) {
			if r.come(point{job.Instance, step, where}) {
				r.crash(job)
			}
		}), job)
	}
}

// come notes that a boundary was come to, and says whether to crash there.
func (r *crashRun) come(p point) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known[p] {
		r.known[p] = true
		r.seen = append(r.seen, p)
	}
	if p.where == crash.AfterEffect {
		r.countLocked(point{p.instance, p.step, ""})
	}
	if r.at == nil || r.crashed || p != *r.at {
		return false
	}
	r.crashed = true
	return true
}

func (r *crashRun) countLocked(what point) {
	if r.effects[what]++; r.effects[what] == 1 {
		r.order = append(r.order, what)
	}
}

// crash has the lease of the job reaped, and ends the goroutine.
func (r *crashRun) crash(job store.Job) {
	ctx, rt := context.Background(), r.st.Runtime()
	kept := store.Retention{Age: 365 * 24 * time.Hour, Count: 1_000_000}
	terms := store.Terms{Instance: job.Instance, Lease: worker.DefaultLease, Done: kept, Dead: kept, MaxCrashes: math.MaxInt32}
	err := rt.Lapse(ctx, job.Instance, job.ID)
	if err == nil {
		_, err = rt.Reap(ctx, terms)
	}
	now, failed := r.st.Get(ctx, job.ID)
	if err = errors.Join(err, failed); err != nil || now.State == store.Doing && now.Worker == job.Worker {
		r.t.Errorf("%s: the lease could not be taken away: %v", r.what(), err)
	}
	runtime.Goexit()
}

// do runs the job to its end, and stops.
func (r *crashRun) do() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := r.sup.Run(ctx); err != nil {
			r.t.Errorf("running the supervisor: %v", err)
		}
	})
	defer run.Wait()
	defer cancel()
	id, err := worker.NewClient(r.st, worker.ClientConfig{}).Enqueue(context.Background(), r.instance, r.payload)
	if err != nil {
		r.t.Fatalf("enqueuing the job: %v", err)
	}
	Drain(r.t, r.st)
	r.wantDone(id)
}

func (r *crashRun) wantDone(id uuid.UUID) {
	r.t.Helper()
	if job, err := r.st.Get(context.Background(), id); err != nil || job.State != store.Done {
		r.t.Errorf("%s: the job is %s, want done: %s %v", r.what(), job.State, job.LastError, err)
	}
}

func (r *crashRun) what() string {
	if r.at == nil {
		return "without a crash"
	}
	return fmt.Sprintf("a crash of step %q of %s, %s", r.at.step, r.at.instance, r.at.where)
}

// judge compares how often each effect ran with a run without a crash.
func (r *crashRun) judge(plain *crashRun) {
	r.t.Helper()
	if !r.crashed {
		r.t.Errorf("%s: it did not come there: the handler takes another way each time", r.what())
	}
	for _, what := range r.order {
		r.judgeCount(what, r.effects[what], max(plain.effects[what], 1))
	}
	for _, what := range plain.order {
		if r.effects[what] == 0 {
			r.t.Errorf("%s: %s never ran", r.what(), what)
		}
	}
}

// judgeCount compares how often a step's function has run without an error, or an Effect has happened, with how often it did without a crash.
func (r *crashRun) judgeCount(what point, n, most int) {
	r.t.Helper()
	switch what.where {
	case outside:
		if n > 1 {
			r.t.Errorf("%s: %s, which is outside of a step, happened %d times", r.what(), what, n)
		}
		return
	case inside: // that of its step's function is judged; which one it is in is not known
		if r.at != nil && r.at.where == crash.AfterEffect {
			most++
		}
	default:
		if r.at != nil && r.at.where == crash.AfterEffect && what == (point{r.at.instance, r.at.step, ""}) {
			most++
		}
	}
	if n > most {
		r.t.Errorf("%s: %s ran %d times, want %d at most", r.what(), what, n, most)
	}
}

// counts says how often each step's function ran without an error, and each Effect happened.
func (r *crashRun) counts() string {
	var b strings.Builder
	for i, step := range r.order {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", step.step, r.effects[step])
	}
	return b.String()
}
