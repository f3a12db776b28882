package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func (r *rig) client() *worker.Client { return worker.NewClient(r.st, worker.ClientConfig{}) }

// accepts enqueues a job that must be accepted.
func (r *rig) accepts(c *worker.Client, instance string, payload any, opts ...worker.EnqueueOption) uuid.UUID {
	r.t.Helper()
	id, err := c.Enqueue(r.t.Context(), instance, payload, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func TestEnqueueKeepsWhatItIsGiven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c, own, now := r.client(), uuid.New(), time.Now()
		for name, tc := range map[string]struct {
			payload any
			opts    []worker.EnqueueOption
			want    store.Job
		}{
			"defaults":    {map[string]int{"n": 1}, nil, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`{"n":1}`), RunAt: now}},
			"nothing":     {nil, nil, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`null`), RunAt: now}},
			"raw":         {json.RawMessage(`{"a": "<b>"}`), nil, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`{"a": "<b>"}`), RunAt: now}},
			"nil raw":     {json.RawMessage(nil), nil, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`null`), RunAt: now}},
			"bytes":       {[]byte("hi"), nil, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`"aGk="`), RunAt: now}},
			"an id":       {1, []worker.EnqueueOption{worker.ID(own)}, store.Job{ID: own, State: store.Todo, Priority: 5, Payload: []byte(`1`), RunAt: now}},
			"priority":    {1, []worker.EnqueueOption{worker.Priority(9)}, store.Job{State: store.Todo, Priority: 9, Payload: []byte(`1`), RunAt: now}},
			"the last":    {1, []worker.EnqueueOption{worker.Priority(9), nil, worker.Priority(2)}, store.Job{State: store.Todo, Priority: 2, Payload: []byte(`1`), RunAt: now}},
			"a delay":     {1, []worker.EnqueueOption{worker.Delay(90 * time.Second)}, store.Job{State: store.Scheduled, Priority: 5, Payload: []byte(`1`), RunAt: now.Add(90 * time.Second)}},
			"no delay":    {1, []worker.EnqueueOption{worker.Delay(0)}, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`1`), RunAt: now}},
			"a fraction":  {1, []worker.EnqueueOption{worker.Delay(time.Nanosecond)}, store.Job{State: store.Scheduled, Priority: 5, Payload: []byte(`1`), RunAt: now.Add(time.Millisecond)}},
			"a time":      {1, []worker.EnqueueOption{worker.At(now.Add(time.Hour))}, store.Job{State: store.Scheduled, Priority: 5, Payload: []byte(`1`), RunAt: now.Add(time.Hour)}},
			"a past time": {1, []worker.EnqueueOption{worker.At(now.Add(-time.Hour))}, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`1`), RunAt: now}},
			"the largest": {strings.Repeat("x", store.MaxPayload-2), nil, store.Job{State: store.Todo, Priority: 5, Payload: []byte(`"` + strings.Repeat("x", store.MaxPayload-2) + `"`), RunAt: now}},
		} {
			id := r.accepts(c, "images", tc.payload, tc.opts...)
			got := r.job(id)
			if tc.want.ID != uuid.Nil && id != tc.want.ID {
				t.Errorf("%s: id %s, want %s", name, id, tc.want.ID)
			}
			if got.State != tc.want.State || got.Priority != tc.want.Priority || !bytes.Equal(got.Payload, tc.want.Payload) || !got.RunAt.Equal(tc.want.RunAt) {
				t.Errorf("%s: %s, priority %d, %.40q, to run at %v; want %s, %d, %.40q, %v", name, got.State, got.Priority,
					got.Payload, got.RunAt, tc.want.State, tc.want.Priority, tc.want.Payload, tc.want.RunAt)
			}
		}
	})
}

// badJobs are what no client may send.
var badJobs = map[string]worker.Request{
	"a name with a space":     {Instance: "a b"},
	"no name":                 {Instance: ""},
	"a long name":             {Instance: strings.Repeat("x", 129)},
	"priority 0":              {Instance: "images", Options: []worker.EnqueueOption{worker.Priority(0)}},
	"priority 11":             {Instance: "images", Options: []worker.EnqueueOption{worker.Priority(11)}},
	"a negative delay":        {Instance: "images", Options: []worker.EnqueueOption{worker.Delay(-1)}},
	"both delay and time":     {Instance: "images", Options: []worker.EnqueueOption{worker.Delay(1), worker.At(time.Now())}},
	"both, with no delay":     {Instance: "images", Options: []worker.EnqueueOption{worker.At(time.Now()), worker.Delay(0)}},
	"a zero time":             {Instance: "images", Options: []worker.EnqueueOption{worker.At(time.Time{})}},
	"a time too far":          {Instance: "images", Options: []worker.EnqueueOption{worker.At(time.Date(10_000, 1, 2, 0, 0, 0, 0, time.UTC))}},
	"a zero id":               {Instance: "images", Options: []worker.EnqueueOption{worker.ID(uuid.Nil)}},
	"a payload without JSON":  {Instance: "images", Payload: make(chan int)},
	"a number without JSON":   {Instance: "images", Payload: math.NaN()},
	"raw text that's no JSON": {Instance: "images", Payload: json.RawMessage("{")},
	"raw text of nothing":     {Instance: "images", Payload: json.RawMessage("")},
	"no attempt":              {Instance: "images", Options: []worker.EnqueueOption{worker.MaxAttempts(0)}},
	"metadata without key":    {Instance: "images", Options: []worker.EnqueueOption{worker.Metadata("", "v")}},
	"metadata that's no text": {Instance: "images", Options: []worker.EnqueueOption{worker.Metadata("k", "\xff")}},
	"metadata over 16 KiB":    {Instance: "images", Options: []worker.EnqueueOption{worker.Metadata("k", strings.Repeat("v", store.MaxMetadata))}},
	"a zero deadline":         {Instance: "images", Options: []worker.EnqueueOption{worker.Deadline(time.Time{})}},
	"a deadline too far":      {Instance: "images", Options: []worker.EnqueueOption{worker.Deadline(time.Date(10_000, 1, 2, 0, 0, 0, 0, time.UTC))}},
	"a deadline before 1970":  {Instance: "images", Options: []worker.EnqueueOption{worker.Deadline(time.Unix(-1, 0))}},
	"an empty key":            {Instance: "images", Options: []worker.EnqueueOption{worker.Unique("", worker.UntilDone())}},
	"a key over 1 KiB":        {Instance: "images", Options: []worker.EnqueueOption{worker.Unique(strings.Repeat("k", store.MaxKey+1), worker.UntilDone())}},
	"unique until nothing":    {Instance: "images", Options: []worker.EnqueueOption{worker.Unique("k", worker.Until{})}},
	"unique for no time":      {Instance: "images", Options: []worker.EnqueueOption{worker.Unique("k", worker.For(0))}},
	"unique for less than 0":  {Instance: "images", Options: []worker.EnqueueOption{worker.Unique("k", worker.For(-time.Hour))}},
	"a payload over 1 MiB":    {Instance: "images", Payload: strings.Repeat("x", store.MaxPayload-1)},
}

func TestWhatCanNotSucceedIsRefusedBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		for name, bad := range badJobs {
			id, err := c.Enqueue(t.Context(), bad.Instance, bad.Payload, bad.Options...)
			if !errors.Is(err, store.ErrInvalid) || id != uuid.Nil {
				t.Errorf("%s: %v, %v; want ErrInvalid and no id", name, id, err)
			}
		}
		if n := r.fault.Seen(); n != 0 {
			t.Errorf("%d commands were sent", n)
		}
	})
}

func TestAClientWithoutAStoreSaysSo(t *testing.T) {
	c := worker.NewClient(nil, worker.ClientConfig{})
	_, enqueued := c.Enqueue(t.Context(), "images", 1)
	_, many := c.EnqueueMany(t.Context(), []worker.Request{{Instance: "images"}})
	_, waited := c.Wait(t.Context(), uuid.New())
	for _, err := range []error{enqueued, many, waited, c.Cancel(t.Context(), uuid.New())} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
}

func TestAKnownIDChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		id := r.accepts(c, "images", 1)
		got, err := c.Enqueue(t.Context(), "images", 2, worker.ID(id))
		if !errors.Is(err, store.ErrExists) || got != id {
			t.Errorf("%v, %v; want ErrExists with the id", got, err)
		}
		if j := r.job(id); string(j.Payload) != "1" {
			t.Errorf("the payload is %s, want 1", j.Payload)
		}
	})
}

// realStore is a store of the test's own on a real server.
func realStore(t *testing.T) (*store.Store, *redistest.Fault) {
	t.Helper()
	rdb, fault := redistest.Shared(t).Client(t), &redistest.Fault{}
	rdb.AddHook(fault)
	st, err := store.Open(rdb, store.Options{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	return st, fault
}

func TestAContextThatHasEndedSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.client().Enqueue(ctx, "images", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
		results, err := r.client().EnqueueMany(ctx, []worker.Request{{Instance: "images"}})
		if !errors.Is(err, context.Canceled) || !errors.Is(results[0].Err, context.Canceled) {
			t.Errorf("%v, %v; want the context's error", results, err)
		}
		if n := r.fault.Seen(); n != 0 {
			t.Errorf("%d commands were sent", n)
		}
	})
}

// always is a source of randomness that has none.
type always byte

func (a always) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(a)
	}
	return len(b), nil
}

func TestIDsAreRandomWhereThoseOfTheApplicationComeAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		uuid.SetRand(always(7))
		defer uuid.SetRand(nil)
		r := newRig(t, worker.Config{})
		c := r.client()
		first, second := r.accepts(c, "images", 1), r.accepts(c, "images", 2)
		if s := r.stats("images"); first == second || s.Total != 2 {
			t.Errorf("ids %s and %s, %d jobs; want two", first, second, s.Total)
		}
		if first.Version() != 4 || first.Variant() != uuid.RFC4122 {
			t.Errorf("%s is no random UUID", first)
		}
	})
}

func TestEnqueueLeavesNoGoroutineBehind(t *testing.T) {
	st, _ := realStore(t)
	c := worker.NewClient(st, worker.ClientConfig{})
	if _, err := c.Enqueue(t.Context(), "images", 0); err != nil { // what the Redis client has of its own, it has now
		t.Fatal(err)
	}
	ignore := goleak.IgnoreCurrent()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if _, err := c.Enqueue(t.Context(), "images", i); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	goleak.VerifyNone(t, ignore)
}
