package worker

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/cronspec"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// The scheduler dispatches the ticks of the entries that target one instance. It sleeps until the next of them, and asks now and then
// whether an entry was changed. Nothing is decided by its clock: a call says that these ticks are due, as far as it knows what others
// have decided, and the store checks both.

const (
	refreshEvery = 30 * time.Second // between two looks at what others have changed, by this process' timers
	ahead        = time.Hour        // a tick that is decided is further ahead only if Redis' clock has gone back; as in prelude.lua
	back         = time.Second      // that it has gone back is noticed from this on: less is made up for by waiting
)

type scheduler struct {
	run      *process
	instance string
	lines    []*line // all, by declaration
	due      queueOfLines
	lane     store.Lane
	loop     *loop.Loop

	registered bool
	stale      bool      // what is registered has to be read
	curious    bool      // a line that is disabled would have a tick: whether it still is has to be looked at
	changes    string    // as they were when it was read last
	heard      time.Time // when Redis told its clock last, by Config.Now
	told       time.Time // what it told
	looked     time.Time // when others' changes were looked at last, by this process' timers
	checked    int       // how many of the names have been looked at, in turn
	pending    *request  // whose outcome is not known
}

// line is an entry that this process has declared.
type line struct {
	declared store.Definition
	mine     string // its fingerprint
	state    store.EntryState
	spec     cronspec.Spec
	base     time.Time // the ticks after this are to be decided
	next     time.Time // the next of them, or when to look at it again
	index    int       // in due; -1: it is not there
	removed  bool
	barred   bool      // it can't be registered here: that is tried again with each look
	refused  string    // why it can't be fired, as it was said last; "" if it can
	unmade   bool      // what its jobs are made of was lost
	standing string    // the fingerprint of what stands, as it was said last
	failures int       // in a row: its records can't be written, or its job can't be made
	failed   time.Time // the tick that this was said of last
}

// request is a call of Dispatch.
type request struct {
	lines []*line
	ticks []store.EntryTicks
	dones [][]func(*TickDispatched) // see TickHook; of each decision
	till  time.Time                 // by Redis' clock: later its ticks were missed, and are planned anew
}

func newScheduler(r *process, instance string, all []store.Definition) *scheduler {
	now := r.now()
	s := &scheduler{run: r, instance: instance, stale: true, heard: now, told: now.Round(0)}
	for _, d := range all {
		s.lines = append(s.lines, &line{declared: d, mine: d.Fingerprint(), index: -1})
	}
	return s
}

func (s *scheduler) start() {
	s.loop = loop.Start(s.run.base, loop.Config{
		Name:    loop.Name{Loop: "cron", Instance: s.instance},
		Outages: &s.run.outages,
		Pass:    s.pass,
		// What fails may be what is looked at, and no tick: those are to be decided promptly all the same.
		MaxPause: prompt / 2,
	})
}

// now is Redis' clock, or a little behind it.
func (s *scheduler) now() time.Time { return s.told.Add(s.run.now().Sub(s.heard)) }

// sync takes in what Redis' clock was at some time after a request was sent, by Config.Now.
func (s *scheduler) sync(sent, server time.Time) {
	if server.IsZero() {
		return
	}
	if s.told.Add(sent.Sub(s.heard)).Sub(server) > back {
		s.stale = true // the clock has gone back: when each line is to be asked about has to be thought over
	}
	s.heard, s.told = s.run.now(), server
}

func (s *scheduler) pass(ctx context.Context) (time.Duration, error) {
	var bad error // to register and to look take keys, and memory, that a tick does not: what stands fires all the same
	if !s.registered {
		bad = s.register(ctx, s.lines, false)
		s.registered = bad == nil
	}
	every := s.run.rarely(refreshEvery)
	if s.stale || s.curious || time.Since(s.looked) >= every {
		bad = errors.Join(bad, s.look(ctx))
	}
	if r := s.request(); r != nil {
		bad = errors.Join(bad, s.dispatch(ctx, r))
	}
	if bad != nil {
		return 0, bad
	}
	wait := every - time.Since(s.looked)
	if len(s.due) > 0 {
		wait = min(wait, s.due[0].next.Sub(s.now()))
	}
	if s.stale || s.curious {
		wait = 0
	}
	return max(wait, time.Millisecond), nil
}

// request is the next call: the one whose outcome is not known, or one of all that is due.
func (s *scheduler) request() *request {
	now := s.now()
	if s.pending != nil { // it is answered as it was first; or what is late by now is planned anew
		return s.pending
	}
	r, decisions, size := &request{till: now.Add(prompt)}, 0, 0
	for len(s.due) > 0 && !s.due[0].next.After(now) {
		l := s.due[0]
		if !l.state.Enabled {
			every := s.run.rarely(refreshEvery)
			if l.spec.Next(l.next).Sub(l.next) >= every { // else the next look is soon enough
				s.curious = true
			}
			l.next = l.spec.Next(now.Add(every))
			s.push(l)
			continue
		}
		all := plan(l.spec, &l.state, l.base, now)
		if len(all) == 0 { // the clock has gone back since
			s.reckon(l)
			s.push(l)
			continue
		}
		if decisions > 0 && decisions+len(all) > store.MaxCall {
			break
		}
		if all = fit(all, jobSize(&l.declared.Job), &size); len(all) == 0 {
			break
		}
		decisions += len(all)
		dones := make([]func(*TickDispatched), len(all))
		for i := range all {
			dones[i] = s.announce(l, &all[i])
			id := s.run.rt.JobOfTick(s.instance, l.declared.Key, all[i].Tick)
			all[i].Due = held(all[i].Tick, id, l.state.Jitter)
		}
		heap.Pop(&s.due)
		r.dones = append(r.dones, dones)
		r.lines, r.ticks = append(r.lines, l), append(r.ticks, store.EntryTicks{Entry: l.state, Decisions: all})
	}
	if len(r.lines) == 0 {
		return nil
	}
	s.pending = r
	return r
}

// fit returns as many of the decisions as a call has room for, whose jobs have a size each: at least one of the first. Those that it has no
// room for the store would not take, and each would be sent and told of again and again.
func fit(all []store.Decision, job int, size *int) []store.Decision {
	for i, d := range all {
		if d.Skip != "" {
			continue
		}
		if *size > 0 && *size+job > callWeight {
			return all[:i]
		}
		*size += job
	}
	return all
}

// queueOfLines is a heap: the first is the next to fire.
type queueOfLines []*line

func (q queueOfLines) Len() int           { return len(q) }
func (q queueOfLines) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q queueOfLines) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queueOfLines) Push(x any) {
	l, _ := x.(*line)
	l.index = len(*q)
	*q = append(*q, l)
}

func (q *queueOfLines) Pop() any {
	old := *q
	l := old[len(old)-1]
	l.index = -1
	*q = old[:len(old)-1]
	return l
}
