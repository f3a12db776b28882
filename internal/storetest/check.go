package storetest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// States in the order of a job's life.
var allStates = []store.State{store.Scheduled, store.Todo, store.Doing, store.Parked, store.Done, store.Dead, store.Cancelled}

// Layout names the types of an instance's keys; a lane's key follows it with its id.
var Layout = map[string]string{
	"jobs": "hash", "runs": "hash", "errors": "hash", "progress": "hash", "results": "hash", "workers": "hash", "meta": "hash",
	"todo": "zset", "scheduled": "zset", "doing": "zset", "parked": "zset", "done": "zset", "dead": "zset", "cancelled": "zset",
	"cancels": "zset", "awaited": "zset", "waiting": "zset", "lane": "string",
	"suspects": "zset", "probes": "hash", "deadlines": "zset", "owners": "hash", "locks": "hash", "windows": "zset",
	"stepped": "hash", "step_result": "hash", "children": "zset", "chores": "zset", "parents": "hash", "outbox": "hash",
}

// Cron names the types of the keys that an instance's entries of cron have; the last two are followed by an entry's key.
var Cron = map[string]string{
	"cron": "hash", "cron_jobs": "hash", "cron_ticks": "hash", "cron_dispatch": "zset", "cron_removed": "string",
}

// Global names the types of the other keys.
var Global = map[string]string{"instances": "set", "processes": "zset", "format": "string", "entries": "hash"}

// keys returns all keys under the prefix.
func (e *Env) keys(t testing.TB) []string {
	t.Helper()
	return e.Keys(t, e.Prefix+":*")
}

// Check fails the test unless all is as it may be between two operations.
func (e *Env) Check(t testing.TB) {
	t.Helper()
	instances := e.checkKeys(t)
	stats := map[string]store.Stats{}
	all, err := e.Store.Stats(t.Context())
	if err != nil {
		t.Errorf("counting: %v", err)
	}
	for _, s := range all {
		stats[s.Instance] = s
	}
	for _, name := range instances {
		e.checkStats(t, stats[name], e.checkInstance(t, name))
	}
}

// checkData is Check by the raw client alone, for when a fault is armed on the store's.
func (e *Env) checkData(t testing.TB) {
	t.Helper()
	for _, name := range e.checkKeys(t) {
		e.checkInstance(t, name)
	}
}

// checkKeys looks at what keys there are, and returns the instances that they belong to.
func (e *Env) checkKeys(t testing.TB) []string {
	t.Helper()
	instances := map[string]bool{}
	for _, key := range e.keys(t) {
		name, ok := e.checkKey(t, key)
		if !ok {
			t.Errorf("key %q is not in the layout", key)
		}
		if name != "" {
			instances[name] = true
		}
	}
	return slices.Sorted(maps.Keys(instances))
}

// lives is how long a key lives at most that expires.
var lives = map[string]time.Duration{"lane": time.Hour, "cron_removed": 24 * time.Hour}

// checkKey reports whether a key is in the layout, and returns the instance that it belongs to.
func (e *Env) checkKey(t testing.TB, key string) (instance string, ok bool) {
	t.Helper()
	rest := strings.TrimPrefix(key, e.Prefix+":")
	want := Global[rest]
	if tagged, ok := strings.CutPrefix(rest, "{"); ok {
		var name string
		instance, name, _ = strings.Cut(tagged, "}:")
		name, lane, _ := strings.Cut(name, ":")
		want = Layout[name] + Cron[name]
		if most, expires := lives[name]; expires {
			if ttl, err := e.Raw.PTTL(t.Context(), key).Result(); err != nil || ttl <= 0 || ttl > most {
				t.Errorf("key %q lives for %v (%v); want at most %v", key, ttl, err, most)
			}
		}
		if name == "lane" && len(lane) != 32 {
			t.Errorf("key %q is of no lane", key)
		}
	}
	kind, err := e.Raw.Type(t.Context(), key).Result()
	return instance, err == nil && kind == want
}

// checkInstance compares the keys of an instance with one another, and returns what Stats should say of it.
func (e *Env) checkInstance(t testing.TB, name string) store.Stats {
	t.Helper()
	ctx := t.Context()
	hash := func(key string) map[string]string {
		m, err := e.Raw.HGetAll(ctx, e.Key(name, key)).Result()
		must(t, err)
		delete(m, "") // keeps the hash in its large form
		return m
	}
	set := func(key string) []string {
		m, err := e.Raw.ZRange(ctx, e.Key(name, key), 0, -1).Result()
		must(t, err)
		return m
	}
	jobs, workers := hash("jobs"), hash("workers")
	in := statesOf(t, name, jobs, func(key string) []string {
		if key == string(store.Doing) {
			return checkWorkers(t, name, workers, set(key))
		}
		return set(key)
	})
	for _, key := range []string{"runs", "errors", "progress", "results", "owners", "parents"} {
		for id := range hash(key) {
			if in[id] == "" {
				t.Errorf("%s: %s of job %x outlives it", name, key, id)
			}
		}
	}
	e.checkSteps(t, name, in, hash("stepped"), set("children"), set("chores"))
	for _, id := range set("cancels") {
		if in[id] != store.Doing {
			t.Errorf("%s: a cancel of job %x, which is %q", name, id, in[id])
		}
	}
	for _, id := range set("deadlines") {
		if in[id] == "" || in[id].Terminal() {
			t.Errorf("%s: the deadline of job %x outlives it: it is %q", name, id, in[id])
		}
	}
	for key, lock := range hash("locks") {
		if mode, id := lock[:1], lock[1:17]; mode != "w" && in[id] == "" {
			t.Errorf("%s: key %q is locked by job %x, which is gone", name, key, id)
		}
	}
	counts := map[store.State]int64{}
	for _, s := range in {
		counts[s]++
	}
	return store.Stats{
		Instance: name, Total: int64(len(jobs)),
		Todo: counts[store.Todo], Scheduled: counts[store.Scheduled], Doing: counts[store.Doing], Parked: counts[store.Parked],
		Done: counts[store.Done], Dead: counts[store.Dead], Cancelled: counts[store.Cancelled],
	}
}

// statesOf returns in which state each job of an instance is: each that has a record is in one.
func statesOf(t testing.TB, name string, jobs map[string]string, set func(key string) []string) map[string]store.State {
	t.Helper()
	in := map[string]store.State{}
	for _, s := range allStates {
		ids := set(string(s))
		if s == store.Todo {
			ids = append(ids, set("suspects")...)
		}
		for _, id := range ids {
			if was, twice := in[id]; twice {
				t.Errorf("%s: job %x is both %s and %s", name, id, was, s)
			}
			if _, ok := jobs[id]; !ok {
				t.Errorf("%s: job %x is %s and has no record", name, id, s)
			}
			in[id] = s
		}
	}
	for id := range jobs {
		if in[id] == "" {
			t.Errorf("%s: job %x is in no state", name, id)
		}
	}
	return in
}

// checkWorkers returns the jobs that workers hold. It fails the test unless those in doing are they who hold one.
func checkWorkers(t testing.TB, name string, workers map[string]string, doing []string) (held []string) {
	t.Helper()
	for worker, lease := range workers {
		if len(worker) != 16 || len(lease) != 40 {
			t.Errorf("%s: mapping %x is %x", name, worker, lease)
			continue
		}
		held = append(held, lease[:16])
		if !slices.Contains(doing, worker) {
			t.Errorf("%s: worker %x holds job %x and isn't in doing", name, worker, lease[:16])
		}
	}
	for _, worker := range doing {
		if workers[worker] == "" {
			t.Errorf("%s: worker %x is in doing and holds nothing", name, worker)
		}
	}
	return held
}

func (e *Env) checkStats(t testing.TB, got, want store.Stats) {
	t.Helper()
	if sum := got.Todo + got.Scheduled + got.Doing + got.Parked + got.Done + got.Dead + got.Cancelled; got.Total != sum {
		t.Errorf("%s: total is %d, the states add up to %d", want.Instance, got.Total, sum)
	}
	if got.Instance == "" && want.Total == 0 {
		return // nothing was ever enqueued: only somebody who asked
	}
	want.Paused, want.OldestTodo = got.Paused, got.OldestTodo
	if got != want {
		t.Errorf("%s: stats are %+v, want %+v", want.Instance, got, want)
	}
}
