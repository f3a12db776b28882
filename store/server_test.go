package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// What a server can be that can't serve: each is an ErrServer, or an error in time.

func TestAReadOnlyReplicaRefusesChangesAndCanBeRead(t *testing.T) {
	primary := redistest.Start(t, redistest.Config("repl-diskless-sync-delay 0"))
	replica := replicaOf(t, primary)
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
	}{"a newer format": {[]any{"SET", "99"}, `"99"`}, "a foreign key": {[]any{"SADD", "x"}, "set"}} {
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

func TestACallHeedsItsDeadlineThoughTheServerIsFrozenWhereTheClientDoes(t *testing.T) {
	server := redistest.Start(t)
	st := open(t, server.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.ContextTimeoutEnabled, o.MaxRetries = time.Minute, true, -1
	}), redistest.Prefix(t))
	job := aJob()
	noError(t, "enqueuing", send(t.Context(), st, new(store.Lane), job))
	pause(t, server, true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := st.Get(ctx, job.ID)
	if took := time.Since(start); err == nil || took > 10*time.Second {
		t.Errorf("after %v: %v; want an error at once", took, err)
	}
	pause(t, server, false)
}
