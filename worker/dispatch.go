package worker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// What the store answers a scheduler that asks for ticks to be decided.

func (s *scheduler) dispatch(ctx context.Context, r *request) error {
	sent := s.run.now()
	answers, now, err := s.run.rt.Dispatch(ctx, &s.lane, s.instance, s.run.cfg.Node, r.ticks)
	s.sync(sent, now)
	if err != nil {
		for i := range r.ticks { // if it is made again, and was not carried out
			r.ticks[i].Till = r.till
		}
		return errors.Join(err, s.undispatched(ctx, r, err))
	}
	s.pending = nil
	for i, l := range r.lines {
		s.answer(l, r.ticks[i], r.dones[i], answers[i])
		s.reportNone(r.dones[i])
	}
	return nil
}

// answer takes in what became of the ticks of a line, and puts it back to wait for its next; or leaves it out until it has been read again.
func (s *scheduler) answer(l *line, asked store.EntryTicks, dones []func(*TickDispatched), a store.TickAnswer) {
	switch a.Verdict {
	case store.Spoilt:
		s.spoilt(l, asked.Latest(), a)
		return
	case store.Absent, store.Altered:
		s.stale = true
		return
	case store.Disabled: // if this is what was answered long ago it may be enabled by now
		s.stale = true
		l.state.Enabled, l.next = false, l.spec.Next(s.now().Add(s.run.rarely(refreshEvery)))
	case store.Unmade:
		l.failures++
		l.unmade, s.stale = true, true
		l.state.Decided, l.state.Last = a.Latest, a.Last
	default:
		l.state.Decided, l.state.Last, l.failures = a.Latest, a.Last, 0
		s.reckon(l)
	}
	s.tellAll(l, asked.Decisions, dones, a)
	if !l.unmade {
		s.push(l)
	}
}

// reckon says from when on the ticks of a line are to be decided, and when to ask for the next.
func (s *scheduler) reckon(l *line) {
	now := s.now()
	switch decided := l.state.Decided; {
	case !decided.After(now.Add(ahead)):
		l.base = decided
	case l.base.IsZero() || l.base.After(now): // Redis' clock has gone back, and so far that nobody waits for it
		l.base = now
	}
	l.next = l.spec.Next(l.base)
	if !l.state.Enabled {
		l.next = l.spec.Next(now)
	}
}

func (s *scheduler) tellAll(l *line, asked []store.Decision, dones []func(*TickDispatched), a store.TickAnswer) {
	for i, outcome := range a.Outcomes[:min(len(a.Outcomes), len(asked))] {
		switch d := asked[i]; outcome {
		case store.TickDispatched:
			e := s.tell(l, d, a.DecidedAt, store.StatusDispatched, "")
			s.report(dones[i], &e)
			dones[i] = nil
		case store.TickSkipped:
			s.tell(l, d, a.DecidedAt, store.StatusSkipped, d.Skip)
		case store.TickOverlap:
			s.tell(l, d, a.DecidedAt, store.StatusSkipped, store.ReasonOverlap)
		case store.TickFailed:
			s.tell(l, d, a.DecidedAt, store.StatusFailed, store.ReasonUnmade)
		}
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

// spoilt puts a line off whose records can't be written, for their key is foreign. That there can be no record of it is said of each tick.
func (s *scheduler) spoilt(l *line, latest store.Decision, a store.TickAnswer) {
	if l.failures++; l.failures == 1 {
		s.run.log.Error("the ticks of an entry can't be dispatched; trying again until they can", "entry", l.declared.Key, "instance", s.instance, "err", a.Err)
	}
	if !latest.Tick.IsZero() && !latest.Tick.Equal(l.failed) {
		l.failed = latest.Tick
		s.tell(l, latest, a.DecidedAt, store.StatusFailed, a.Err.Error())
	}
	l.next = s.now().Add(loop.Pause(l.failures, loop.MaxPause))
	s.push(l)
}

// undispatched notes which ticks the server has refused to take.
func (s *scheduler) undispatched(ctx context.Context, r *request, why error) error {
	var few *store.ReplicasError
	if !errors.Is(why, store.ErrServer) || errors.As(why, &few) {
		return nil // nobody knows what became of them, or there is nobody to note it
	}
	s.lane.Abandon() // nothing was decided: what is due then is asked for anew
	s.pending = nil
	for i, l := range r.lines {
		s.reckon(l) // the clock may have gone back meanwhile
		s.push(l)
		s.reportNone(r.dones[i])
	}
	first, now, err := s.run.rt.Undispatched(ctx, s.instance, s.run.cfg.Node, why.Error(), r.ticks)
	for i, l := range r.lines {
		if first[i] {
			s.tell(l, r.ticks[i].Latest(), now, store.StatusFailed, why.Error())
		}
	}
	return err
}
