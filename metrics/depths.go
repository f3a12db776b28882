package metrics

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/store"
)

// How the store is asked.
const (
	fresh    = time.Second      // for so long an answer serves all who scrape
	patience = 3 * time.Second  // how long a scrape waits for one
	giveUp   = 30 * time.Second // when a question that is not answered is taken back
	stale    = time.Minute      // for so long the last one serves those who have waited in vain
)

var (
	descJobs    = prometheus.NewDesc("stint_jobs", "Jobs that are in each state.", []string{byInstance, "state"}, nil)
	descOldest  = prometheus.NewDesc("stint_oldest_todo_age_seconds", "For how long the oldest of the jobs that are todo has been so.", []string{byInstance}, nil)
	descPaused  = prometheus.NewDesc("stint_paused", "1 if the instance is paused.", []string{byInstance}, nil)
	descServing = prometheus.NewDesc("stint_live_workers", "Workers of all live processes that serve the instance, those that it shares included.", []string{byInstance}, nil)
	descLive    = prometheus.NewDesc("stint_live_processes", "Processes that are alive.", nil, nil)
	descOverdue = prometheus.NewDesc("stint_cron_overdue_seconds", "For how long the earliest tick of the instance's entries that is not decided has been due.", []string{byInstance}, nil)
	descUp      = prometheus.NewDesc("stint_store_up", "1 if the store answers.", nil, nil)
	descSpoilt  = prometheus.NewDesc("stint_store_spoilt", "Keys that are somebody else's, stand in the place of ours, and hide what belongs there.", nil, nil)
)

// depths asks the store what is in it: one question at a time, however many scrape, and none waits for longer than its patience.
type depths struct {
	st    *store.Store
	asked atomic.Int64 // how many questions

	mu      sync.Mutex
	last    *found // the last answer, nil before the first
	at      time.Time
	pending *found // the question that is out
}

// found is an answer.
type found struct {
	asked     bool  // there is a store
	question  int64 // its number: what was there when it was asked is in the answer
	done      chan struct{}
	up        bool            // the store has answered
	spoilt    map[string]bool // the keys that are foreign
	there     map[string]bool // the instances, nil if they are not known
	stats     []store.Stats
	live      bool // the processes are known
	processes []store.Process
	entries   []store.Entry
}

// get returns what is in the store, as far as that is known.
func (d *depths) get() *found {
	if d.st == nil {
		return &found{}
	}
	d.mu.Lock()
	if d.last != nil && time.Since(d.at) < fresh {
		defer d.mu.Unlock()
		return d.last
	}
	if d.pending == nil {
		d.pending = &found{asked: true, question: d.asked.Add(1), done: make(chan struct{})}
		// A group for each question: the goroutine may end where it stands.
		batch.New(1, 1, 1, func(*found) int { return 1 }, d.ask).Add(d.pending)
	}
	f := d.pending
	d.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.done:
		return f
	case <-timer.C:
		return d.late()
	}
}

// late is what is known while a question has been out for too long.
func (d *depths) late() *found {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil && time.Since(d.at) < stale {
		return d.last
	}
	return &found{asked: true}
}

// ask answers a question. The hooks of the Redis client and of the store, which are the user's code, run in it: a panic, or a
// runtime.Goexit, leaves the rest unanswered.
func (d *depths) ask(_ int, questions []*found) {
	f := questions[0]
	defer func() {
		if v := recover(); v != nil {
			slog.Default().Error("a question to the store panicked", "panic", v, "stack", string(debug.Stack()))
		}
		d.mu.Lock()
		d.last, d.at, d.pending = f, time.Now(), nil
		d.mu.Unlock()
		close(f.done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	f.fill(ctx, d.st)
}

// fill asks the store. What answers is told, also where foreign keys, or a node of a Cluster that is away, hide the rest.
func (f *found) fill(ctx context.Context, st *store.Store) {
	f.spoilt = map[string]bool{}
	stats, err := st.Stats(ctx)
	all := f.only(err)
	if !all && len(stats) == 0 {
		return
	}
	f.stats = stats
	if all {
		f.there = instancesOf(stats, err)
	}
	processes, live := st.Processes(ctx)
	f.processes, f.live = processes, live == nil
	entries, cron := st.Entries(ctx)
	f.entries = entries
	f.only(live)
	f.only(cron)
	f.up = true
}

// instancesOf returns the instances that there are, those included that foreign keys hide; nil if one hides which there are.
func instancesOf(stats []store.Stats, err error) map[string]bool {
	there := map[string]bool{}
	for i := range stats {
		there[stats[i].Instance] = true
	}
	for _, e := range keyErrors(err) {
		if e.Instance() == "" {
			return nil
		}
		there[e.Instance()] = true
	}
	return there
}

// only notes the foreign keys that an error names, and says whether that is all it says.
func (f *found) only(err error) bool {
	keys := keyErrors(err)
	for _, e := range keys {
		f.spoilt[e.Key] = true
	}
	return err == nil || len(keys) > 0
}

// keyErrors returns the foreign keys of an error that is of nothing else.
func keyErrors(err error) []*store.KeyError {
	switch e := err.(type) { //nolint:errorlint // each error of a tree is looked at
	case *store.KeyError:
		return []*store.KeyError{e}
	case interface{ Unwrap() error }:
		return keyErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*store.KeyError
		for _, one := range e.Unwrap() {
			some := keyErrors(one)
			if len(some) == 0 {
				return nil
			}
			all = append(all, some...)
		}
		return all
	}
	return nil
}

func (*depths) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descJobs, descOldest, descPaused, descServing, descLive, descOverdue, descUp, descSpoilt} {
		out <- d
	}
}

func (f *found) collect(out chan<- prometheus.Metric) {
	if !f.asked {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) { send(out, d, v, labels...) }
	gauge(descUp, flag(f.up))
	if f.up {
		gauge(descSpoilt, float64(len(f.spoilt)))
	}
	serving := map[string]int{}
	for _, p := range f.processes {
		for _, pool := range p.Pools {
			for _, instance := range pool.Instances {
				serving[instance] += pool.Concurrency
			}
		}
	}
	for _, s := range f.stats {
		for state, n := range map[store.State]int64{
			store.Todo: s.Todo, store.Scheduled: s.Scheduled, store.Doing: s.Doing, store.Parked: s.Parked,
			store.Done: s.Done, store.Dead: s.Dead, store.Cancelled: s.Cancelled,
		} {
			gauge(descJobs, float64(n), s.Instance, string(state))
		}
		gauge(descOldest, s.OldestTodo.Seconds(), s.Instance)
		gauge(descPaused, flag(s.Paused), s.Instance)
		if f.live {
			gauge(descServing, float64(serving[s.Instance]), s.Instance)
		}
	}
	if f.live {
		gauge(descLive, float64(len(f.processes)))
	}
	overdue := map[string]time.Duration{}
	for _, e := range f.entries {
		overdue[e.Instance] = max(overdue[e.Instance], e.Overdue)
	}
	for instance, d := range overdue {
		gauge(descOverdue, d.Seconds(), instance)
	}
}

// send sends a gauge. One with a label that is no text is left out: it would take all the others with it.
func send(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...); err == nil {
		out <- m
	}
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
