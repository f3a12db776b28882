package metrics

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Collector collects the metrics of a process. It is safe for concurrent use. A registry takes one: a second one, for a second
// store, is refused as a duplicate, unless each is registered with a label of its own (prometheus.WrapRegistererWith).
type Collector struct {
	jobs   *jobs
	depths *depths
	build  prometheus.Metric
	began  time.Time

	mu          sync.Mutex
	supervisors map[*worker.Supervisor]struct{} // those that run
}

var (
	descWorkers = prometheus.NewDesc("stint_workers",
		"Workers of this process. A pool that instances share has its name and no instance, that of one handler an instance and no name.",
		[]string{"pool", byInstance, "state"}, nil)
	descBuild = prometheus.NewDesc("stint_build_info", "Always 1; the versions are in its labels.", []string{"version", "goversion"}, nil)
	descBegan = prometheus.NewDesc("stint_start_time_seconds", "When the process began to count, in seconds since 1970: another value is another process.", nil, nil)
)

// New returns a Collector, to be registered once. With a nil store it has nothing to say of what is in it.
func New(st *store.Store) *Collector {
	d := &depths{st: st}
	return &Collector{
		jobs:        newJobs(&d.asked),
		depths:      d,
		build:       prometheus.MustNewConstMetric(descBuild, prometheus.GaugeValue, 1, version(), runtime.Version()),
		began:       time.Now(),
		supervisors: map[*worker.Supervisor]struct{}{},
	}
}

// version is that of this module in the program.
func version() string {
	const module = "github.com/stint-go/stint"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return info.Main.Version // a program of the module itself
}

// Observe counts an event. It is for worker.Config and worker.ClientConfig: several supervisors and clients may share it. Whoever
// has a listener already calls it from there.
func (c *Collector) Observe(e worker.Event) {
	switch e := e.(type) {
	case worker.RunStarted:
		c.mu.Lock()
		c.supervisors[e.Supervisor] = struct{}{}
		c.mu.Unlock()
	case worker.RunStopped:
		c.mu.Lock()
		delete(c.supervisors, e.Supervisor)
		c.mu.Unlock()
	default:
		c.jobs.observe(e)
	}
}

// Describe is for the registry.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	c.jobs.describe(out)
	c.depths.describe(out)
	out <- descWorkers
	out <- descBuild
	out <- descBegan
}

// Collect is for the registry. It takes no longer than 3 seconds, whatever Redis does.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	found := c.depths.get()
	served := c.workers(out)
	if found.there != nil {
		c.jobs.hide(found.question, func(instance string) bool { return served[instance] || found.there[instance] })
	}
	c.jobs.collect(out)
	found.collect(out)
	out <- c.build
	send(out, descBegan, float64(c.began.UnixMilli())/1000)
}

// workers tells of the supervisors that run, and returns the instances that they serve.
func (c *Collector) workers(out chan<- prometheus.Metric) map[string]bool {
	c.mu.Lock()
	var all []*worker.Supervisor
	for s := range c.supervisors {
		all = append(all, s)
	}
	c.mu.Unlock()
	type name struct{ pool, instance string }
	type count struct{ busy, idle int }
	served, pools := map[string]bool{}, map[name]count{}
	for _, s := range all {
		for _, p := range s.Status().Pools {
			for _, instance := range p.Instances {
				served[instance] = true
				c.jobs.know(instance)
			}
			n := name{pool: p.Name}
			if p.Name == "" {
				n.instance = p.Instances[0]
			}
			pools[n] = count{pools[n].busy + p.Busy, pools[n].idle + p.Workers - p.Busy}
		}
	}
	for n, k := range pools {
		send(out, descWorkers, float64(k.busy), n.pool, n.instance, "busy")
		send(out, descWorkers, float64(k.idle), n.pool, n.instance, "idle")
	}
	return served
}
