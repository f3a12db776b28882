package worker

import (
	"time"

	"github.com/stint-go/stint/internal/loop"
)

// Phase is where the Run of a supervisor stands.
type Phase string

// The phases in their order.
const (
	Idle     Phase = "idle"     // Run has not been called
	Running  Phase = "running"  // jobs are claimed
	Draining Phase = "draining" // Run's context has ended; what runs is finished
	Stopped  Phase = "stopped"  // Run has returned, at once if it has refused, or is about to
)

// Status is a moment of a supervisor.
type Status struct {
	Phase Phase
	// Reachable: Redis has answered since Run began, and nothing has failed for the want of it since it last did. A connection that
	// dies in silence shows after some 10 s. A Redis that refuses ticks or children, as a full one does, is within reach; so is one
	// beside which another instance's server is away.
	Reachable bool
	// Behind is for how long the loop that lags most, which Loop names, has been at one pass or late for one: a call to Redis
	// that is not answered, or a loop that has come to a halt.
	Behind time.Duration
	Loop   string
	Pools  []PoolStatus // in the order of registration; none before Run and after it
}

// PoolStatus is a moment of a pool.
type PoolStatus struct {
	Name      string // empty for the pool that a handler without In has for itself
	Instances []string
	Workers   int
	Busy      int // those that hold a job
}

// unanswered is for how long a loop may be at one pass before Redis is taken to be out of reach: the subscription listens for
// up to 5 s at a time.
const unanswered = 2 * poll

// Status tells how the supervisor is. It does no I/O.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	st, p := Status{Phase: s.phase}, s.process
	s.mu.Unlock()
	if p == nil {
		return st
	}
	for name, l := range p.loops() {
		if behind := l.Behind(); behind > st.Behind {
			st.Behind, st.Loop = behind, name
		}
	}
	st.Reachable = p.listed.Load() && !p.outages.Open("") && st.Behind < unanswered
	for _, one := range p.pools {
		st.Pools = append(st.Pools, one.status())
	}
	return st
}

func (s *Supervisor) enter(phase Phase, p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.process = phase, p
}

// loops are those that turn while jobs are claimed or run, by their names.
func (r *process) loops() map[string]*loop.Loop {
	all := map[string]*loop.Loop{}
	add := func(l *loop.Loop) {
		name := l.Name.Loop
		if l.Name.Instance != "" {
			name += " of " + l.Name.Instance
		}
		all[name] = l
	}
	add(r.announcer)
	add(r.listener)
	add(r.watcher)
	for _, f := range r.feeds {
		add(f.beats)
		add(f.reaper)
		add(f.sweeper)
	}
	for _, s := range r.schedulers {
		add(s.loop)
	}
	return all
}

func (p *pool) status() PoolStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := PoolStatus{Name: p.name, Workers: len(p.slots)}
	for _, f := range p.feeds {
		st.Instances = append(st.Instances, f.terms.Instance)
	}
	for _, s := range p.slots {
		if s.at != nil {
			st.Busy++
		}
	}
	return st
}
