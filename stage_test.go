package stint_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Where the stories play, and how a test looks at them.

// stage is a Redis with a store and a client on it.
type stage struct {
	role
	rdb    redis.UniversalClient
	st     *store.Store
	client *worker.Client
}

// setup has leases of the default length; a test whose story is that of a lease makes it shorter.
func setup(t *testing.T) *stage {
	t.Helper()
	return setupOn(t, redistest.Start(t).Addr())
}

// setupOn is setup on a given server, or on the nodes of a Cluster.
func setupOn(t *testing.T, addrs ...string) *stage {
	t.Helper()
	rdb := connect(addrs...)
	t.Cleanup(func() { rdb.Close() })
	return onClient(t, rdb, role{Addrs: addrs, Prefix: "story"})
}

// on returns a stage on a given server; what it says to Redis itself goes straight there.
func on(t *testing.T, server *redistest.Server) *stage {
	t.Helper()
	return onClient(t, server.Client(t), role{Addrs: []string{server.Addr()}, Prefix: "story", Lease: time.Second})
}

func onClient(t *testing.T, rdb redis.UniversalClient, r role) *stage {
	t.Helper()
	st, err := store.Open(rdb, store.Options{Prefix: r.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{role: r, rdb: rdb, st: st, client: worker.NewClient(st, worker.ClientConfig{})}
}

func (s *stage) as(play string) role {
	r := s.role
	r.Play = play
	return r
}

func (s *stage) enqueue(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := s.client.Enqueue(t.Context(), "story", struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s *stage) enqueueMany(t *testing.T, instance string, n int) {
	t.Helper()
	reqs := make([]worker.Request, n)
	for i := range reqs {
		reqs[i] = worker.Request{Instance: instance, Payload: struct{}{}}
	}
	if _, err := s.client.EnqueueMany(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) wait(t *testing.T, id uuid.UUID) store.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	j, err := s.client.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// stats are those of all instances of the story together.
func (s *stage) stats(t *testing.T) (sum store.Stats) {
	t.Helper()
	all, err := s.st.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		sum.Total += one.Total
		sum.Todo += one.Todo
		sum.Doing += one.Doing
		sum.Scheduled += one.Scheduled
		sum.Parked += one.Parked
		sum.Done += one.Done
		sum.Dead += one.Dead
	}
	return sum
}

// until asks again and again whether it is so.
func (s *stage) until(t *testing.T, what string, so func(store.Stats) bool) {
	t.Helper()
	var last store.Stats
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = s.stats(t); so(last) {
			return
		}
	}
	t.Fatalf("not %s within %v: %+v", what, hang, last)
}

// ran is how often each job's handler was called.
func (s *stage) ran(t *testing.T) map[string]int {
	t.Helper()
	notes, err := s.rdb.SMembers(t.Context(), "ran-"+s.Prefix).Result()
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, note := range notes {
		job, _, _ := strings.Cut(note, " ")
		times[job]++
	}
	return times
}
