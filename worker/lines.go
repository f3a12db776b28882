package worker

import (
	"container/heap"
	"context"

	"github.com/stint-go/stint/internal/cronspec"
	"github.com/stint-go/stint/store"
)

// register registers what lines declare: as the newest, or only where nothing stands.
func (s *scheduler) register(ctx context.Context, lines []*line, missing bool) error {
	for len(lines) > 0 {
		var all []store.Definition
		for size := 0; len(all) < len(lines) && len(all) < store.MaxCall; {
			d := lines[len(all)].declared
			if size += jobSize(&d.Job); size > registerSize && len(all) > 0 {
				break
			}
			all = append(all, d)
		}
		result, holders, err := s.run.rt.Register(ctx, s.instance, all, missing)
		if err != nil {
			return err
		}
		for i, l := range lines[:len(all)] {
			switch result[i] {
			case store.Elsewhere:
				l.foreign = true
				s.refuse(l, "its key belongs to instance %s", holders[i])
				continue
			case store.Removed:
				l.removed = true
				s.drop(l)
				continue
			case store.Registered, store.Changed, store.Retimed:
				s.stale = true
			}
			if l.foreign {
				l.foreign, s.stale = false, true
			}
		}
		lines = lines[len(all):]
	}
	return nil
}

// load reads how the lines are registered. What is not there was removed or lost: the store knows which.
func (s *scheduler) load(ctx context.Context) error {
	for range 2 {
		lost, changes, err := s.read(ctx)
		if err != nil {
			return err
		}
		if len(lost) > 0 {
			if err := s.register(ctx, lost, true); err != nil {
				return err
			}
		}
		if s.changes = changes; len(lost) == 0 {
			break
		}
	}
	s.stale = false
	return nil
}

// read takes in the state of all lines, and returns those that there is none of.
func (s *scheduler) read(ctx context.Context) (lost []*line, changes string, err error) {
	var lines []*line
	for _, l := range s.lines {
		if !l.removed && !l.foreign {
			lines = append(lines, l)
		}
	}
	changes = s.changes
	for first := true; len(lines) > 0; first = false {
		some := lines[:min(len(lines), store.MaxCall)]
		keys := make([]string, len(some))
		for i, l := range some {
			keys[i] = l.declared.Key
		}
		got, err := s.run.rt.Entries(ctx, s.instance, "", keys)
		if err != nil {
			return nil, "", err
		}
		s.sync(got.Now)
		if first { // what changes after this is seen with the next look
			changes = got.Changes
		}
		for i, l := range some {
			if i >= len(got.Entries) || got.Entries[i].Missing {
				lost = append(lost, l)
				continue
			}
			s.adopt(l, got.Entries[i])
		}
		lines = lines[len(some):]
	}
	return lost, changes, nil
}

// adopt makes a line fire by what stands.
func (s *scheduler) adopt(l *line, state store.EntryState) {
	if state.Fingerprint != l.mine && l.standing != state.Fingerprint {
		s.run.log.Warn("another process has registered another definition of an entry", "entry", l.declared.Key, "instance", s.instance,
			"spec", state.Spec, "zone", state.Zone)
		s.run.events.emit(EntryReplaced{Entry: l.declared.Key, Instance: s.instance, Spec: state.Spec, Zone: state.Zone})
	}
	l.standing = state.Fingerprint
	zone, err := cronspec.Zone(state.Zone)
	if err == nil {
		l.spec, err = cronspec.Parse(state.Spec, zone)
	}
	if err != nil {
		s.refuse(l, "what stands of it can't be read here: %w", err)
		return
	}
	l.state, l.refused = state, ""
	if s.asked(l) {
		return // it is put back with the answer
	}
	l.next = l.spec.Next(state.Decided)
	if !state.Enabled {
		l.next = l.spec.Next(s.now())
	}
	s.push(l)
}

// asked reports whether a request about the line is on its way.
func (s *scheduler) asked(l *line) bool {
	if s.pending == nil {
		return false
	}
	for _, other := range s.pending.lines {
		if other == l {
			return true
		}
	}
	return false
}

// push puts a line where its next tick says, or takes it out if there is none.
func (s *scheduler) push(l *line) {
	switch {
	case l.removed || l.refused != "" || l.next.IsZero():
		s.drop(l)
	case l.index >= 0:
		heap.Fix(&s.due, l.index)
	default:
		heap.Push(&s.due, l)
	}
}

func (s *scheduler) drop(l *line) {
	if l.index >= 0 {
		heap.Remove(&s.due, l.index)
	}
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
