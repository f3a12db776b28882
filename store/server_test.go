package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// What a server can be that can't serve: each is an ErrServer, or an error in time.

func open(t *testing.T, rdb redis.UniversalClient, prefix string) *store.Store {
	t.Helper()
	st, err := store.Open(rdb, store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func noError(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: error %v, want %v", what, got, want)
	}
}

func oneJob() []store.NewJob { return []store.NewJob{{ID: uuid.New(), Payload: []byte(`{}`)}} }

func enqueue(st *store.Store, ctx context.Context) error {
	outcome, err := st.Runtime().Enqueue(ctx, new(store.Lane), "mail", oneJob())
	return errors.Join(append(outcome, err)...)
}

func TestATickThatFindsNoMemoryHasFailedUntilThereIsSome(t *testing.T) {
	server := redistest.Start(t)
	e := storetest.Real(t, server.Addr())
	ctx := t.Context()
	definition := store.Definition{Key: "e", Spec: "* * * * *", RecordCount: 3, Job: store.NewJob{Payload: []byte(`1`)}}
	_, _, err := e.Runtime.Register(ctx, "mail", []store.Definition{definition}, false)
	noError(t, "registering", err)
	e.Later(t, time.Hour)
	read, err := e.Runtime.Entries(ctx, "mail", "", []string{"e"})
	noError(t, "reading the entry", err)
	tick := read.Now.Add(-time.Minute)
	ticks := func() []store.EntryTicks {
		return []store.EntryTicks{{Entry: read.Entries[0], Decisions: []store.Decision{{Tick: tick}}}}
	}
	dispatch := func() error {
		_, _, err := e.Runtime.Dispatch(ctx, new(store.Lane), "mail", "node", ticks())
		return err
	}
	noError(t, "limiting the memory", e.Raw.ConfigSet(ctx, "maxmemory", "1mb").Err())
	wantErr(t, "dispatching", dispatch(), store.ErrServer)
	last := tick
	for i := 10; i >= 0; i-- { // however many can't be, no more are kept than always
		tick = last.Add(-time.Duration(i) * time.Minute)
		_, _, err = e.Runtime.Undispatched(ctx, "mail", "node", "no memory", ticks())
		noError(t, "noting it", err)
	}
	if page, err := e.Store.Dispatches(ctx, store.DispatchFilter{}); err != nil || len(page.Dispatches) != 3 {
		t.Errorf("%+v, %v; want the latest three", page, err)
	}
	if d, err := e.Store.FindDispatch(ctx, "e", tick); err != nil || d.Status != store.StatusFailed {
		t.Errorf("%+v, %v; want it to have failed", d, err)
	}
	noError(t, "disabling", e.Store.EnableEntry(ctx, "e", false))
	noError(t, "limiting it no more", e.Raw.ConfigSet(ctx, "maxmemory", "0").Err())
	noError(t, "enabling", e.Store.EnableEntry(ctx, "e", true))
	e.Later(t, time.Hour)
	read, err = e.Runtime.Entries(ctx, "mail", "", []string{"e"})
	noError(t, "reading the entry", err)
	noError(t, "dispatching", dispatch())
	if d, err := e.Store.FindDispatch(ctx, "e", tick); err != nil || d.Status != store.StatusDispatched {
		t.Errorf("%+v, %v; want it upgraded", d, err)
	}
}

func TestWorkGoesOnWhileTheServerIsOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	e := storetest.Real(t, server.Addr())
	ctx := t.Context()
	e.Add(t, 20)
	held := e.Claim(t, 6)
	noError(t, "limiting the memory", e.Raw.ConfigSet(ctx, "maxmemory", "1mb").Err())
	before := e.Stats(t)

	// A process that starts now finds what is there and works on it.
	fresh := storetest.Real(t, server.Addr())
	fresh.Store = open(t, fresh.Raw, e.Prefix)
	fresh.Runtime, fresh.Prefix, fresh.Process = fresh.Store.Runtime(), e.Prefix, e.Process
	for name, e := range map[string]*storetest.Env{"a process that ran already": e, "one that starts now": fresh} {
		t.Run(name, func(t *testing.T) {
			wantErr(t, "enqueuing", enqueue(e.Store, ctx), store.ErrServer)
			out := e.Exchange(t, e.Terms(), store.Exchange{
				Finishes: []store.Finish{{Lease: held[0], Verb: store.Complete, Result: []byte(`1`)}, {Lease: held[1], Verb: store.Retry, Delay: time.Hour}},
				Claims:   []uuid.UUID{held[0].Worker()}, Wait: true,
			})
			if len(out.Leases) != 1 || out.Ended[0] != store.Done || out.Ended[1] != store.Scheduled {
				t.Errorf("finishing and claiming: %+v", out)
			}
			held = held[2:]
			verdicts, _, err := e.Runtime.Heartbeat(ctx, e.Terms(), []store.Beat{{Lease: out.Leases[0], Progress: []byte(`1`)}}, nil)
			if err != nil || verdicts[0] != store.Held {
				t.Errorf("a heartbeat: %v, %v", verdicts, err)
			}
			if m := e.Reap(t); m.Missing != 0 {
				t.Errorf("a reap: %+v", m)
			}
			id := out.Leases[0].Job.ID
			_, err = e.Runtime.Await(ctx, "mail", id)
			noError(t, "awaiting", err)
			process := store.Process{ID: e.Process, Instances: []string{"mail"}}
			noError(t, "announcing", e.Runtime.Announce(ctx, process, time.Minute))
			noError(t, "leaving", e.Runtime.Leave(ctx, process))
			noError(t, "pausing", e.Store.Pause(ctx, "mail"))
			noError(t, "resuming", e.Store.Resume(ctx, "mail"))
			noError(t, "cancelling", e.Store.Cancel(ctx, id))
			e.Finish(t, store.Finish{Verb: store.Cancel}, out.Leases[0])
			noError(t, "requeuing", e.Store.Requeue(ctx, id, store.RequeueMode{}))
			noError(t, "deleting", e.Store.Delete(ctx, id))
			if page, err := e.Store.List(ctx, store.Filter{}); err != nil || len(page.Jobs) == 0 {
				t.Errorf("listing: %d jobs, %v", len(page.Jobs), err)
			}
			e.Check(t)
		})
	}
	if after := e.Stats(t); after.Total != before.Total-2 {
		t.Errorf("%d jobs, want %d: each of two deleted one and enqueued none", after.Total, before.Total-2)
	}
	noError(t, "giving memory", e.Raw.ConfigSet(ctx, "maxmemory", "0").Err())
	noError(t, "enqueuing when there is memory again", enqueue(e.Store, ctx))
}

func TestAReadOnlyReplicaRefusesChangesAndCanBeRead(t *testing.T) {
	primary := redistest.Start(t, redistest.Config("repl-diskless-sync-delay 0"))
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := redistest.Start(t, redistest.Config("replicaof "+host+" "+port))
	e := storetest.Real(t, primary.Addr())
	ctx := t.Context()
	e.Add(t, 2)
	l := e.Claim(t, 1)[0]
	rdb := replica.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	redistest.Eventually(t, "the replica has what the primary has", func() bool {
		record := e.Raw.HGet(ctx, e.Key("mail", "jobs"), string(l.Job.ID[:])).Val() // says that it was claimed
		return record != "" && rdb.HGet(ctx, e.Key("mail", "jobs"), string(l.Job.ID[:])).Val() == record
	})
	r := *e
	r.Store = open(t, rdb, e.Prefix)
	r.Runtime = r.Store.Runtime()
	for name, err := range map[string]error{
		"enqueuing": enqueue(r.Store, ctx),
		"claiming": func() error {
			_, err := r.Runtime.Exchange(ctx, new(store.Lane), r.Terms(), store.Exchange{Claims: []uuid.UUID{uuid.New()}})
			return err
		}(),
		"a heartbeat": func() error {
			_, _, err := r.Runtime.Heartbeat(ctx, r.Terms(), []store.Beat{{Lease: l}}, nil)
			return err
		}(),
		"reaping":    func() error { _, err := r.Runtime.Reap(ctx, r.Terms()); return err }(),
		"pausing":    r.Store.Pause(ctx, "mail"),
		"cancelling": r.Store.Cancel(ctx, l.Job.ID),
	} {
		wantErr(t, name, err, store.ErrServer)
	}
	if got, want := r.Stats(t), e.Stats(t); got.Total != 2 || got.Doing != want.Doing {
		t.Errorf("the replica's stats are %+v, want %+v", got, want)
	}
	if j := r.Job(t, l.Job.ID); j.State != store.Doing {
		t.Errorf("the replica says %s, want doing", j.State)
	}
	if page, err := r.Store.List(ctx, store.Filter{}); err != nil || len(page.Jobs) != 2 {
		t.Errorf("the replica lists %d jobs, %v; want 2", len(page.Jobs), err)
	}
}

func TestAServerThatIsTooOldIsRefused(t *testing.T) {
	for info, good := range map[string]bool{
		"# Server\r\nredis_version:6.2.14\r\n": false, "redis_version:2.8.0": false, "redis_version:x": false, "": false,
		"# Server\r\nredis_version:7.0.0\r\n": true, "redis_version:10.1.2": true,
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n": true,
	} {
		rdb := redistest.Shared(t).Client(t)
		rdb.AddHook(redistest.Intercept(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if text, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
				text.SetVal(info)
				return nil
			}
			return next(ctx, cmd)
		}))
		prefix := redistest.Prefix(t)
		st := open(t, rdb, prefix)
		err := enqueue(st, t.Context())
		if good {
			noError(t, fmt.Sprintf("a server that says %q", info), err)
			continue
		}
		wantErr(t, fmt.Sprintf("a server that says %q", info), err, store.ErrServer)
		if keys := rdb.Keys(t.Context(), prefix+":*").Val(); len(keys) != 0 {
			t.Errorf("a refused server got %q", keys)
		}
	}
}

func TestAnotherFormatIsRefusedAndLeftAlone(t *testing.T) {
	ctx := t.Context()
	rdb := redistest.Shared(t).Client(t)
	for name, c := range map[string]struct {
		set  []any
		want string
	}{"a newer format": {[]any{"SET", "3"}, `"3"`}, "a foreign key": {[]any{"SADD", "x"}, "set"}} {
		prefix := redistest.Prefix(t)
		key := prefix + ":format"
		noError(t, name, rdb.Do(ctx, c.set[0], key, c.set[1]).Err())
		st := open(t, rdb, prefix)
		_, statsErr := st.Stats(ctx)
		for _, err := range []error{enqueue(st, ctx), statsErr, st.Pause(ctx, "mail")} {
			wantErr(t, name, err, store.ErrServer)
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; want it to name %s", name, err, c.want)
			}
		}
		if keys := rdb.Keys(ctx, prefix+":*").Val(); !slices.Equal(keys, []string{key}) {
			t.Errorf("%s: there is %q, want what was there", name, keys)
		}
		rdb.Del(ctx, key)
		noError(t, name+", when it is gone", enqueue(st, ctx)) // the store looks again: it was never good
	}
}

func TestAServerThatIsDownIsAnErrorWithinTheDeadline(t *testing.T) {
	server := redistest.Start(t)
	e := storetest.Real(t, server.Addr())
	e.Add(t, 1)
	server.Kill()
	never := open(t, server.Client(t), e.Prefix) // never reached the server
	for name, st := range map[string]*store.Store{"gone": e.Store, "never there": never} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start := time.Now()
		_, statsErr := st.Stats(ctx)
		for _, err := range []error{enqueue(st, ctx), statsErr} {
			if err == nil || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: error %v, want the network's", name, err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		cancel()
	}
	server.Restart()
	redistest.Eventually(t, "the server is back", func() bool { return enqueue(e.Store, t.Context()) == nil && enqueue(never, t.Context()) == nil })
}

func TestAServerThatDoesNotAnswerIsAnErrorWithinTheDeadline(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	rdb := redis.NewClient(&redis.Options{Addr: deaf.Addr().String(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := enqueue(open(t, rdb, "p"), ctx); err == nil || errors.Is(err, store.ErrInvalid) {
		t.Errorf("error %v, want that of the deadline", err)
	}
	if took := time.Since(start); took > 10*time.Second { // fifty times the deadline; go-redis' own patience is longer
		t.Errorf("it took %v", took)
	}
}

// People report of systems like this: statistics block Redis for seconds.
func TestStatsCostTheSameHoweverManyJobsThereAre(t *testing.T) {
	server := redistest.Start(t)
	e := storetest.Real(t, server.Addr())
	ctx := t.Context()
	commands := func() map[string]string {
		e.Stats(t)
		noError(t, "resetting", e.Raw.ConfigResetStat(ctx).Err())
		e.Stats(t)
		calls := map[string]string{}
		for line := range strings.Lines(e.Raw.Info(ctx, "commandstats").Val()) {
			name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
			if n, _, _ := strings.Cut(rest, ","); ok && strings.HasPrefix(line, "cmdstat_") && !strings.HasPrefix(name, "config") {
				calls[name] = n
			}
		}
		return calls
	}
	inEach := func(n int) {
		e.Add(t, 3*n)
		held := e.Claim(t, n)
		e.Finish(t, store.Finish{Verb: store.Complete}, held[:n/2]...)
		e.Finish(t, store.Finish{Verb: store.Retry, Delay: time.Hour}, held[n/2:n/2+n/4]...)
	}
	inEach(10)
	few := commands()
	for range 10 {
		inEach(1000)
	}
	many := commands()
	if fmt.Sprint(few) != fmt.Sprint(many) {
		t.Errorf("with 30 jobs the commands are %v, with 30,000 %v", few, many)
	}
	// None of them is of those whose cost grows with what a key holds.
	for name := range many {
		constant := []string{"smembers", "evalsha", "exists", "type", "time", "zrange", "zcard", "hlen", "hget", "info", "client|setinfo", "hello"}
		if !slices.Contains(constant, name) {
			t.Errorf("counting uses %s", name)
		}
	}
}

// silentHook lets nobody answer for an instance in a pipeline, as a node of a Cluster that is away.
type silentHook string

func (h silentHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h silentHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h silentHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if strings.Contains(fmt.Sprint(cmd.Args()), string(h)) {
				cmd.SetErr(io.EOF)
				err = io.EOF
			}
		}
		return err
	}
}

func TestANodeThatIsAwayHidesTheStatsOfItsOwnInstancesOnly(t *testing.T) {
	e := storetest.Real(t, redistest.Start(t).Addr())
	for _, instance := range []string{"a", "far", "z"} {
		e.EnqueueTo(t, instance, oneJob()...)
	}
	noError(t, "breaking a key", e.Raw.Set(t.Context(), e.Key("z", "dead"), "not ours", 0).Err())
	e.Runtime.Client().AddHook(silentHook("{far}"))
	all, err := e.Store.Stats(t.Context())
	if len(all) != 1 || all[0].Instance != "a" || all[0].Todo != 1 {
		t.Errorf("stats are %+v, want those of the one that answers and is well", all)
	}
	wantErr(t, "counting", err, io.EOF)
	if _, ok := errors.AsType[*store.KeyError](err); !ok {
		t.Errorf("counting: %v; want the key named, too", err)
	}
}

func TestANodeThatIsAwayHidesItsOwnEntriesOnly(t *testing.T) {
	e := storetest.Real(t, redistest.Start(t).Addr())
	const near, far = 120, 30 // more than a round trip is for
	for i := range near + far {
		instance := fmt.Sprintf("near-%d", i)
		if i >= near {
			instance = fmt.Sprintf("far-%d", i)
		}
		_, _, err := e.Runtime.Register(t.Context(), instance, []store.Definition{{
			Key: instance, Spec: "@daily", Zone: "UTC", Window: time.Hour, Job: store.NewJob{Payload: []byte("1")},
		}}, false)
		noError(t, "registering", err)
	}
	e.Runtime.Client().AddHook(silentHook("{far-"))
	all, err := e.Store.Entries(t.Context())
	if len(all) != near || all[0].Instance != "near-0" {
		t.Errorf("%d entries, want the %d of those that answer", len(all), near)
	}
	wantErr(t, "listing entries", err, io.EOF)
}

func TestACallHeedsItsDeadlineThoughTheServerIsFrozenWhereTheClientDoes(t *testing.T) {
	server := redistest.Start(t)
	st := open(t, server.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.ContextTimeoutEnabled, o.MaxRetries = time.Minute, true, -1
	}), redistest.Prefix(t))
	job := oneJob()
	outcome, err := st.Runtime().Enqueue(t.Context(), new(store.Lane), "mail", job)
	noError(t, "enqueuing", errors.Join(append(outcome, err)...))
	noError(t, "freezing", syscall.Kill(server.PID(), syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = st.Get(ctx, job[0].ID)
	if took := time.Since(start); err == nil || took > 10*time.Second {
		t.Errorf("after %v: %v; want an error at once", took, err)
	}
	noError(t, "going on", syscall.Kill(server.PID(), syscall.SIGCONT))
}
