package metrics

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/store"
)

// Calls collects how long the calls of a store take and how they fail. Its zero value is ready for use: Observe is for
// store.Options.OnCall. Several stores may share one.
type Calls struct {
	once   sync.Once
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec
	ops    sync.Map // those that were seen: *op by name
}

// op is what is counted of an operation.
type op struct {
	took   prometheus.Observer
	failed map[string]prometheus.Counter // by reason
}

// The reasons for which calls fail.
const (
	refused    = "refused"
	foreignKey = "foreign_key"
	replicas   = "replicas"
	unanswered = "unanswered"
)

func (c *Calls) init() {
	c.once.Do(func() {
		c.took = prometheus.NewHistogramVec(histogramOpts("stint_store_call_seconds", "How long calls of the store took, by operation.",
			[]float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}), []string{"op"})
		c.failed = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stint_store_errors_total",
			Help: "Calls of the store that failed: refused by the server, spoilt by a foreign key, on too few replicas, or unanswered. That there is no such job, and the like, is no failure.",
		}, []string{"op", "reason"})
	})
}

// Observe notes a call.
func (c *Calls) Observe(op string, took time.Duration, err error) {
	o := c.of(op)
	o.took.Observe(took.Seconds())
	if failed := o.failed[reason(err)]; failed != nil {
		failed.Inc()
	}
}

// of returns what is counted of an operation; each of its failures is there from its first call, at zero: what begins with the first
// failure would not be seen to grow by it.
func (c *Calls) of(name string) *op {
	if o, known := c.ops.Load(name); known {
		return o.(*op)
	}
	c.init()
	o := &op{c.took.WithLabelValues(name), map[string]prometheus.Counter{}}
	for _, reason := range []string{refused, foreignKey, replicas, unanswered} {
		o.failed[reason] = c.failed.WithLabelValues(name, reason)
	}
	c.ops.Store(name, o) // whoever else makes one makes the same
	return o
}

// reason is that of a failure, empty if it is none.
func reason(err error) string {
	_, foreign := errors.AsType[*store.KeyError](err)
	_, few := errors.AsType[*store.ReplicasError](err)
	switch {
	case err == nil || answered(err):
		return ""
	case foreign:
		return foreignKey
	case few:
		return replicas
	case errors.Is(err, store.ErrServer):
		return refused
	default:
		return unanswered
	}
}

// answered reports whether an error is an answer, or the caller's own doing.
func answered(err error) bool {
	for _, is := range []error{
		store.ErrNotFound, store.ErrExists, store.ErrDuplicate, store.ErrInvalid, store.ErrTerminal, store.ErrState, store.ErrLeaseLost,
		store.ErrUntold, context.Canceled,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// Describe is for the registry.
func (c *Calls) Describe(out chan<- *prometheus.Desc) {
	c.init()
	c.took.Describe(out)
	c.failed.Describe(out)
}

// Collect is for the registry.
func (c *Calls) Collect(out chan<- prometheus.Metric) {
	c.init()
	c.took.Collect(out)
	c.failed.Collect(out)
}
