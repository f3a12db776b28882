package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// buckets suit what takes a millisecond to an hour.
var buckets = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 150, 300, 600, 1800, 3600,
}

// byInstance is the label that says which instance a metric is of. It can't be "instance": that one is Prometheus' own, for the
// process that it has scraped.
const byInstance = "stint_instance"

// vec is a metric with that label, and maybe others.
type vec interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

// jobs is what the events tell. A metric of an event is a line in newJobs, a field and a line in make, and a case in observe.
type jobs struct {
	enqueued, claimed, finished, reaped, expired, lost, stale, trimmed, inconsistent, audited, beats *prometheus.CounterVec
	waited, took, age, late                                                                          *prometheus.HistogramVec

	vecs    []vec // all of these
	outages *prometheus.CounterVec
	dropped prometheus.Counter

	mu    sync.RWMutex
	known map[string]*series
}

// series are the metrics of one instance.
type series struct {
	since                                                          time.Time
	enqueued, claimed, expired, lost, stale, inconsistent, audited prometheus.Counter
	finished                                                       map[worker.Outcome]prometheus.Counter
	reaped, trimmed                                                map[store.State]prometheus.Counter
	waited, took, age, late                                        prometheus.Observer
	beaten, unbeaten                                               prometheus.Counter
}

func newJobs() *jobs {
	j := &jobs{known: map[string]*series{}}
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
	j.waited = histogram("job_wait_seconds", "From when a job could run to its start.")
	j.took = histogram("job_run_seconds", "From the start of a handler to its return.")
	j.age = histogram("job_life_seconds", "From a job's enqueue to its end.")
	j.late = histogram("heartbeat_lateness_seconds", "How much more than a quarter of a lease went by between two heartbeats.")
	j.outages = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stint_outages_total", Help: "Times that something began to fail, by what failed first.",
	}, []string{"loop"})
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

// of returns the series of an instance. All that can be counted is there from the start, at zero.
func (j *jobs) of(instance string) *series {
	j.mu.RLock()
	s := j.known[instance]
	j.mu.RUnlock()
	if s != nil {
		return s
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s = j.known[instance]; s == nil {
		s = j.make(instance)
		j.known[instance] = s
	}
	return s
}

func (j *jobs) make(instance string) *series {
	s := &series{
		since:    time.Now(),
		enqueued: j.enqueued.WithLabelValues(instance), claimed: j.claimed.WithLabelValues(instance),
		expired: j.expired.WithLabelValues(instance), lost: j.lost.WithLabelValues(instance), stale: j.stale.WithLabelValues(instance),
		inconsistent: j.inconsistent.WithLabelValues(instance), audited: j.audited.WithLabelValues(instance),
		waited: j.waited.WithLabelValues(instance), took: j.took.WithLabelValues(instance), age: j.age.WithLabelValues(instance),
		late: j.late.WithLabelValues(instance), beaten: j.beats.WithLabelValues(instance, "ok"), unbeaten: j.beats.WithLabelValues(instance, "failed"),
		finished: map[worker.Outcome]prometheus.Counter{},
		reaped:   map[store.State]prometheus.Counter{},
		trimmed:  map[store.State]prometheus.Counter{"": j.trimmed.WithLabelValues(instance, "any")},
	}
	for _, o := range []worker.Outcome{worker.Completed, worker.Retried, worker.Snoozed, worker.Released, worker.Buried, worker.Aborted, worker.Parked} {
		s.finished[o] = j.finished.WithLabelValues(instance, string(o))
	}
	for _, state := range []store.State{store.Todo, store.Dead, store.Cancelled} {
		s.reaped[state] = j.reaped.WithLabelValues(instance, string(state))
	}
	for _, state := range []store.State{store.Done, store.Dead, store.Cancelled} {
		s.trimmed[state] = j.trimmed.WithLabelValues(instance, string(state))
	}
	return s
}

// observe counts an event.
func (j *jobs) observe(e worker.Event) {
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
	case worker.LoopFailed:
		j.outages.WithLabelValues(e.Loop).Inc()
	case worker.EventsDropped:
		j.dropped.Add(float64(e.Count))
	}
}

// end counts a finish.
func (s *series) end(e worker.JobFinished) {
	outcome := e.Outcome
	if e.State == store.Cancelled { // whatever the handler had wanted
		outcome = worker.Aborted
	}
	add(s.finished[outcome], 1)
	if e.Took > 0 {
		s.took.Observe(e.Took.Seconds())
	}
	if e.State.Terminal() {
		s.age.Observe(e.Age.Seconds())
	}
}

func (s *series) beat(e worker.LeasesExtended) {
	if e.Err != nil {
		s.unbeaten.Inc()
		return
	}
	s.beaten.Inc()
	s.late.Observe(e.Late.Seconds())
}

// add adds to a counter, unless a later version of the runtime names something that this one does not know.
func add(c prometheus.Counter, n int) {
	if c != nil {
		c.Add(float64(n))
	}
}

// forget removes the instances that were known at that time and are no longer there.
func (j *jobs) forget(at time.Time, there func(instance string) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for instance, s := range j.known {
		if !s.since.Before(at) || there(instance) {
			continue
		}
		delete(j.known, instance)
		for _, v := range j.vecs {
			v.DeletePartialMatch(prometheus.Labels{byInstance: instance})
		}
	}
}

func (j *jobs) describe(out chan<- *prometheus.Desc) {
	j.each(func(c prometheus.Collector) { c.Describe(out) })
}

func (j *jobs) collect(out chan<- prometheus.Metric) {
	j.each(func(c prometheus.Collector) { c.Collect(out) })
}

func (j *jobs) each(f func(prometheus.Collector)) {
	for _, v := range j.vecs {
		f(v)
	}
	f(j.outages)
	f(j.dropped)
}
