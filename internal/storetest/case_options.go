package storetest

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What a job carries besides its payload.
func optionCases() []Case {
	return named(optionsSurviveWhateverBecomesOfTheJob, optionsAtTheirBoundsAreAccepted, badOptionsAreRefused, aJobWithoutOptionsHasNone)
}

func optionsSurviveWhateverBecomesOfTheJob(t *testing.T, e *Env) {
	want := store.NewJob{
		ID: uuid.New(), Payload: []byte(`{"a":"\u0000"}`), Priority: 7, MaxAttempts: 12, Deadline: e.Now(t).Add(24 * time.Hour),
		Metadata: map[string]string{"trace": "00-ab", "": "empty", "ключ": "значение \x00 \"'<>&\u2028", "nothing": ""},
		Unique:   store.Unique{Key: "k", Mode: store.UniqueDone},
	}
	same := func(what string, j store.Job) {
		t.Helper()
		if j.MaxAttempts != want.MaxAttempts || !maps.Equal(j.Metadata, want.Metadata) || !j.Deadline.Equal(want.Deadline) ||
			j.Priority != want.Priority || string(j.Payload) != string(want.Payload) {
			t.Errorf("%s: %+v", what, j)
		}
	}
	e.Enqueue(t, want)
	same("enqueued", e.Job(t, want.ID))
	claim := func(what string) *store.Lease {
		t.Helper()
		l := e.claimOne(t)
		same(what, l.Job)
		return l
	}
	l := claim("claimed")
	again := e.Exchange(t, e.Terms(), store.Exchange{Claims: []uuid.UUID{l.Worker()}}).Leases
	same("handed out again", again[0].Job)
	_, found, err := e.Runtime.Heartbeat(t.Context(), e.Terms(), nil, []uuid.UUID{l.Worker()})
	must(t, err)
	same("found by a heartbeat", found[0].Job)
	for _, v := range []store.Verb{store.Release, store.Retry, store.Snooze} {
		e.end(t, l, v)
		l = claim("after " + string(v))
	}
	e.Later(t, lease+time.Second)
	e.Reap(t)
	l = claim("reaped")
	e.end(t, l, store.Bury)
	page, err := e.Store.List(t.Context(), store.Filter{State: store.Dead})
	must(t, err)
	same("listed", page.Jobs[0])
	must(t, e.Store.Requeue(t.Context(), want.ID, store.RequeueMode{}))
	l = claim("requeued")
	e.end(t, l, store.Complete)
	same("done", e.Job(t, want.ID))
}

func optionsAtTheirBoundsAreAccepted(t *testing.T, e *Env) {
	last := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	for _, j := range []store.NewJob{
		{Metadata: map[string]string{"k": strings.Repeat("v", store.MaxMetadata-1)}},
		{Metadata: map[string]string{strings.Repeat("\x01", store.MaxMetadata): ""}}, // longer in JSON
		{Deadline: last}, {MaxAttempts: 1}, {MaxAttempts: 1 << 30},
		{Unique: store.Unique{Key: "k", Mode: store.UniqueWindow, Window: time.Millisecond}},
		{Unique: store.Unique{Key: "m", Mode: store.UniqueWindow, Window: 1<<63 - 1}},
		{Payload: sized(store.MaxPayload), Metadata: map[string]string{"k": strings.Repeat("v", store.MaxMetadata-1)}},
	} {
		got := e.Job(t, e.Enqueue(t, j)[0])
		if got.MaxAttempts != j.MaxAttempts || !maps.Equal(got.Metadata, j.Metadata) || !got.Deadline.Equal(j.Deadline) {
			t.Errorf("it has %d attempts, %d pieces of metadata, deadline %v", got.MaxAttempts, len(got.Metadata), got.Deadline)
		}
	}
	if n := len(e.drain(t)); n != 8 {
		t.Errorf("claimed %d jobs, want 8", n)
	}
}

func badOptionsAreRefused(t *testing.T, e *Env) {
	key := func(u store.Unique) store.NewJob { return store.NewJob{Unique: u} }
	bad := map[string]store.NewJob{
		"negative attempts":        {MaxAttempts: -1},
		"much metadata":            {Metadata: map[string]string{"k": strings.Repeat("v", store.MaxMetadata)}},
		"metadata that is no text": {Metadata: map[string]string{"k": "\xff"}},
		"a key that is no text":    {Metadata: map[string]string{"\xff": "v"}},
		"a deadline before 1970":   {Deadline: time.Unix(-1, 0)},
		"a deadline in 1970":       {Deadline: time.Unix(0, 0)},
		"a deadline too far":       {Deadline: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"a key without a mode":     key(store.Unique{Key: "k"}),
		"an unknown mode":          key(store.Unique{Key: "k", Mode: 'x'}),
		"a mode without a key":     key(store.Unique{Mode: store.UniqueDone}),
		"a long key":               key(store.Unique{Key: strings.Repeat("k", store.MaxKey+1), Mode: store.UniqueDone}),
		"no window":                key(store.Unique{Key: "k", Mode: store.UniqueWindow}),
		"a short window":           key(store.Unique{Key: "k", Mode: store.UniqueWindow, Window: time.Millisecond - 1}),
		"a negative window":        key(store.Unique{Key: "k", Mode: store.UniqueWindow, Window: -time.Hour}),
		"a window alone":           key(store.Unique{Window: time.Hour}),
	}
	e.one(t)
	e.untouched(t, func() {
		for name, j := range bad {
			j.ID, j.Payload = uuid.New(), []byte(`1`)
			wantErr(t, name, e.try(t, j)[0], store.ErrInvalid)
		}
	})
	for name, j := range bad { // one bad item refuses no other
		j.ID, j.Payload = uuid.New(), []byte(`1`)
		jobs := newJobs(2)
		outcome := e.try(t, jobs[0], j, jobs[1])
		must(t, outcome[0])
		wantErr(t, name, outcome[1], store.ErrInvalid)
		must(t, outcome[2])
	}
}

func aJobWithoutOptionsHasNone(t *testing.T, e *Env) {
	id := e.one(t)
	l := e.claimOne(t)
	for _, j := range []store.Job{e.Job(t, id), l.Job} {
		if j.MaxAttempts != 0 || len(j.Metadata) != 0 || !j.Deadline.IsZero() {
			t.Errorf("it has %+v", j)
		}
	}
	e.end(t, l, store.Complete)
	for _, key := range []string{"deadlines", "locks", "owners", "windows", "suspects", "probes"} {
		if e.Raw.Exists(t.Context(), e.Key(instance, key)).Val() != 0 {
			t.Errorf("%s was written for nothing", key)
		}
	}
}
