package storetest

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Each call is bounded, in items and in bytes. And what people report of systems like this: no bulk enqueue, duplicates
// reported as success.
func boundCases() []Case {
	return named(aCallTakesAThousandItemsAndNoMore, aClaimIsBoundedInBytesButBringsAtLeastOneJob,
		aClaimIsBoundedInBytesWithWhatEarlierAttemptsLeft, aRepeatedClaimIsBoundedInBytes,
		bulkEnqueueReportsEachDuplicate, bulkEnqueueReportsEachBadItem)
}

func aCallTakesAThousandItemsAndNoMore(t *testing.T, e *Env) {
	ctx, terms, n := t.Context(), e.Terms(), store.MaxCall
	wantErr(t, "1,001 jobs", errOf(e.Runtime.Enqueue(ctx, new(store.Lane), instance, newJobs(n+1))), store.ErrInvalid)
	e.Add(t, 2*n)
	mine := workers(n)
	out := e.Exchange(t, terms, store.Exchange{Claims: mine})
	if len(out.Leases) != n {
		t.Fatalf("claimed %d jobs, want %d", len(out.Leases), n)
	}
	var x store.Exchange
	var beats []store.Beat
	for _, l := range out.Leases {
		beats = append(beats, store.Beat{Lease: l, Progress: []byte(`"half"`)})
		x.Finishes = append(x.Finishes, store.Finish{Lease: l, Verb: store.Retry, Delay: time.Hour, Error: "e", Progress: []byte(`"more"`)})
	}
	x.Claims = mine
	verdicts, _, err := e.Runtime.Heartbeat(ctx, terms, beats, nil)
	must(t, err)
	for _, v := range verdicts {
		if v != store.Held {
			t.Fatalf("a heartbeat of %d got %v", n, v)
		}
	}
	_, _, err = e.Runtime.Heartbeat(ctx, terms, beats, workers(1))
	wantErr(t, "a heartbeat of 1,001", err, store.ErrInvalid)
	out = e.Exchange(t, terms, x)
	if len(out.Leases) != n {
		t.Fatalf("claimed %d jobs with as many finishes, want %d", len(out.Leases), n)
	}
	for i, s := range out.Ended {
		if s != store.Scheduled {
			t.Fatalf("finish %d led to %q", i, s)
		}
	}
	wantErr(t, "1,001 claims", errOf(e.Runtime.Exchange(ctx, new(store.Lane), terms, store.Exchange{Claims: workers(n + 1)})), store.ErrInvalid)
	x.Finishes = append(x.Finishes, x.Finishes[0])
	wantErr(t, "1,001 finishes", errOf(e.Runtime.Exchange(ctx, new(store.Lane), terms, x)), store.ErrInvalid)
}

// sized returns a JSON text of n bytes.
func sized(n int) []byte {
	b := bytes.Repeat([]byte{'x'}, n)
	b[0], b[n-1] = '"', '"'
	return b
}

const mib = 1 << 20

func aClaimIsBoundedInBytesButBringsAtLeastOneJob(t *testing.T, e *Env) {
	e.add(t, 3, store.NewJob{Payload: sized(store.MaxPayload)})
	e.add(t, 50, store.NewJob{Payload: sized(64 << 10)})
	e.add(t, 5, store.NewJob{Payload: sized(700 << 10)})
	seen := 0
	for range 60 {
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(100)})
		bytes := 0
		for _, l := range out.Leases {
			bytes += len(l.Job.Payload)
		}
		if len(out.Leases) == 0 {
			t.Fatal("a claim that brings nothing while there are jobs")
		}
		if bytes > mib && len(out.Leases) > 1 {
			t.Errorf("a claim brought %d jobs of %d bytes", len(out.Leases), bytes)
		}
		if seen += len(out.Leases); seen == 58 {
			return
		}
		if out.Next != 0 {
			t.Errorf("%d jobs are left, and the next look is after %v; want at once", 58-seen, out.Next)
		}
	}
	t.Errorf("claimed %d of 58 jobs", seen)
}

// add enqueues n jobs like j, one a call.
func (e *Env) add(t *testing.T, n int, j store.NewJob) {
	t.Helper()
	for range n {
		e.Enqueue(t, j)
	}
}

// leaseBytes is the size of what a reply tells of the leases.
func leaseBytes(leases []*store.Lease) (n int) {
	for _, l := range leases {
		n += len(l.Job.Payload) + len(l.Job.Progress) + len(l.Job.LastError)
	}
	return n
}

func aClaimIsBoundedInBytesWithWhatEarlierAttemptsLeft(t *testing.T, e *Env) {
	const n = 100
	e.Add(t, n)
	held := e.Claim(t, n)
	e.Finish(t, store.Finish{Verb: store.Release, Progress: sized(store.MaxProgress), Error: string(sized(store.MaxError))}, held...)
	seen := 0
	for range n {
		got := e.Exchange(t, e.Terms(), store.Exchange{Claims: workers(n)}).Leases
		if bytes := leaseBytes(got); bytes > mib && len(got) > 1 {
			t.Fatalf("a claim brought %d jobs of %d bytes, with what they left", len(got), bytes)
		}
		if seen += len(got); seen == n {
			return
		}
	}
	t.Errorf("claimed %d of %d jobs", seen, n)
}

// A process that has forgotten what its workers hold asks for all of it.
func aRepeatedClaimIsBoundedInBytes(t *testing.T, e *Env) {
	const n = 5
	e.add(t, n, store.NewJob{Payload: sized(store.MaxPayload)})
	mine := workers(n)
	for _, w := range mine {
		e.Exchange(t, e.Terms(), store.Exchange{Claims: []uuid.UUID{w}})
	}
	seen := 0
	for range n {
		out := e.Exchange(t, e.Terms(), store.Exchange{Claims: mine})
		if bytes := leaseBytes(out.Leases); bytes > mib && len(out.Leases) > 1 {
			t.Fatalf("a claim brought %d jobs of %d bytes", len(out.Leases), bytes)
		}
		if seen += len(out.Leases); seen < n && out.Next != 0 {
			t.Errorf("the next look is after %v, want at once", out.Next)
		}
		for _, l := range out.Leases {
			e.end(t, l, store.Complete)
		}
	}
	if seen != n {
		t.Errorf("got %d of %d jobs back", seen, n)
	}

	e.add(t, n, store.NewJob{Payload: sized(700 << 10)})
	for _, w := range mine {
		e.Exchange(t, e.Terms(), store.Exchange{Claims: []uuid.UUID{w}})
	}
	seen = 0
	for range n {
		_, found, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), nil, mine)
		must(t, err)
		if bytes := leaseBytes(found); bytes > mib && len(found) > 1 {
			t.Fatalf("a heartbeat brought %d jobs of %d bytes", len(found), bytes)
		}
		seen += len(found)
		e.Finish(t, store.Finish{Verb: store.Complete}, found...)
	}
	if seen != n {
		t.Errorf("a heartbeat found %d of %d jobs", seen, n)
	}
}

func bulkEnqueueReportsEachDuplicate(t *testing.T, e *Env) {
	jobs := newJobs(6)
	e.Enqueue(t, jobs[1])
	l := e.claimOne(t)
	e.end(t, l, store.Complete)
	e.Enqueue(t, jobs[3])
	jobs[5].ID = jobs[4].ID // twice in one call
	before := e.Kept(t)
	jobs[1].Payload, jobs[3].Payload = []byte(`"other"`), []byte(`"other"`)
	outcome, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, jobs)
	must(t, err)
	for i, exists := range []bool{false, true, false, true, false, true} {
		if exists {
			wantErr(t, "a known id", outcome[i], store.ErrExists)
		} else {
			must(t, outcome[i])
		}
	}
	if s := e.Stats(t); s.Todo != 4 || s.Done != 1 {
		t.Errorf("stats are %+v, want 4 todo and 1 done", s)
	}
	after := e.Kept(t)
	for k, v := range before {
		if after[k] != v && k != e.Key(instance, "meta")+" seq" {
			t.Errorf("a known job has changed: %q was %q, is %q", k, v, after[k])
		}
	}
	if got := e.Job(t, jobs[4].ID); string(got.Payload) != "4" {
		t.Errorf("of two with one id the second was kept: %s", got.Payload)
	}
}

func bulkEnqueueReportsEachBadItem(t *testing.T, e *Env) {
	jobs := newJobs(5)
	jobs[0].Priority, jobs[2].Payload, jobs[4].ID = 11, []byte(`{`), uuid.Nil
	outcome, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, jobs)
	must(t, err)
	for i := range jobs {
		if i%2 == 0 {
			wantErr(t, "a bad item", outcome[i], store.ErrInvalid)
		} else {
			must(t, outcome[i])
		}
	}
	wantIDs(t, "todo", e.Listed(t, store.Todo), []uuid.UUID{jobs[1].ID, jobs[3].ID})
}
