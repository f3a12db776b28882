package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// replicated is a master with a replica of the test's own, and a store that waits for it.
type replicated struct {
	*testing.T
	master, replica *redistest.Server
	rdb             *redis.Client // of the master
	store           *store.Store
	runtime         *store.Runtime
	fault           *redistest.Fault
	terms           store.Terms
}

func newReplicated(t *testing.T) *replicated {
	r := &replicated{T: t, master: redistest.Start(t, redistest.Config("repl-diskless-sync-delay 0")), fault: new(redistest.Fault)}
	r.follow()
	r.rdb = r.master.Client(t)
	r.rdb.AddHook(r.fault)
	var err error
	if r.store, err = store.Open(r.rdb, store.Options{WaitReplicas: 1}); err != nil {
		t.Fatal(err)
	}
	r.runtime = r.store.Runtime()
	keep := store.Retention{Age: time.Hour}
	r.terms = store.Terms{Instance: "mail", Process: uuid.New(), Lease: time.Minute, Period: time.Second, MaxCrashes: 3, Done: keep, Dead: keep}
	return r
}

// follow starts a replica and returns when it follows, as the master sees it.
func (r *replicated) follow() {
	r.Helper()
	if r.replica == nil {
		r.replica = replicaOf(r.T, r.master)
	} else {
		r.replica.Restart()
	}
	c := r.master.Client(r.T)
	redistest.Eventually(r.T, "the replica follows", func() bool {
		return strings.Contains(c.Info(r.Context(), "replication").Val(), "state=online")
	})
}

// failOver kills the master and returns a store over what the replica has then.
func (r *replicated) failOver() *store.Store {
	r.Helper()
	r.master.Kill()
	c := r.replica.Client(r.T)
	if err := c.Do(r.Context(), "replicaof", "no", "one").Err(); err != nil {
		r.Fatal(err)
	}
	st, err := store.Open(c, store.Options{})
	if err != nil {
		r.Fatal(err)
	}
	return st
}

func (r *replicated) enqueue(lane *store.Lane, jobs ...store.NewJob) error {
	return send(r.Context(), r.store, lane, jobs...)
}

// accepts enqueues jobs while the replica follows.
func (r *replicated) accepts(lane *store.Lane, jobs ...store.NewJob) {
	r.Helper()
	r.repeat("enqueuing", func() error { return r.enqueue(lane, jobs...) })
}

// repeat makes a request while the replica follows. Where the machine has kept it from answering in time the request is repeated, as the
// runtime does: it is the same request.
func (r *replicated) repeat(what string, request func() error) {
	r.Helper()
	err := request()
	for tries := 1; err != nil && tries < 30 && !r.Failed(); tries++ {
		r.wantBehind(what, err)
		err = request()
	}
	r.must(err)
}

func (r *replicated) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// wantBehind fails the test unless err says that the replica did not acknowledge.
func (r *replicated) wantBehind(what string, err error) {
	r.Helper()
	few, ok := errors.AsType[*store.ReplicasError](err)
	if !ok || !errors.Is(err, store.ErrServer) || *few != (store.ReplicasError{Acknowledged: 0, Wanted: 1}) {
		r.Errorf("%s without a replica: %v, want 0 of 1 replicas", what, err)
	}
}

func (r *replicated) want(st *store.Store, want store.Stats) {
	r.Helper()
	all, err := st.Stats(r.Context())
	r.must(err)
	want.Instance = "mail"
	if len(all) == 1 {
		all[0].OldestTodo = 0
	}
	if len(all) != 1 || all[0] != want {
		r.Errorf("there are %+v, want %+v", all, want)
	}
}
