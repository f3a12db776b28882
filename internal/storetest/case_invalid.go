package storetest

import (
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Bad input is refused with ErrInvalid, before anything is sent.
func invalidCases() []Case {
	return named(badInstanceNamesAreRefused, badJobsAreRefused, goodJobsAtTheirBoundsAreAccepted, badPagesAreRefused,
		badExchangesAreRefused)
}

// untouched runs f and fails the test if that changed anything.
func (e *Env) untouched(t *testing.T, f func()) {
	t.Helper()
	before := e.Content(t)
	f()
	wantSame(t, "refused", before, e.Content(t))
}

func badInstanceNamesAreRefused(t *testing.T, e *Env) {
	ctx := t.Context()
	e.one(t)
	for _, name := range []string{"", "a b", "ä", "a{b", "a}b", "x\x00", "a\nb", "a*", strings.Repeat("n", 129)} {
		e.untouched(t, func() {
			wantErr(t, "validating", store.ValidateInstance(name), store.ErrInvalid)
			wantErr(t, "enqueuing", errOf(e.Runtime.Enqueue(ctx, new(store.Lane), name, newJobs(1))), store.ErrInvalid)
			terms := e.Terms()
			terms.Instance = name
			_, err := e.Runtime.Exchange(ctx, new(store.Lane), terms, store.Exchange{Claims: workers(1), Wait: true})
			wantErr(t, "exchanging", err, store.ErrInvalid)
			_, _, err = e.Runtime.Heartbeat(ctx, terms, nil, workers(1))
			wantErr(t, "a heartbeat", err, store.ErrInvalid)
			wantErr(t, "reaping", errOf(e.Runtime.Reap(ctx, terms)), store.ErrInvalid)
			_, _, err = e.Runtime.Audit(ctx, name, store.AuditCursor{})
			wantErr(t, "auditing", err, store.ErrInvalid)
			wantErr(t, "awaiting", errOf(e.Runtime.Await(ctx, name, uuid.New())), store.ErrInvalid)
			p := store.Process{ID: e.Process, Instances: []string{instance, name}}
			wantErr(t, "announcing", e.Runtime.Announce(ctx, p, time.Minute), store.ErrInvalid)
			wantErr(t, "deleting", e.Store.DeleteInstance(ctx, name, true), store.ErrInvalid)
			wantErr(t, "pausing", e.Store.Pause(ctx, name), store.ErrInvalid)
			wantErr(t, "resuming", e.Store.Resume(ctx, name), store.ErrInvalid)
			if name != "" { // which means all of them
				wantErr(t, "listing", errOf(e.Store.List(ctx, store.Filter{Instance: name})), store.ErrInvalid)
				wantErr(t, "listing workers", errOf(e.Store.Workers(ctx, name)), store.ErrInvalid)
			}
		})
	}
	for _, name := range []string{"a", "Mail.send_now-v2/eu:west", strings.Repeat("n", 128)} {
		must(t, store.ValidateInstance(name))
		id := e.EnqueueTo(t, name, newJobs(1)...)[0]
		if got := e.Job(t, id).Instance; got != name {
			t.Errorf("it is of %q, want %q", got, name)
		}
	}
}

func badJobsAreRefused(t *testing.T, e *Env) {
	ok := newJobs(1)[0]
	for name, spoil := range map[string]func(j *store.NewJob){
		"no id":             func(j *store.NewJob) { j.ID = uuid.Nil },
		"no payload":        func(j *store.NewJob) { j.Payload = nil },
		"no JSON":           func(j *store.NewJob) { j.Payload = []byte(`{"a":`) },
		"more than JSON":    func(j *store.NewJob) { j.Payload = []byte(`1 2`) },
		"a large payload":   func(j *store.NewJob) { j.Payload = sized(store.MaxPayload + 1) },
		"priority -1":       func(j *store.NewJob) { j.Priority = -1 },
		"priority 11":       func(j *store.NewJob) { j.Priority = 11 },
		"a negative delay":  func(j *store.NewJob) { j.Delay = -time.Nanosecond },
		"delay and time":    func(j *store.NewJob) { j.Delay, j.At = time.Second, time.Now() },
		"a time too far":    func(j *store.NewJob) { j.At = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"a time beyond all": func(j *store.NewJob) { j.At = time.Unix(math.MaxInt64/2, 0) },
	} {
		j := ok
		spoil(&j)
		e.untouched(t, func() {
			outcome, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, []store.NewJob{j})
			must(t, err)
			wantErr(t, name, outcome[0], store.ErrInvalid)
		})
	}
}

func goodJobsAtTheirBoundsAreAccepted(t *testing.T, e *Env) {
	for _, j := range []store.NewJob{
		{Payload: sized(store.MaxPayload)}, {Priority: 1}, {Priority: 10}, {Payload: []byte(`null`)}, {Payload: []byte("\"a\\u0000\xc3\xa4\"")},
		{Delay: math.MaxInt64}, {Payload: []byte(` [1] `)},
	} {
		id := e.Enqueue(t, j)[0]
		got := e.Job(t, id)
		if j.Payload != nil && string(got.Payload) != string(j.Payload) {
			t.Errorf("the payload is %.20q, want %.20q", got.Payload, j.Payload)
		}
		if j.Priority != 0 && got.Priority != j.Priority {
			t.Errorf("the priority is %d, want %d", got.Priority, j.Priority)
		}
	}
	if got := len(e.drain(t)); got != 6 {
		t.Errorf("claimed %d jobs, want 6", got)
	}
	if outcome, err := e.Runtime.Enqueue(t.Context(), new(store.Lane), instance, nil); err != nil || len(outcome) != 0 {
		t.Errorf("no jobs: %v, %v", outcome, err)
	}
}

func badPagesAreRefused(t *testing.T, e *Env) {
	e.Add(t, 3)
	page, err := e.Store.List(t.Context(), store.Filter{Limit: 1})
	if err != nil || page.Next == "" {
		t.Fatalf("no cursor: %v", err)
	}
	text := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	id := strings.Repeat("i", 16)
	for name, f := range map[string]store.Filter{
		"a negative limit":       {Limit: -1},
		"a large limit":          {Limit: store.MaxCall + 1},
		"an unknown state":       {State: "running"},
		"another text":           {Cursor: "next, please"},
		"a cut cursor":           {Cursor: page.Next[:len(page.Next)-4]},
		"a cursor of no state":   {Cursor: text("mail running 1 " + id)},
		"a cursor of no name":    {Cursor: text("{x} todo 1 " + id)},
		"a cursor of no place":   {Cursor: text("mail todo (1 " + id)},
		"a cursor of NaN":        {Cursor: text("mail todo nan " + id)},
		"a cursor of no job":     {Cursor: text("mail todo 1 x")},
		"a cursor of half a job": {Cursor: text("mail todo 1 ")},
	} {
		wantErr(t, name, errOf(e.Store.List(t.Context(), f)), store.ErrInvalid)
	}
}

func badExchangesAreRefused(t *testing.T, e *Env) {
	l := e.hold(t)
	w := uuid.New()
	e.untouched(t, func() {
		for name, x := range map[string]store.Exchange{
			"a worker claims twice":   {Claims: []uuid.UUID{w, w}},
			"a worker finishes twice": {Finishes: []store.Finish{{Lease: l, Verb: store.Complete}, {Lease: l, Verb: store.Bury}}},
		} {
			wantErr(t, name, errOf(e.Runtime.Exchange(t.Context(), new(store.Lane), e.Terms(), x)), store.ErrInvalid)
		}
	})
	if _, err := store.Open(nil, store.Options{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a nil client: %v", err)
	}
	for _, prefix := range []string{"a b", "{a}", strings.Repeat("p", 129)} {
		wantErr(t, "prefix "+prefix, errOf(store.Open(e.Raw, store.Options{Prefix: prefix})), store.ErrInvalid)
	}
}
