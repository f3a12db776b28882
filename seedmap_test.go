package stint_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// What docs/seed-map.md says of tests is so: each that it names is there.
func TestTheSeedMapNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("docs/seed-map.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := declaredTests(t)
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		rows++
		named := regexp.MustCompile("`([A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[4], -1)
		if len(named) == 0 {
			t.Errorf("no test is named for%s", cells[1])
		}
		for _, m := range named {
			if !tests[m[1]] {
				t.Errorf("for%sthe test %s is named, which there is not", cells[1], m[1])
			}
		}
	}
	if want := 47; rows != want {
		t.Errorf("%d rows, want %d", rows, want)
	}
}

// What docs/architecture.md says of them, too. A name may be shortened by "...".
func TestTheArchitectureNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, named := declaredTests(t), 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 { // no row of a table
			continue
		}
		for _, m := range regexp.MustCompile("`([A-Za-z0-9_.]+)`").FindAllStringSubmatch(cells[len(cells)-2], -1) {
			named++
			is := regexp.MustCompile("^" + strings.ReplaceAll(m[1], "...", ".*") + "$")
			if there := slices.ContainsFunc(slices.Collect(maps.Keys(tests)), is.MatchString); !there {
				t.Errorf("the test %s is named, which there is not", m[1])
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d tests are named", named)
	}
}

// declaredTests are the tests that there are, and the cases of internal/storetest.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ([A-Za-z0-9_]+)\(t \*testing\.T`)
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "internal/storetest/") {
			return err
		}
		src, err := os.ReadFile(name)
		for _, m := range declared.FindAllStringSubmatch(string(src), -1) {
			tests[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func TestStalledJobsAndTheirWorkersAreListedBeforeTheyAreReaped(t *testing.T) {
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	ctx, rt := t.Context(), st.Runtime()
	terms := func(lease time.Duration) store.Terms {
		return store.Terms{Instance: "x", Process: uuid.New(), Lease: lease, MaxCrashes: 3, Done: store.Retention{Count: 9}, Dead: store.Retention{Count: 9}}
	}
	hold := func(lease time.Duration) *store.Lease {
		t.Helper()
		var lane store.Lane
		if _, err := rt.Enqueue(ctx, &lane, "x", []store.NewJob{{ID: uuid.New(), Payload: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		got, err := rt.Exchange(ctx, &lane, terms(lease), store.Exchange{Claims: []uuid.UUID{uuid.New()}})
		if err != nil || len(got.Leases) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.Leases[0]
	}
	alive, stalled := hold(time.Hour), hold(time.Millisecond)
	time.Sleep(10 * time.Millisecond) // nobody reaps
	page, err := st.List(ctx, store.Filter{Instance: "x", State: store.Doing})
	if err != nil || len(page.Jobs) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	for i, l := range []*store.Lease{stalled, alive} { // the first to run out is first
		j := page.Jobs[i]
		if past := j.LeaseUntil.Before(time.Now()); j.ID != l.Job.ID || j.Worker != l.Job.Worker || past != (i == 0) {
			t.Errorf("job %d of the list is %s of worker %s, its lease until %v", i, j.ID, j.Worker, j.LeaseUntil)
		}
	}
	workers, err := st.Workers(ctx, "x")
	if err != nil || len(workers) != 2 {
		t.Fatalf("%+v, %v", workers, err)
	}
	for _, w := range workers {
		if j, err := st.Get(ctx, w.Job); err != nil || j.Worker != w.ID || j.State != store.Doing {
			t.Errorf("worker %s has job %+v, %v", w.ID, j, err)
		}
	}
}

func TestOneWorkerServesSeveralInstances(t *testing.T) {
	st := workertest.Store(t)
	sup, err := worker.New(st, worker.Config{Pools: []worker.Pool{{Name: "all", Concurrency: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	var busy, most atomic.Int32
	workers := make(chan uuid.UUID, 60)
	var reqs []worker.Request
	for _, instance := range []string{"a", "b", "c"} {
		worker.Handle(sup, instance, func(ctx context.Context, _ int) error {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			j, _ := worker.JobFrom(ctx)
			workers <- j.Worker
			return nil
		}, worker.In("all", 1))
		for range 20 {
			reqs = append(reqs, worker.Request{Instance: instance, Payload: 1})
		}
	}
	if _, err := worker.NewClient(st, worker.ClientConfig{}).EnqueueMany(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	workertest.Start(t, sup)
	workertest.Drain(t, st)
	one := <-workers
	for len(workers) > 0 {
		if w := <-workers; w != one {
			t.Fatalf("workers %s and %s", one, w)
		}
	}
	all, err := st.Stats(t.Context())
	if err != nil || len(all) != 3 || most.Load() != 1 {
		t.Fatalf("%+v, %v, %d at once", all, err, most.Load())
	}
	for _, s := range all {
		if s.Done != 20 {
			t.Errorf("%+v, want 20 done", s)
		}
	}
}
