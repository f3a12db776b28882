package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// series are the metrics of one instance.
type series struct {
	all []prometheus.Metric // the fields below

	enqueued, claimed, expired, lost, stale, inconsistent, audited prometheus.Counter
	finished                                                       map[worker.Outcome]prometheus.Counter
	reaped, trimmed                                                map[store.State]prometheus.Counter
	waited, took, age, late                                        prometheus.Observer
	beaten, unbeaten                                               prometheus.Counter

	committed, replayed, dropped, dispatched prometheus.Counter
	swept                                    map[worker.SweepOutcome]prometheus.Counter
	ticks                                    map[string]prometheus.Counter
	lag                                      prometheus.Observer

	used atomic.Int64 // the number of the last question to the store when something was counted last
	gone atomic.Int64 // that of the one whose answer first said that there is no such instance any more; 0: there is
}

// hidden says whether the instance is gone, and nothing was counted since.
func (s *series) hidden() bool { return s.gone.Load() > s.used.Load() }

// make makes the series of an instance, all at zero. What they are made by forgets them at once: to look for them there, among all, when
// the instance is gone would keep those who count waiting.
func (j *jobs) make(instance string) *series {
	s := &series{finished: map[worker.Outcome]prometheus.Counter{}, swept: map[worker.SweepOutcome]prometheus.Counter{}}
	counter := func(v *prometheus.CounterVec, labels ...string) prometheus.Counter {
		values := append([]string{instance}, labels...)
		c := v.WithLabelValues(values...)
		v.DeleteLabelValues(values...)
		s.all = append(s.all, c)
		return c
	}
	histogram := func(v *prometheus.HistogramVec) prometheus.Observer {
		h := v.WithLabelValues(instance)
		v.DeleteLabelValues(instance)
		s.all = append(s.all, h.(prometheus.Metric))
		return h
	}
	byState := func(v *prometheus.CounterVec, states ...store.State) map[store.State]prometheus.Counter {
		m := map[store.State]prometheus.Counter{}
		for _, state := range states {
			m[state] = counter(v, string(state))
		}
		return m
	}
	s.enqueued, s.claimed, s.expired = counter(j.enqueued), counter(j.claimed), counter(j.expired)
	s.lost, s.stale = counter(j.lost), counter(j.stale)
	s.inconsistent, s.audited = counter(j.inconsistent), counter(j.audited)
	s.beaten, s.unbeaten = counter(j.beats, "ok"), counter(j.beats, "failed")
	s.waited, s.took, s.age, s.late, s.lag = histogram(j.waited), histogram(j.took), histogram(j.age), histogram(j.late), histogram(j.lag)
	s.reaped = byState(j.reaped, store.Todo, store.Dead, store.Cancelled)
	s.trimmed = byState(j.trimmed, store.Done, store.Dead, store.Cancelled)
	s.trimmed[""] = counter(j.trimmed, "any")
	for _, o := range []worker.Outcome{worker.Completed, worker.Retried, worker.Snoozed, worker.Released, worker.Buried, worker.Aborted, worker.Parked} {
		s.finished[o] = counter(j.finished, string(o))
	}
	s.committed, s.replayed, s.dropped = counter(j.steps, "committed"), counter(j.steps, "replayed"), counter(j.steps, "dropped")
	s.dispatched = counter(j.dispatched)
	for _, o := range []worker.SweepOutcome{worker.SweptAgain, worker.SweptFound, worker.SweptLost} {
		s.swept[o] = counter(j.swept, string(o))
	}
	s.ticks = map[string]prometheus.Counter{}
	for _, status := range []string{store.StatusDispatched, store.StatusSkipped, store.StatusFailed} {
		s.ticks[status] = counter(j.ticks, status)
	}
	return s
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

func (s *series) tick(e worker.TickDispatched) {
	add(s.ticks[e.Status], 1)
	if e.Status == store.StatusDispatched {
		s.lag.Observe(max(e.Late, 0).Seconds()) // Redis' clock may go back
	}
}

// add adds to a counter, unless a later version of the runtime names something that this one does not know.
func add(c prometheus.Counter, n int) {
	if c != nil {
		c.Add(float64(n))
	}
}
