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
}

func (c *Calls) init() {
	c.once.Do(func() {
		c.took = prometheus.NewHistogramVec(histogramOpts("stint_store_call_seconds", "How long calls of the store took, by operation.",
			[]float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}), []string{"op"})
		c.failed = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stint_store_errors_total",
			Help: "Calls of the store that failed: refused by the server, or unanswered. That there is no such job, and the like, is no failure.",
		}, []string{"op", "reason"})
	})
}

// Observe notes a call.
func (c *Calls) Observe(op string, took time.Duration, err error) {
	c.init()
	c.took.WithLabelValues(op).Observe(took.Seconds())
	switch {
	case err == nil || answered(err):
	case errors.Is(err, store.ErrServer):
		c.failed.WithLabelValues(op, "refused").Inc()
	default:
		c.failed.WithLabelValues(op, "unanswered").Inc()
	}
}

// answered reports whether an error is an answer, or the caller's own doing.
func answered(err error) bool {
	for _, is := range []error{
		store.ErrNotFound, store.ErrExists, store.ErrDuplicate, store.ErrInvalid, store.ErrTerminal, store.ErrState, store.ErrLeaseLost,
		context.Canceled,
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
