package metrics

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/worker"
)

// buckets suit what takes a millisecond to an hour.
var buckets = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 150, 300, 600, 1800, 3600,
}

// byInstance is the label that says which instance a metric is of. It can't be "instance": that one is Prometheus' own, for the
// process that it has scraped.
const byInstance = "stint_instance"

// jobs is what the events tell. A metric of an event is a line in newJobs, a field and a line in make, and a case in observe.
type jobs struct {
	enqueued, claimed, finished, reaped, expired, lost, stale, trimmed, inconsistent, audited, beats *prometheus.CounterVec
	steps, dispatched, swept, ticks                                                                  *prometheus.CounterVec
	waited, took, age, late, lag                                                                     *prometheus.HistogramVec

	vecs    []prometheus.Collector // all of these
	outages *prometheus.CounterVec
	dropped prometheus.Counter
	asked   *atomic.Int64 // how many questions the store was asked

	mu    sync.RWMutex // held for reading while something is counted, so that nothing is counted in what is no longer known
	known map[string]*series
}

// loops are what can fail, of which there is a count from the start.
var loops = []string{"exchange", "heartbeat", "reap", "sweep", "steps", "announce", "subscription", "cron", "lease watch"}

// remembered is how many instances that are gone keep their counts, hidden, for the case that they come back: a counter does not
// go back because its instance was deleted and is used again.
const remembered = 100

func newJobs(asked *atomic.Int64) *jobs {
	j := &jobs{asked: asked, known: map[string]*series{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stint_" + name, Help: help}, append([]string{byInstance}, labels...))
		j.vecs = append(j.vecs, v)
		return v
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(histogramOpts("stint_"+name, help, buckets), []string{byInstance})
		j.vecs = append(j.vecs, v)
		return v
	}
	j.enqueued = counter("jobs_enqueued_total", "Jobs that were accepted from this process' clients.")
	j.claimed = counter("jobs_claimed_total", "Jobs that were claimed and given to a handler.")
	j.finished = counter("jobs_finished_total", "Leases that their holder has ended, by outcome.", "outcome")
	j.reaped = counter("jobs_reaped_total", "Leases that ran out and were ended by this process: crashes, by the state that they led to.", "state")
	j.expired = counter("jobs_expired_total", "Jobs that were not claimed before their deadline.")
	j.lost = counter("leases_lost_total", "Handlers that were told, while they ran, that the job is no longer theirs.")
	j.stale = counter("stale_writes_total", "Ends of leases that came too late and were refused.")
	j.trimmed = counter("jobs_trimmed_total", "Ended jobs that a bound of retention has removed.", "state")
	j.inconsistent = counter("inconsistencies_total", "Times that records and states were found not to add up.")
	j.audited = counter("jobs_audited_total", "Jobs that an audit has put right.")
	j.beats = counter("heartbeats_total", "Heartbeats that had leases to extend, by result.", "result")
	j.steps = counter("steps_total", "Steps that handlers came to: run and kept, replayed from what is kept, or run in vain by a worker that had lost its job.", "outcome")
	j.dispatched = counter("children_dispatched_total", "Async steps of this instance's jobs that became jobs.")
	j.swept = counter("children_swept_total", "Children of this instance's jobs that a crash had cut off, by what the sweeper did.", "outcome")
	j.ticks = counter("cron_ticks_total", "Ticks of cron that this process has put on record, by status.", "status")
	j.waited = histogram("job_wait_seconds", "From when a job could run to its start.")
	j.took = histogram("job_run_seconds", "From the start of a handler to its return.")
	j.age = histogram("job_life_seconds", "From a job's enqueue to its end, of those that their holder has ended.")
	j.late = histogram("heartbeat_lateness_seconds", "How much more than a quarter of a lease went by between two heartbeats.")
	j.lag = histogram("cron_lag_seconds", "From a tick of cron to its dispatch.")
	j.outages = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stint_outages_total", Help: "Times that something began to fail, by what failed first.",
	}, []string{"loop"})
	for _, loop := range loops {
		j.outages.WithLabelValues(loop)
	}
	j.dropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stint_events_dropped_total", Help: "Events that are missing in the metrics because the listener was too slow.",
	})
	return j
}

// histogramOpts is a histogram with classic buckets and, for a Prometheus that asks for them, native ones.
func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// of returns the series of an instance; all that can be counted is there from the start, at zero. The caller holds j.mu for reading.
func (j *jobs) of(instance string) *series {
	s := j.known[instance]
	for s == nil { // it may be gone again before we read on
		j.mu.RUnlock()
		j.mu.Lock()
		if j.known[instance] == nil {
			j.known[instance] = j.make(instance)
		}
		j.mu.Unlock()
		j.mu.RLock()
		s = j.known[instance]
	}
	if asked := j.asked.Load(); s.used.Load() != asked {
		s.used.Store(asked)
	}
	return s
}

// know makes the series of an instance, so that its counters start at zero.
func (j *jobs) know(instance string) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	j.of(instance)
}

// observe counts an event.
func (j *jobs) observe(e worker.Event) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	switch e := e.(type) {
	case worker.JobEnqueued:
		j.of(e.Instance).enqueued.Inc()
	case worker.JobStarted:
		s := j.of(e.Instance)
		s.claimed.Inc()
		s.waited.Observe(e.Waited.Seconds())
	case worker.JobFinished:
		j.of(e.Instance).end(e)
	case worker.JobReaped:
		add(j.of(e.Instance).reaped[e.State], 1)
	case worker.JobExpired:
		j.of(e.Instance).expired.Inc()
	case worker.LeasesExtended:
		j.of(e.Instance).beat(e)
	case worker.LeaseLost:
		j.of(e.Instance).lost.Inc()
	case worker.StaleWrite:
		j.of(e.Instance).stale.Inc()
	case worker.Trimmed:
		add(j.of(e.Instance).trimmed[e.State], e.Count)
	case worker.Inconsistent:
		j.of(e.Instance).inconsistent.Inc()
	case worker.Audited:
		add(j.of(e.Instance).audited, len(e.Jobs))
	case worker.StepCommitted:
		j.of(e.Instance).committed.Inc()
	case worker.StepReplayed:
		j.of(e.Instance).replayed.Inc()
	case worker.StepDropped:
		j.of(e.Instance).dropped.Inc()
	case worker.ChildDispatched:
		j.of(e.Instance).dispatched.Inc()
	case worker.ChildSwept:
		add(j.of(e.Instance).swept[e.Outcome], 1)
	case worker.TickDispatched:
		j.of(e.Instance).tick(e)
	case worker.LoopFailed:
		j.outages.WithLabelValues(e.Loop).Inc()
	case worker.EventsDropped:
		j.dropped.Add(float64(e.Count))
	}
}

// hide hides the instances that are no longer there, as an answer says, unless something was counted since that was asked for. Of those
// that are hidden the latest are remembered. Nobody who counts waits for it but while those that are not are dropped.
func (j *jobs) hide(question int64, there func(instance string) bool) {
	type past struct {
		instance string
		gone     int64
	}
	var hidden []past
	j.mu.RLock()
	for instance, s := range j.known {
		if there(instance) {
			s.gone.Store(0)
			continue
		}
		if !s.hidden() && s.used.Load() < question {
			s.gone.Store(question)
		}
		if s.hidden() {
			hidden = append(hidden, past{instance, s.gone.Load()})
		}
	}
	j.mu.RUnlock()
	if len(hidden) <= remembered {
		return
	}
	slices.SortFunc(hidden, func(a, b past) int { return cmp.Compare(b.gone, a.gone) })
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range hidden[remembered:] {
		if s := j.known[p.instance]; s != nil && s.hidden() { // nothing was counted meanwhile
			delete(j.known, p.instance)
		}
	}
}

func (j *jobs) describe(out chan<- *prometheus.Desc) {
	for _, v := range j.vecs {
		v.Describe(out)
	}
	j.outages.Describe(out)
	j.dropped.Describe(out)
}

func (j *jobs) collect(out chan<- prometheus.Metric) {
	j.mu.RLock()
	var all []prometheus.Metric
	for _, s := range j.known {
		if !s.hidden() {
			all = append(all, s.all...)
		}
	}
	j.mu.RUnlock()
	for _, m := range all {
		out <- m
	}
	j.outages.Collect(out)
	j.dropped.Collect(out)
}
