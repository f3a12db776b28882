package worker

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/ids"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// process is a Run: all that lives while it lasts. Goroutines: one a slot; three loops an instance (heartbeat, reaper, sweeper) and up to two
// requests in flight, and as many to an instance of parents or of children; one an instance that entries target; four loops for all
// (subscription, lease watch, list of processes, the listener's).
type process struct {
	sup     *Supervisor
	rt      *store.Runtime
	cfg     Config
	log     *slog.Logger
	now     func() time.Time
	about   store.Process
	started time.Time
	sole    bool          // no other process uses the server
	trusted time.Duration // for how long after the call was sent a lease is known to hold

	base   context.Context // the values of Run's context
	io     context.Context // of requests that claim and finish; ends when the time to stop is over
	stopIO context.CancelFunc

	patient context.Context // of hooks of ticks; ends when all the time that a stop may take is over
	giveUp  context.CancelFunc

	events     *stream
	outages    loop.Outages
	suspects   suspicion
	hearing    atomic.Bool  // the subscription stands
	listed     atomic.Bool  // Redis has answered at least once
	watched    atomic.Int64 // when the lease watch looks next, since started
	pools      []*pool
	feeds      []*feed // of all pools
	byInstance map[string]*feed

	schedulers []*scheduler
	silence    silence
	relays     *relays
	children   *queues // of what handlers dispatch

	announcer, listener, watcher *loop.Loop
}

func newProcess(ctx context.Context, sup *Supervisor, registered []*registration) *process {
	host, _ := os.Hostname()
	cfg, rt := sup.cfg, sup.st.Runtime()
	r := &process{
		sup: sup, rt: rt, cfg: cfg, log: cfg.Logger, now: cfg.Now, started: time.Now(),
		sole:    rt.Sole(),
		trusted: cfg.Lease - cfg.Lease/10, // a tenth for the handler to hear of it
		base:    context.WithoutCancel(ctx),
		about: store.Process{
			ID: ids.New(), Node: cfg.Node, Host: host, PID: os.Getpid(),
			Since: time.Now().UTC().Truncate(time.Millisecond),
		},
		byInstance: make(map[string]*feed, len(registered)),
	}
	r.io, r.stopIO = context.WithCancel(r.base)
	r.patient, r.giveUp = context.WithCancel(r.base)
	r.relays = newRelays(r.base, rt, &r.silence)
	r.children = newQueues(rt)
	r.outages = loop.Outages{Began: r.failed, Ended: r.recovered, Scope: scope}
	shared := map[string]*pool{}
	for _, reg := range registered {
		p := shared[reg.pool]
		if p == nil {
			p = newPool(r, reg.pool, reg.concurrency, reg.strict)
			r.pools = append(r.pools, p)
			r.about.Pools = append(r.about.Pools, store.Pool{Name: reg.pool, Concurrency: reg.concurrency})
		}
		if reg.pool != "" {
			shared[reg.pool] = p
		}
		f := p.serve(reg)
		r.feeds = append(r.feeds, f)
		r.byInstance[reg.terms.Instance] = f
		r.about.Instances = append(r.about.Instances, reg.terms.Instance)
		listed := &r.about.Pools[slices.Index(r.pools, p)]
		listed.Instances = append(listed.Instances, reg.terms.Instance)
	}
	for instance, all := range sup.entries {
		r.schedulers = append(r.schedulers, newScheduler(r, instance, all))
	}
	return r
}

func (r *process) start() {
	r.events = newStream(r.cfg.OnEvent, r.log)
	r.events.emit(RunStarted{r.sup})
	r.watched.Store(int64(r.trusted))
	r.watcher = r.lapse()
	r.announcer = r.announce()
	for _, p := range r.pools {
		p.start()
	}
	r.listener = r.listen()
	for _, s := range r.schedulers {
		s.start()
	}
}

// failed and recovered tell of the beginning and the end of an outage.
func (r *process) failed(o loop.Outage) {
	r.log.Error("trouble; trying again until it works", "loop", o.Name.Loop, "instance", o.Name.Instance, "err", o.Err)
	r.events.emit(LoopFailed{Loop: o.Name.Loop, Instance: o.Name.Instance, Err: o.Err})
}

func (r *process) recovered(o loop.Outage) {
	after := time.Since(o.Since)
	r.log.Info("the trouble is over", "loop", o.Name.Loop, "instance", o.Name.Instance, "after", after, "failures", o.Failures)
	r.events.emit(LoopRecovered{Loop: o.Name.Loop, Instance: o.Name.Instance, After: after, Failures: o.Failures})
}
