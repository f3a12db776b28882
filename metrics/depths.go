package metrics

import (
	"context"
	"errors"
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
)

var (
	descJobs    = prometheus.NewDesc("stint_jobs", "Jobs that are in each state.", []string{byInstance, "state"}, nil)
	descOldest  = prometheus.NewDesc("stint_oldest_todo_age_seconds", "For how long the oldest of the jobs that are todo has been so.", []string{byInstance}, nil)
	descPaused  = prometheus.NewDesc("stint_paused", "1 if the instance is paused.", []string{byInstance}, nil)
	descServing = prometheus.NewDesc("stint_live_workers", "Workers of all live processes that serve the instance, those that it shares included.", []string{byInstance}, nil)
	descLive    = prometheus.NewDesc("stint_live_processes", "Processes that are alive.", nil, nil)
	descOverdue = prometheus.NewDesc("stint_cron_overdue_seconds", "For how long the earliest tick of the instance's entries that is on no record has been due.", []string{byInstance}, nil)
	descUp      = prometheus.NewDesc("stint_store_up", "1 if the store has told all that was asked.", nil, nil)
)

// depths asks the store what is in it: one question at a time, however many scrape, and none waits for longer than its patience.
type depths struct {
	st        *store.Store
	questions *batch.Group[*found]
	asked     atomic.Int64 // how many

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
	err       error
	stats     []store.Stats
	live      bool // the processes are known
	processes []store.Process
	entries   []store.Entry
}

func newDepths(st *store.Store) *depths {
	d := &depths{st: st}
	d.questions = batch.New(1, 1, 1, func(*found) int { return 1 }, d.ask)
	return d
}

// get returns what is in the store, or the error of not knowing.
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
		d.questions.Add(d.pending)
	}
	f := d.pending
	d.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.done:
		return f
	case <-timer.C:
		return &found{asked: true, err: errSilent}
	}
}

var errSilent = errors.New("the store has not answered")

// ask answers a question.
func (d *depths) ask(_ int, questions []*found) {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	f := questions[0]
	f.stats, f.err = d.st.Stats(ctx)
	if _, spoilt := errors.AsType[*store.KeyError](f.err); spoilt || f.err == nil { // the others can be told
		var live, cron error
		f.processes, live = d.st.Processes(ctx)
		f.entries, cron = d.st.Entries(ctx)
		f.live, f.err = live == nil, errors.Join(f.err, live, cron)
	}
	d.mu.Lock()
	d.last, d.at, d.pending = f, time.Now(), nil
	d.mu.Unlock()
	close(f.done)
}

func (f *found) has(instance string) bool {
	for i := range f.stats {
		if f.stats[i].Instance == instance {
			return true
		}
	}
	return false
}

func (*depths) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descJobs, descOldest, descPaused, descServing, descLive, descOverdue, descUp} {
		out <- d
	}
}

func (f *found) collect(out chan<- prometheus.Metric) {
	if !f.asked {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descUp, flag(f.err == nil))
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

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
