package store_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

func TestOpenDoesNoIOAndCloseLeavesTheCallersClientOpen(t *testing.T) {
	fault := new(redistest.Fault)
	rdb := redistest.Shared(t).Client(t)
	rdb.AddHook(fault)
	st := open(t, rdb, redistest.Prefix(t))
	if n := fault.Seen(); n != 0 {
		t.Errorf("Open sent %d commands", n)
	}
	noError(t, "enqueuing", enqueue(st, t.Context()))
	noError(t, "closing", st.Close())
	noError(t, "the client after Close", rdb.Ping(t.Context()).Err())
}

func TestTheDefaultPrefixIsStint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := embedded(t)
		defer st.Close()
		noError(t, "enqueuing", enqueue(st, t.Context()))
		keys := st.Runtime().Client().Keys(t.Context(), "*").Val()
		if len(keys) == 0 || slices.ContainsFunc(keys, func(k string) bool { return k[:6] != "stint:" }) {
			t.Errorf("the keys are %q", keys)
		}
	})
}

func TestTheSetOfInstancesIsMadeAgainFromThoseInUse(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, st *store.Store) error{
		"enqueuing": func(t *testing.T, st *store.Store) error { return enqueue(st, t.Context()) },
		"a process": func(t *testing.T, st *store.Store) error {
			return st.Runtime().Announce(t.Context(), store.Process{ID: uuid.Max, Instances: []string{"mail"}}, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := embedded(t)
				defer st.Close()
				noError(t, name, use(t, st))
				noError(t, "losing the set", st.Runtime().Client().Del(t.Context(), "stint:instances").Err())
				time.Sleep(31 * time.Second)
				noError(t, name, use(t, st))
				if all, err := st.Instances(t.Context()); err != nil || !slices.Equal(all, []string{"mail"}) {
					t.Errorf("the instances are %q, %v; want mail", all, err)
				}
			})
		})
	}
}

func TestAClientThatIsNilIsRefusedOfWhateverType(t *testing.T) {
	for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		if st, err := store.Open(rdb, store.Options{}); !errors.Is(err, store.ErrInvalid) || st != nil {
			t.Errorf("%T: %v, %v; want ErrInvalid", rdb, st, err)
		}
	}
}

func TestPrefixesKeepApart(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	prefix := redistest.Prefix(t)
	a, b := open(t, rdb, prefix), open(t, rdb, prefix+"-b")
	job := aJob()
	for _, st := range []*store.Store{a, b} {
		noError(t, "enqueuing", send(t.Context(), st, new(store.Lane), job))
	}
	noError(t, "deleting", a.Delete(t.Context(), job.ID))
	_, err := a.Get(t.Context(), job.ID)
	wantErr(t, "of the one", err, store.ErrNotFound)
	_, err = b.Get(t.Context(), job.ID)
	noError(t, "of the other", err)
}

func TestOnCallHearsOfEachCall(t *testing.T) {
	type call struct {
		op  string
		err error
	}
	var mu sync.Mutex
	var calls []call
	fault := new(redistest.Fault)
	rdb := redistest.Shared(t).Client(t)
	rdb.AddHook(fault)
	st, err := store.Open(rdb, store.Options{Prefix: redistest.Prefix(t), OnCall: func(op string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call{op, err})
		if took <= 0 || took > time.Minute {
			t.Errorf("%s took %v", op, took)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	noError(t, "enqueuing", enqueue(st, ctx))
	fault.FailNth(1)
	_ = st.Pause(ctx, "mail")
	_, err = st.Get(ctx, uuid.New())
	wantErr(t, "reading", err, store.ErrNotFound)
	if len(calls) != 3 || calls[0].err != nil || !errors.Is(calls[1].err, redistest.ErrFault) || !errors.Is(calls[2].err, store.ErrNotFound) {
		t.Fatalf("heard of %+v", calls)
	}
	for i, c := range calls {
		if c.op == "" || slices.ContainsFunc(calls[i+1:], func(d call) bool { return c.op == d.op }) {
			t.Errorf("call %d is named %q", i, c.op)
		}
	}
}

func TestAFreshStoreIsSafeForConcurrentUse(t *testing.T) {
	st := open(t, redistest.Shared(t).Client(t), redistest.Prefix(t))
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			noError(t, "enqueuing", enqueue(st, t.Context()))
			_, err := st.Stats(t.Context())
			noError(t, "counting", err)
		})
	}
	group.Wait()
	if all, err := st.Stats(t.Context()); err != nil || len(all) != 1 || all[0].Todo != 16 {
		t.Errorf("stats are %+v, %v; want 16 todo", all, err)
	}
}

func TestAClosedClientIsAServerThatRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	st := open(t, rdb, "")
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Stats(t.Context()); !errors.Is(err, store.ErrServer) {
		t.Errorf("%v; want ErrServer: trying again can't help", err)
	}
}

func TestAPanicOfOnCallHarmsNothing(t *testing.T) {
	st, err := store.OpenEmbedded(store.Options{OnCall: func(string, time.Duration, error) { panic("listener") }})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Stats(t.Context()); err != nil {
		t.Error(err)
	}
}
