package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
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

func TestWhatIsEnqueuedAtTheSameTimeTravelsTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		before, n := r.fault.Seen(), 500
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := c.Enqueue(t.Context(), "images", i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sent := r.fault.Seen() - before; sent > n/5 {
			t.Errorf("%d requests for %d jobs", sent, n)
		}
		if got := r.stats("images").Todo; got != int64(n+1) {
			t.Errorf("%d jobs, want %d", got, n+1)
		}
	})
}

func TestALostReplyOfAnEnqueueMakesOneJobAndNoError(t *testing.T) {
	for name, lose := range map[string]func(*redistest.Fault) <-chan struct{}{
		"the request fails":             func(f *redistest.Fault) <-chan struct{} { return f.FailNth(1, redistest.Mentions("{images}")) },
		"its reply is lost":             func(f *redistest.Fault) <-chan struct{} { return f.LoseReplyNth(1, redistest.Mentions("{images}")) },
		"the connection breaks":         func(f *redistest.Fault) <-chan struct{} { return f.CutNth(1, redistest.Mentions("{images}")) },
		"the connection breaks, later":  func(f *redistest.Fault) <-chan struct{} { return f.CutReplyNth(1, redistest.Mentions("{images}")) },
		"the announcement is lost":      func(f *redistest.Fault) <-chan struct{} { return f.LoseReplyNth(1, redistest.Named("sadd")) },
		"the second announcement fails": func(f *redistest.Fault) <-chan struct{} { return f.FailNth(2, redistest.Named("sadd")) },
	} {
		t.Run(name, func(t *testing.T) {
			world := func(t *testing.T, st *store.Store, fault *redistest.Fault) {
				struck := lose(fault)
				c := worker.NewClient(st, worker.ClientConfig{})
				id, err := c.Enqueue(t.Context(), "images", 1)
				if err != nil {
					t.Fatal(err)
				}
				select {
				case <-struck:
				default:
					t.Fatal("no fault has happened")
				}
				again, err := c.Enqueue(t.Context(), "images", 2) // over the same lane
				if err != nil {
					t.Fatal(err)
				}
				page, err := st.List(t.Context(), store.Filter{Instance: "images"})
				if err != nil || len(page.Jobs) != 2 || page.Jobs[0].ID != id || page.Jobs[1].ID != again {
					t.Errorf("jobs %v, %v; want the two that were accepted", page.Jobs, err)
				}
			}
			t.Run("embedded", func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, worker.Config{})
					world(t, r.st, r.fault)
				})
			})
			t.Run("real", func(t *testing.T) {
				st, fault := realStore(t)
				world(t, st, fault)
			})
		})
	}
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

func TestOneCallersEndIsNotThatOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		r.fault.Unplug()
		start := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				_, err := c.Enqueue(ctx, "images", i)
				took := time.Since(start)
				if i%2 == 0 && (!errors.Is(err, context.DeadlineExceeded) || took != time.Second) {
					t.Errorf("after %v: %v; want its own deadline's error when that is due", took, err)
				}
				if i%2 == 1 && err != nil {
					t.Errorf("after %v: %v; want the job accepted", took, err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		r.fault.Plug()
		all.Wait()
		if took := time.Since(start); took > 7*time.Second {
			t.Errorf("it took %v, want a moment after the 5 s of the outage", took)
		}
	})
}

func TestNobodyRepeatsWhatNobodyWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		lost := r.fault.LoseReplyNth(1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-lost; cancel() }()
		id, err := c.Enqueue(ctx, "images", 1)
		if !errors.Is(err, context.Canceled) || id == uuid.Nil {
			t.Fatalf("%v, %v; want the context's error and the id of what may be there", id, err)
		}
		seen := r.fault.Seen()
		time.Sleep(time.Minute)
		if n := r.fault.Seen(); n != seen {
			t.Errorf("%d commands were sent after the last caller had gone", n-seen)
		}
		// It was accepted, and what is enqueued next must not get its answer.
		if _, err := c.Enqueue(t.Context(), "images", 1, worker.ID(id)); !errors.Is(err, store.ErrExists) {
			t.Errorf("%v, want ErrExists", err)
		}
		r.job(r.accepts(c, "images", 2))
		if n := r.stats("images").Todo; n != 3 {
			t.Errorf("%d jobs, want 3", n)
		}
	})
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

func TestWithRedisDownEnqueueReturnsTheErrorInTime(t *testing.T) {
	for name, tc := range map[string]struct {
		limit func(context.Context) (context.Context, context.CancelFunc)
		after time.Duration
		want  error
	}{
		"within its deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 300*time.Millisecond)
		}, 300 * time.Millisecond, context.DeadlineExceeded},
		"when it is cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(2*time.Second, cancel)
			return ctx, cancel
		}, 2 * time.Second, context.Canceled},
		"after ten seconds": {context.WithCancel, 10 * time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, worker.Config{})
				r.fault.Unplug()
				ctx, cancel := tc.limit(t.Context())
				defer cancel()
				start := time.Now()
				_, err := r.client().Enqueue(ctx, "images", 1)
				if took := time.Since(start); took != tc.after {
					t.Errorf("it took %v, want %v", took, tc.after)
				}
				if !errors.Is(err, tc.want) || !errors.Is(err, redistest.ErrFault) {
					t.Errorf("%v; want %v and what is wrong with Redis", err, tc.want)
				}
			})
		})
	}
}

func TestEnqueueOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.fault.Unplug()
		time.AfterFunc(8*time.Second, r.fault.Plug)
		start := time.Now()
		r.accepts(r.client(), "images", 1)
		if took := time.Since(start); took > 9*time.Second {
			t.Errorf("it took %v, want at most a second after the outage", took)
		}
		if n := r.fault.Seen(); n > 40 {
			t.Errorf("%d commands in 9 s", n)
		}
	})
}

func TestAServerThatRefusesIsAnErrorAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c, redis := r.client(), r.st.Runtime().Client()
		r.accepts(c, "images", 0)
		if err := redis.Rename(t.Context(), "stint:{images}:todo", "kept").Err(); err != nil {
			t.Fatal(err)
		}
		if err := redis.Set(t.Context(), "stint:{images}:todo", "foreign", 0).Err(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := c.Enqueue(t.Context(), "images", 1)
		var key *store.KeyError
		if !errors.Is(err, store.ErrServer) || !errors.As(err, &key) || key.Key != "stint:{images}:todo" {
			t.Errorf("%v, want the ErrServer that names the key", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v, want none", took)
		}
		r.accepts(c, "mail", 1) // another instance has nothing to do with it
		if err := redis.Rename(t.Context(), "kept", "stint:{images}:todo").Err(); err != nil {
			t.Fatal(err)
		}
		r.accepts(c, "images", 2)
		if n := r.stats("images").Todo; n != 2 {
			t.Errorf("%d jobs, want 2", n)
		}
	})
}

func TestAFullServerRefusesToEnqueue(t *testing.T) {
	server := redistest.Start(t, redistest.Config("maxmemory 3mb", "maxmemory-policy noeviction"))
	st, err := store.Open(server.Client(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := worker.NewClient(st, worker.ClientConfig{})
	for range 1000 {
		if _, err = c.Enqueue(t.Context(), "images", strings.Repeat("x", 100_000)); err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrServer) {
		t.Errorf("%v, want ErrServer", err)
	}
}

func TestTheListenerHearsOfAcceptedJobsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var heard []worker.Event // without a lock: it is called on our goroutine
		c := worker.NewClient(r.st, worker.ClientConfig{OnEvent: func(e worker.Event) { heard = append(heard, e) }})
		first := r.accepts(c, "images", 1)
		_, _ = c.Enqueue(t.Context(), "images", 1, worker.ID(first))
		_, _ = c.Enqueue(t.Context(), "images", make(chan int))
		results, _ := c.EnqueueMany(t.Context(), []worker.Request{
			{Instance: "mail"}, {Instance: "no good"}, {Instance: "images", Options: []worker.EnqueueOption{worker.ID(first)}}, {Instance: "images"},
		})
		want := []worker.Event{
			worker.JobEnqueued{Instance: "images", Job: first},
			worker.JobEnqueued{Instance: "mail", Job: results[0].ID},
			worker.JobEnqueued{Instance: "images", Job: results[3].ID},
		}
		if !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}

func TestAListenerThatPanicsHarmsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, log := newRig(t, worker.Config{}), &lines{}
		c := worker.NewClient(r.st, worker.ClientConfig{
			OnEvent: func(worker.Event) { panic("oops") },
			Logger:  slog.New(slog.NewTextHandler(log, nil)),
		})
		r.job(r.accepts(c, "images", 1))
		if log.count("panic=oops") != 1 || log.count("enqueue_test.go") != 1 {
			t.Errorf("the log says %q, want the panic and where it was, once", log)
		}
	})
}

func TestAPanicInTheRedisClientIsTheCallersError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, err := store.OpenEmbedded(store.Options{OnCall: func(string, time.Duration, error) { panic("oops") }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = worker.NewClient(st, worker.ClientConfig{}).Enqueue(ctx, "images", 1)
		if p, ok := errors.AsType[*worker.PanicError](err); err != nil && (!ok || p.Value != "oops") {
			t.Errorf("%v, want the panic or, where the store has caught it, nothing", err)
		}
	})
}

func TestManyAreAcceptedEachByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		known, twice := r.accepts(c, "images", 0), uuid.New()
		names, reqs := []string{"good", "known", "mail", "twice", "again"}, []worker.Request{
			{Instance: "images", Payload: 1, Options: []worker.EnqueueOption{worker.Priority(7)}},
			{Instance: "images", Payload: 2, Options: []worker.EnqueueOption{worker.ID(known)}},
			{Instance: "mail", Payload: 3},
			{Instance: "images", Payload: 4, Options: []worker.EnqueueOption{worker.ID(twice)}},
			{Instance: "images", Payload: 5, Options: []worker.EnqueueOption{worker.ID(twice)}},
		}
		want := []error{nil, store.ErrExists, nil, nil, store.ErrExists}
		for name, bad := range badJobs {
			names, reqs, want = append(names, name), append(reqs, bad), append(want, store.ErrInvalid)
		}
		results, err := c.EnqueueMany(t.Context(), reqs)
		if !errors.Is(err, store.ErrExists) || !errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrServer) {
			t.Errorf("%v, want both ErrExists and ErrInvalid", err)
		}
		if text := fmt.Sprintf("%d of %d jobs", 2+len(badJobs), len(reqs)); !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q in it", err, text)
		}
		for i, got := range results {
			if !errors.Is(got.Err, want[i]) {
				t.Errorf("%s: %v, want %v", names[i], got.Err, want[i])
			}
		}
		for i, p := range map[int]string{0: "1", 1: "0", 2: "3", 3: "4"} {
			if j := r.job(results[i].ID); string(j.Payload) != p {
				t.Errorf("%s: payload %s, want %s", names[i], j.Payload, p)
			}
		}
		if results, err := c.EnqueueMany(t.Context(), nil); len(results) != 0 || err != nil {
			t.Errorf("nothing: %v, %v", results, err)
		}
	})
}

func TestManyKeepTheirOrderAndCostFewRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "mail", -1)
		r.accepts(c, "images", -1)
		before := r.fault.Seen()
		reqs := make([]worker.Request, 5500)
		for i := range reqs {
			reqs[i] = worker.Request{Instance: "images", Payload: i}
			if i%10 == 0 {
				reqs[i].Instance = "mail"
			}
		}
		results, err := c.EnqueueMany(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		if sent := r.fault.Seen() - before; sent > 44 {
			t.Errorf("%d requests for 22 parts of two instances, want one each", sent)
		}
		for _, instance := range []string{"images", "mail"} {
			var want, got []uuid.UUID
			for i := range reqs {
				if reqs[i].Instance == instance {
					want = append(want, results[i].ID)
				}
			}
			for cursor, first := "", true; first || cursor != ""; first = false {
				page, err := r.st.List(t.Context(), store.Filter{Instance: instance, State: store.Todo, Limit: 1000, Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range page.Jobs {
					got = append(got, j.ID)
				}
				cursor = page.Next
			}
			if !sortedAlike(got[1:], want) {
				t.Errorf("%s: %d jobs in another order, or others, than the %d requests", instance, len(got)-1, len(want))
			}
		}
	})
}

// refusal is what Redis answers when it is full.
type refusal struct{}

func (refusal) Error() string { return "OOM command not allowed when used memory > 'maxmemory'." }
func (refusal) RedisError()   {}

// full is a server that carries out one script, whose reply is lost, and is full from then on.
type full struct{ scripts int }

func (f *full) DialHook(next redis.DialHook) redis.DialHook { return next }
func (f *full) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (f *full) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		err := error(refusal{})
		if f.scripts++; f.scripts == 1 {
			_ = next(ctx, cmd)
			err = io.EOF
		}
		cmd.SetErr(err)
		return err
	}
}

func TestARefusalAfterALostReplyDoesNotSayThatNothingWasAccepted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "mail", 1) // the server knows the script
		server := &full{}
		r.st.Runtime().Client().(*redis.Client).AddHook(server)
		id, err := c.Enqueue(t.Context(), "mail", 2)
		if !errors.Is(err, store.ErrServer) || !strings.Contains(fmt.Sprint(err), "whether it was accepted is not known") {
			t.Errorf("%v; want ErrServer, and that the outcome is not known", err)
		}
		if id == uuid.Nil {
			t.Error("no id to settle it with")
		}
		_, err = c.Enqueue(t.Context(), "mail", 3)
		if !errors.Is(err, store.ErrServer) || strings.Contains(fmt.Sprint(err), "not known") {
			t.Errorf("%v; want ErrServer alone: nothing was accepted", err)
		}
	})
}

// largest notes how many arguments a request had at most, of those that have an argument with this text in it.
type largest struct {
	about string
	args  atomic.Int64
}

func (l *largest) DialHook(next redis.DialHook) redis.DialHook { return next }
func (l *largest) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (l *largest) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		about := func(arg any) bool { return strings.Contains(fmt.Sprint(arg), l.about) }
		if l.about != "" && !slices.ContainsFunc(cmd.Args(), about) {
			return next(ctx, cmd)
		}
		for n := int64(len(cmd.Args())); ; {
			if old := l.args.Load(); n <= old || l.args.CompareAndSwap(old, n) {
				return next(ctx, cmd)
			}
		}
	}
}

// Redis serves nobody else while it carries out a request.
func TestNoRequestIsForMoreThan250JobsOrWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var size largest
		r.st.Runtime().Client().(*redis.Client).AddHook(&size)
		most := func(what string, each int64) {
			if got := size.args.Swap(0); got < 2*200 || got > each*250+60 {
				t.Errorf("%s: the largest request has %d arguments; a job or a worker has %d at most", what, got, each)
			}
		}
		const n = 3000
		if _, err := r.client().EnqueueMany(t.Context(), slices.Repeat([]worker.Request{{Instance: "images", Payload: none{}}}, n)); err != nil {
			t.Fatal(err)
		}
		most("enqueuing many", 2)
		c := r.client()
		var all sync.WaitGroup
		for range n {
			all.Go(func() { r.accepts(c, "images", none{}) })
		}
		all.Wait()
		most("many enqueuing", 2)
		worker.Handle(r.sup, "images", func(context.Context, none) error { time.Sleep(time.Second); return nil }, worker.Concurrency(2000))
		r.start()
		settle(time.Minute)
		most("working", 5) // 3 of them if it wants no other job
		if s := r.stats("images"); s.Done != 2*n {
			t.Errorf("stats are %+v, want %d done", s, 2*n)
		}
		r.stopWell()
	})
}

// waits is a hook that notes of how many steps the jobs wait, at most, that one request parks.
type waits struct{ most atomic.Int64 }

func (*waits) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*waits) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (w *waits) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n := int64(0)
		for _, arg := range cmd.Args() {
			if s, ok := arg.(string); ok && strings.HasPrefix(s, "a\npart/") {
				n += int64(strings.Count(s, "\n"))
			}
		}
		if n > w.most.Load() {
			w.most.Store(n) // the handlers park at the same moment: that is a lane or two
		}
		return next(ctx, cmd)
	}
}

func TestNoRequestIsForMoreThanAThousandStepsOfManyJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 300
		r := newRig(t, worker.Config{})
		size, parks := largest{about: ":step_result:"}, &waits{}
		r.st.Runtime().Client().(*redis.Client).AddHook(&size)
		r.st.Runtime().Client().(*redis.Client).AddHook(parks)
		together := time.Now().Add(time.Minute)
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			fs, err := worker.AsyncEach[none](ctx, "part", "child", make([]none, n))
			if err != nil {
				return err
			}
			time.Sleep(time.Until(together))
			_, err = worker.WaitAll(ctx, fs)
			return err
		}, worker.Concurrency(12))
		r.latency(5 * time.Millisecond)
		r.enqueueMany("x", 12)
		r.start()
		settle(2 * time.Minute)
		if s := r.stats("x"); s.Parked != 12 {
			t.Fatalf("stats are %+v, want 12 parked", s)
		}
		if got := size.args.Load(); got < 2*n || got > 2*1000+100 {
			t.Errorf("the largest request with steps has %d arguments, of which a step has 2", got)
		}
		if got := parks.most.Load(); got < n || got > 1000+2 {
			t.Errorf("one request parks jobs that wait for %d steps", got)
		}
		r.stopWell()
	})
}

func TestNoRequestIsForMoreThan250Children(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		size := largest{about: "stint:{child}:lane:"}
		r.st.Runtime().Client().(*redis.Client).AddHook(&size)
		const n = 1000
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			fs, err := worker.AsyncEach[none](ctx, "part", "child", make([]none, n))
			if err == nil {
				_, err = worker.WaitAll(ctx, fs)
			}
			return err
		})
		r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		if s := r.stats("child"); s.Todo != n {
			t.Fatalf("stats are %+v, want %d todo", s, n)
		}
		if got := size.args.Load(); got < 5*200 || got > 5*250+60 {
			t.Errorf("the largest request has %d arguments; a child has 5", got)
		}
		r.stopWell()
	})
}

// A repetition that comes after the lane was forgotten would be another request: the job may have run meanwhile, and be gone.
func TestARequestIsNotRepeatedForLongerThanItIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "mail", 1)                                                   // the server knows the script
		raw := redis.NewClient(r.st.Runtime().Client().(*redis.Client).Options()) // goes on in the outage
		defer raw.Close()
		lost := r.fault.LoseReplyNth(1, redistest.Mentions("{images}"))
		go func() { <-lost; r.fault.Unplug() }()
		time.AfterFunc(70*time.Minute, r.fault.Plug)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		time.AfterFunc(time.Minute, func() { // as if it had run, and nothing were kept
			n, err := raw.ZCard(ctx, "stint:{images}:todo").Result()
			if err == nil && n != 1 {
				err = fmt.Errorf("%d jobs were accepted", n)
			}
			ended <- errors.Join(err, raw.Del(ctx, "stint:{images}:todo", "stint:{images}:jobs").Err())
		})
		id, err := c.Enqueue(ctx, "images", 1)
		if took := time.Since(start); took < 50*time.Minute || took > 51*time.Minute {
			t.Errorf("it took %v, want 50 minutes", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redistest.ErrFault) ||
			!strings.Contains(fmt.Sprint(err), "whether it was accepted is not known") || id == uuid.Nil {
			t.Errorf("%v, %v; want the id, and that the outcome is not known", id, err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // until long after the outage
		if s := r.stats("images"); s.Total != 0 {
			t.Errorf("%d jobs: the one that has ended is there again", s.Total)
		}
		r.job(r.accepts(c, "images", 2))
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

// sortedAlike compares two orders; parts that travelled at the same time may have changed places.
func sortedAlike(got, want []uuid.UUID) bool {
	if len(got) != len(want) {
		return false
	}
	place := map[uuid.UUID]int{}
	for i, id := range want {
		place[id] = i
	}
	for i, id := range got {
		p, ok := place[id]
		if !ok || max(p-i, i-p) > 750 {
			return false
		}
	}
	return true
}

func TestManyLargeOnesTravelAMiBAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		before := r.fault.Seen()
		reqs := slices.Repeat([]worker.Request{{Instance: "images", Payload: strings.Repeat("x", 400_000)}}, 12)
		if _, err := c.EnqueueMany(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		if sent := r.fault.Seen() - before; sent < 6 || sent > 12 {
			t.Errorf("%d requests for 12 payloads of 400 KB, want 2 in each or nearly so", sent)
		}
	})
}

func TestManyGiveUpTogetherWhenRedisIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		r.fault.Unplug()
		reqs := slices.Repeat([]worker.Request{{Instance: "images"}}, 10_000)
		start := time.Now()
		results, err := r.client().EnqueueMany(t.Context(), reqs)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("it took %v, want 10 s for each of at most 3 parts under way", took)
		}
		if !errors.Is(err, redistest.ErrFault) || !strings.Contains(err.Error(), "10000 of 10000") {
			t.Errorf("%v, want all of them, and why", err)
		}
		if last := results[9999].Err; last == nil || !strings.Contains(last.Error(), "not sent") {
			t.Errorf("%v, want it to say that it was not sent", last)
		}
		synctest.Wait()
	})
}

func TestASingleJobDoesNotWaitForABulk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		const n = 20_000
		var accepted, ahead atomic.Int64
		var single sync.WaitGroup
		bulk := worker.NewClient(r.st, worker.ClientConfig{})
		bulk = worker.NewClient(r.st, worker.ClientConfig{OnEvent: func(e worker.Event) {
			if accepted.Add(1) == 1 {
				single.Go(func() {
					if _, err := bulk.Enqueue(t.Context(), "images", "single"); err != nil {
						t.Error(err)
					}
					ahead.Store(accepted.Load())
				})
			}
		}})
		if _, err := bulk.EnqueueMany(t.Context(), slices.Repeat([]worker.Request{{Instance: "images"}}, n)); err != nil {
			t.Fatal(err)
		}
		single.Wait()
		if got := ahead.Load(); got > n/2 {
			t.Errorf("%d of %d jobs of the bulk went first", got, n)
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

func BenchmarkEnqueueByFiftyGoroutines(b *testing.B) {
	st, err := store.Open(redistest.Start(b).Client(b), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := worker.NewClient(st, worker.ClientConfig{})
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 50 {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if _, err := c.Enqueue(context.Background(), "bench", "a payload of some thirty bytes"); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func BenchmarkEnqueueMany(b *testing.B) {
	st, err := store.Open(redistest.Start(b).Client(b), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	reqs := slices.Repeat([]worker.Request{{Instance: "bench", Payload: "a payload of some thirty bytes"}}, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := worker.NewClient(st, worker.ClientConfig{}).EnqueueMany(b.Context(), reqs); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
