package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// instance is the one that most cases work with.
const instance = "mail"

const lease = 50 * time.Second

// slack is by how much a case stays clear of a moment, on its two sides. A real server's clock goes on while the machine serves others.
func (e *Env) slack() time.Duration {
	if e.Fake {
		return 100 * time.Millisecond
	}
	return 10 * time.Second
}

// Terms returns those of this world's process with an instance: a lease of 50 s, three crashes, nothing trimmed.
func (e *Env) Terms() store.Terms {
	kept := store.Retention{Age: 24 * time.Hour, Count: 1_000_000}
	return store.Terms{Instance: instance, Process: e.Process, Lease: lease, Done: kept, Dead: kept, MaxCrashes: 3}
}

// freshJobs are newJobs whose ids were made for them.
func freshJobs(n int) []store.NewJob {
	jobs := newJobs(n)
	for i := range jobs {
		jobs[i].Fresh = true
	}
	return jobs
}

// newJobs returns n jobs that carry their index as payload.
func newJobs(n int) []store.NewJob {
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = store.NewJob{ID: uuid.New(), Payload: fmt.Appendf(nil, "%d", i)}
	}
	return jobs
}

// Enqueue accepts jobs, 1,000 a call, and returns their ids. It fills in ids and payloads that are missing.
func (e *Env) Enqueue(t testing.TB, jobs ...store.NewJob) []uuid.UUID {
	t.Helper()
	return e.EnqueueTo(t, instance, jobs...)
}

// EnqueueTo is Enqueue for any instance.
func (e *Env) EnqueueTo(t testing.TB, instance string, jobs ...store.NewJob) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, len(jobs))
	for i := range jobs {
		if jobs[i].ID == uuid.Nil {
			jobs[i].ID, jobs[i].Fresh = uuid.New(), true
		}
		if jobs[i].Payload == nil {
			jobs[i].Payload = []byte(`{}`)
		}
		ids[i] = jobs[i].ID
	}
	var lane store.Lane
	for some := range slices.Chunk(jobs, store.MaxCall) {
		outcome, err := e.Runtime.Enqueue(t.Context(), &lane, instance, some)
		if err := errors.Join(append(outcome, err)...); err != nil {
			t.Fatalf("enqueuing: %v", err)
		}
	}
	return ids
}

// Add enqueues n plain jobs.
func (e *Env) Add(t testing.TB, n int) []uuid.UUID {
	t.Helper()
	return e.Enqueue(t, make([]store.NewJob, n)...)
}

// one enqueues one plain job.
func (e *Env) one(t testing.TB) uuid.UUID {
	t.Helper()
	return e.Add(t, 1)[0]
}

func workers(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

// Exchange makes the call on a fresh lane.
func (e *Env) Exchange(t testing.TB, terms store.Terms, x store.Exchange) store.Exchanged {
	t.Helper()
	out, err := e.Runtime.Exchange(t.Context(), new(store.Lane), terms, x)
	if err != nil {
		t.Fatalf("exchanging: %v", err)
	}
	return out
}

// Claim lets n new workers ask for a job and returns what they got.
func (e *Env) Claim(t testing.TB, n int) []*store.Lease {
	t.Helper()
	got := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(n)}).Leases
	for _, l := range got {
		if l.Broken != nil {
			t.Errorf("claimed a broken job: %v", l.Broken)
		}
	}
	return got
}

// claimOne claims the job that is next.
func (e *Env) claimOne(t testing.TB) *store.Lease {
	t.Helper()
	got := e.Claim(t, 1)
	if len(got) != 1 {
		t.Fatalf("claimed %d jobs, want 1", len(got))
	}
	return got[0]
}

// hold enqueues a job and claims it; nothing else is waiting.
func (e *Env) hold(t testing.TB) *store.Lease {
	t.Helper()
	id := e.one(t)
	l := e.claimOne(t)
	if l.Job.ID != id {
		t.Fatalf("claimed %s, want %s", l.Job.ID, id)
	}
	return l
}

// Finish ends leases of one instance, each in the same way, and returns where that led.
func (e *Env) Finish(t testing.TB, f store.Finish, leases ...*store.Lease) []store.State {
	t.Helper()
	terms := e.Terms()
	var all []store.Finish
	for _, l := range leases {
		f.Lease, terms.Instance = l, l.Job.Instance
		all = append(all, f)
	}
	return e.Exchange(t, terms, store.Exchange{Finishes: all}).Ended
}

// end ends one lease, which must be current.
func (e *Env) end(t testing.TB, l *store.Lease, v store.Verb) {
	t.Helper()
	if got := e.Finish(t, store.Finish{Verb: v}, l)[0]; got == "" {
		t.Fatalf("finish %q was refused", v)
	}
}

// Reap makes one call.
func (e *Env) Reap(t testing.TB) store.Maintained {
	t.Helper()
	return e.reap(t, e.Terms())
}

// reap makes one call under other terms than usual.
func (e *Env) reap(t testing.TB, terms store.Terms) store.Maintained {
	t.Helper()
	m, err := e.Runtime.Reap(t.Context(), terms)
	if err != nil {
		t.Fatalf("reaping: %v", err)
	}
	return m
}

// Job reads a job.
func (e *Env) Job(t testing.TB, id uuid.UUID) store.Job {
	t.Helper()
	j, err := e.Store.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("reading a job: %v", err)
	}
	return j
}

// Want fails the test unless each of the jobs is in the state.
func (e *Env) Want(t testing.TB, s store.State, ids ...uuid.UUID) {
	t.Helper()
	for _, id := range ids {
		if j := e.Job(t, id); j.State != s {
			t.Errorf("job is %s (%q), want %s", j.State, j.LastError, s)
		}
	}
}

// WantGone fails the test unless there is no trace of the job.
func (e *Env) WantGone(t testing.TB, id uuid.UUID) {
	t.Helper()
	if j, err := e.Store.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("reading a removed job: %s, %v; want ErrNotFound", j.State, err)
	}
}

// Listed returns the ids of all jobs in a state, in the order of List.
func (e *Env) Listed(t testing.TB, s store.State) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	f := store.Filter{Instance: instance, State: s, Limit: store.MaxCall}
	for range 1000 {
		page, err := e.Store.List(t.Context(), f)
		if err != nil {
			t.Fatalf("listing: %v", err)
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return ids
		}
	}
	t.Fatal("a listing without end")
	return nil
}

// Stats returns those of the instance that cases work with.
func (e *Env) Stats(t testing.TB) store.Stats {
	t.Helper()
	all, err := e.Store.Stats(t.Context())
	if err != nil {
		t.Fatalf("counting: %v", err)
	}
	for _, s := range all {
		if s.Instance == instance {
			return s
		}
	}
	return store.Stats{}
}

func jobIDs(leases []*store.Lease) []uuid.UUID {
	ids := make([]uuid.UUID, len(leases))
	for i, l := range leases {
		ids[i] = l.Job.ID
	}
	return ids
}

func wantIDs(t testing.TB, what string, got, want []uuid.UUID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %d jobs %.8s, want %d %.8s", what, len(got), got, len(want), want)
	}
}

// errOf is the error of a call of which nothing else is wanted.
func errOf[T any](_ T, err error) error { return err }

func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: error %v, want %v", what, got, want)
	}
}
