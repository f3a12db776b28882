package worker

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/cronspec"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// The scheduler dispatches the ticks of the entries that target one instance. It sleeps until the next of them, and asks now and then
// whether an entry was changed. Nothing is decided by its clock: a call says that these ticks are due, as far as it knows what others
// have decided, and the store checks both.

const (
	refreshEvery = 30 * time.Second // between two looks at what others have changed
	settleFor    = 30 * time.Second // a request whose reply was lost is made again for so long; then it is made anew
	registerSize = 1 << 20          // bytes, about, of the jobs in one call
)

type scheduler struct {
	run      *process
	instance string
	lines    []*line // all, by declaration
	byKey    map[string]*line
	due      queueOfLines
	lane     store.Lane
	loop     *loop.Loop

	registered bool
	stale      bool      // what is registered has to be read
	changes    string    // as they were when it was read last
	heard      time.Time // when Redis told its clock last, by Config.Now
	told       time.Time // what it told
	refresh    time.Time // by Redis' clock
	pending    *request  // whose outcome is not known
}

// line is an entry that this process has declared.
type line struct {
	declared store.Definition
	mine     string // its fingerprint
	state    store.EntryState
	spec     cronspec.Spec
	next     time.Time // the next tick, or when to look at it again
	index    int       // in due; -1: it is not there
	removed  bool
	refused  string // why it can't be fired, as it was said last; "" if it can
	foreign  bool   // its key belongs to another instance
	standing string // the fingerprint of what stands, as it was said last
}

// request is a call of Dispatch.
type request struct {
	lines []*line
	ticks []store.EntryTicks
	dones [][]func(*TickDispatched) // see TickHook; of each decision
	since time.Time
}

func newScheduler(r *process, instance string, all []store.Definition) *scheduler {
	now := r.now()
	s := &scheduler{run: r, instance: instance, byKey: map[string]*line{}, stale: true, heard: now, told: now.Round(0)}
	for _, d := range all {
		l := &line{declared: d, mine: d.Fingerprint(), index: -1}
		s.lines, s.byKey[d.Key] = append(s.lines, l), l
	}
	return s
}

func (s *scheduler) start() {
	s.loop = loop.Start(s.run.base, loop.Config{
		Name:    loop.Name{Loop: "cron", Instance: s.instance},
		Outages: &s.run.outages,
		Pass:    s.pass,
	})
}

// now is Redis' clock, or a little behind it.
func (s *scheduler) now() time.Time { return s.told.Add(s.run.now().Sub(s.heard)) }

func (s *scheduler) sync(server time.Time) {
	if !server.IsZero() {
		s.heard, s.told = s.run.now(), server
	}
}

func (s *scheduler) pass(ctx context.Context) (time.Duration, error) {
	if !s.registered {
		if err := s.register(ctx, s.lines, false); err != nil {
			return 0, err
		}
		s.registered = true
	}
	if s.stale || !s.now().Before(s.refresh) {
		if err := s.look(ctx); err != nil {
			return 0, err
		}
	}
	if r := s.request(); r != nil {
		if err := s.dispatch(ctx, r); err != nil {
			return 0, err
		}
	}
	wait := s.refresh.Sub(s.now())
	if len(s.due) > 0 {
		wait = min(wait, s.due[0].next.Sub(s.now()))
	}
	if s.stale {
		wait = 0
	}
	return max(wait, time.Millisecond), nil
}

// request is the next call: the one whose outcome is not known, or one of all that is due.
func (s *scheduler) request() *request {
	now := s.now()
	if p := s.pending; p != nil {
		if age := time.Since(p.since); age < settleFor {
			return p
		}
		s.lane.Abandon() // if it was carried out after all the store knows
		s.pending = nil
		s.giveUp(p)
	}
	r, decisions := &request{since: time.Now()}, 0
	for len(s.due) > 0 && !s.due[0].next.After(now) {
		l := s.due[0]
		all := l.plan(now)
		if len(all) == 0 { // it was a time to look at it again
			l.next = l.spec.Next(now)
			s.push(l)
			continue
		}
		if decisions > 0 && decisions+len(all) > store.MaxCall {
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

func (s *scheduler) dispatch(ctx context.Context, r *request) error {
	answers, now, err := s.run.rt.Dispatch(ctx, &s.lane, s.instance, s.run.cfg.Node, r.ticks)
	s.sync(now)
	if err != nil {
		return errors.Join(err, s.undispatched(ctx, r, err))
	}
	s.pending = nil
	for i, l := range r.lines {
		s.answer(l, r.ticks[i].Decisions, r.dones[i], answers[i], now)
	}
	return nil
}

// answer takes in what became of the ticks of a line, and puts it back to wait for its next.
func (s *scheduler) answer(l *line, asked []store.Decision, dones []func(*TickDispatched), a store.TickAnswer, now time.Time) {
	var from time.Time
	switch a.Verdict {
	case store.Absent, store.Altered:
		s.stale, from = true, now
	case store.Disabled:
		l.state.Enabled, from = false, now
	default:
		l.state.Enabled, l.state.Decided, l.state.Last, from = true, a.Latest, a.Last, a.Latest
	}
	l.next = l.spec.Next(from)
	s.push(l)
	for i, outcome := range a.Outcomes {
		d := asked[min(i, len(asked)-1)]
		switch outcome {
		case store.TickDispatched:
			e := s.tell(l, d, a.DecidedAt, store.StatusDispatched, "")
			s.report(dones[min(i, len(asked)-1)], &e)
			dones[min(i, len(asked)-1)] = nil
		case store.TickSkipped:
			s.tell(l, d, a.DecidedAt, store.StatusSkipped, d.Skip)
		case store.TickOverlap:
			s.tell(l, d, a.DecidedAt, store.StatusSkipped, store.ReasonOverlap)
		}
	}
	for _, done := range dones {
		s.report(done, nil)
	}
}

// tell says what has become of a tick.
func (s *scheduler) tell(l *line, d store.Decision, when time.Time, status, reason string) TickDispatched {
	zone := l.spec.Zone()
	e := TickDispatched{Entry: l.declared.Key, Instance: s.instance, At: d.Tick.In(zone), First: cmp.Or(d.First, d.Tick).In(zone),
		DispatchedAt: when, Late: when.Sub(d.Tick), Status: status, Reason: reason, Node: s.run.cfg.Node}
	if status == store.StatusDispatched {
		e.Job = s.run.rt.JobOfTick(s.instance, e.Entry, d.Tick)
	}
	s.run.events.emit(e)
	return e
}

// giveUp gives up a request: its ticks are asked for anew.
func (s *scheduler) giveUp(r *request) {
	for i, l := range r.lines {
		s.push(l)
		for _, done := range r.dones[i] {
			s.report(done, nil)
		}
	}
}

// undispatched notes which ticks the server has refused to take.
func (s *scheduler) undispatched(ctx context.Context, r *request, why error) error {
	var few *store.ReplicasError
	if !errors.Is(why, store.ErrServer) || errors.As(why, &few) {
		return nil // nobody knows what became of them, or there is nobody to note it
	}
	s.lane.Abandon() // nothing was decided: what is due then is asked for anew
	s.pending = nil
	ticks := map[string]time.Time{}
	for i, l := range r.lines {
		for _, d := range r.ticks[i].Decisions {
			if d.Skip == "" {
				ticks[l.declared.Key] = d.Tick
			}
		}
	}
	s.giveUp(r)
	if len(ticks) == 0 {
		return nil
	}
	first, now, err := s.run.rt.Undispatched(ctx, s.instance, s.run.cfg.Node, why.Error(), ticks)
	for key, tick := range ticks {
		if first[key] {
			s.tell(s.byKey[key], store.Decision{Tick: tick}, now, store.StatusFailed, why.Error())
		}
	}
	return err
}

// look reads the entries if others have changed any.
func (s *scheduler) look(ctx context.Context) error {
	read, err := s.run.rt.Entries(ctx, s.instance, s.changes, nil)
	if err != nil {
		return err
	}
	s.sync(read.Now)
	if s.stale || read.Changes != s.changes {
		if err := s.load(ctx); err != nil {
			return err
		}
	}
	var foreign, own []*line
	for _, l := range s.lines {
		switch {
		case l.foreign:
			foreign = append(foreign, l)
		case !l.removed:
			own = append(own, l)
		}
	}
	if err := s.register(ctx, foreign, false); err != nil {
		return err
	}
	if len(own) > 0 { // one stands for all
		there, err := s.run.rt.Owned(ctx, own[0].declared.Key)
		if err == nil && !there {
			err = s.register(ctx, own, true)
		}
		if err != nil {
			return err
		}
	}
	s.refresh = s.now().Add(s.run.rarely(refreshEvery))
	return nil
}

// refuse notes, once, why a line can't be fired.
func (s *scheduler) refuse(l *line, format string, a ...any) {
	err := fmt.Errorf(format, a...)
	s.drop(l)
	if l.refused == err.Error() {
		return
	}
	l.refused = err.Error()
	s.run.log.Error("an entry is not fired by this process", "entry", l.declared.Key, "instance", s.instance, "err", err)
	s.run.events.emit(EntryRefused{Entry: l.declared.Key, Instance: s.instance, Err: err})
}
