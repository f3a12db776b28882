package store_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// The figures of docs/operations.md, in bytes a job, on a 64-bit Redis 7 with jemalloc. What a server takes differs by its
// version and by how full its tables are just then, so twice as much fails.
func TestAJobTakesNoMoreMemoryThanTheDocsSay(t *testing.T) {
	const n = 20_000
	payload := json.RawMessage(`"` + strings.Repeat("x", 30) + `"`)
	for _, c := range []struct {
		name string
		docs float64
		job  store.NewJob
		end  store.Verb // how its lease ends, if it has one
	}{
		{name: "todo", docs: 280},
		{name: "scheduled", docs: 280, job: store.NewJob{Delay: time.Hour}},
		{name: "with a unique key of 16 bytes", docs: 500, job: store.NewJob{Unique: store.Unique{Key: "unique", Mode: store.UniqueTerminal}}},
		{name: "with a deadline", docs: 430, job: store.NewJob{Deadline: time.Now().Add(time.Hour)}},
		{name: "a child", docs: 440, job: store.NewJob{Parent: store.Parent{ID: uuid.New(), Instance: "order", Step: "thumb"}}},
		{name: "done", docs: 420, end: store.Complete},
		{name: "dead, with an error of 32 bytes", docs: 560, end: store.Bury},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t)
			rdb := server.Client(t)
			st := open(t, rdb, "")
			fill(t, st, 1, c.job, c.end, payload) // with the scripts and what an instance takes
			before := memory(t, rdb)
			fill(t, st, n, c.job, c.end, payload)
			each := (memory(t, rdb) - before) / n
			t.Logf("%.0f bytes a job", each)
			if each > 2*c.docs {
				t.Errorf("%.0f bytes a job; the docs say %.0f", each, c.docs)
			}
		})
	}
}

// fill enqueues n jobs and, with a verb, runs them.
func fill(t *testing.T, st *store.Store, n int, job store.NewJob, end store.Verb, payload json.RawMessage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var lane store.Lane
	rt := st.Runtime()
	keep := store.Retention{Age: time.Hour}
	terms := store.Terms{Instance: "x", Process: uuid.New(), Lease: time.Minute, MaxCrashes: 3, Done: keep, Dead: keep}
	for n > 0 {
		m := min(n, 500)
		n -= m
		jobs := make([]store.NewJob, m)
		var claims []uuid.UUID
		for i := range jobs {
			jobs[i] = job
			jobs[i].ID, jobs[i].Payload = uuid.New(), payload
			if job.Unique.Key != "" {
				jobs[i].Unique.Key = jobs[i].ID.String()[:16]
			}
			claims = append(claims, uuid.New())
		}
		refused, err := rt.Enqueue(ctx, &lane, "x", jobs)
		if err != nil || refused[0] != nil {
			t.Fatal(refused, err)
		}
		if end == 0 {
			continue
		}
		got, err := rt.Exchange(ctx, &lane, terms, store.Exchange{Claims: claims})
		if err != nil || len(got.Leases) != m {
			t.Fatalf("%d leases, %v", len(got.Leases), err)
		}
		var x store.Exchange
		for _, l := range got.Leases {
			f := store.Finish{Lease: l, Verb: end}
			if end == store.Bury {
				f.Error = strings.Repeat("e", 32)
			}
			x.Finishes = append(x.Finishes, f)
		}
		if _, err := rt.Exchange(ctx, &lane, terms, x); err != nil {
			t.Fatal(err)
		}
	}
}

// memory is what a server's data takes.
func memory(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	info, err := rdb.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, used, _ := strings.Cut(info, "used_memory:")
	used, _, _ = strings.Cut(used, "\r")
	n, err := strconv.ParseFloat(used, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
