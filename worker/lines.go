package worker

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/cronspec"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// register registers what lines declare: as the newest, or only where nothing stands.
func (s *scheduler) register(ctx context.Context, lines []*line, missing bool) error {
	for len(lines) > 0 {
		var all []store.Definition
		for size := 0; len(all) < len(lines) && len(all) < store.MaxCall; {
			d := lines[len(all)].declared
			if size += jobSize(&d.Job); size > callWeight && len(all) > 0 {
				break
			}
			all = append(all, d)
		}
		result, about, err := s.run.rt.Register(ctx, s.instance, all, missing)
		if err != nil {
			return err
		}
		for i, l := range lines[:len(all)] {
			switch result[i] {
			case store.Elsewhere:
				l.barred = true
				s.refuse(l, "its key belongs to instance %s", about[i])
				continue
			case store.Barred:
				l.barred = true
				s.refuse(l, "%s", about[i])
				continue
			case store.Removed:
				l.removed, l.barred = true, false
				s.drop(l)
				continue
			case store.Registered, store.Changed, store.Retimed:
				s.stale = true
			}
			if l.barred {
				l.barred, s.stale = false, true
			}
		}
		lines = lines[len(all):]
	}
	return nil
}

// look reads the entries if others have changed any, and looks after the names of some.
func (s *scheduler) look(ctx context.Context) error {
	sent := s.run.now()
	read, err := s.run.rt.Entries(ctx, s.instance, s.changes, nil)
	if err != nil {
		return err
	}
	s.sync(sent, read.Now)
	if s.stale || read.Changes != s.changes {
		if err := s.load(ctx); err != nil {
			return err
		}
	}
	var barred, own []*line
	for _, l := range s.lines {
		switch {
		case l.barred:
			barred = append(barred, l)
		case !l.removed:
			own = append(own, l)
		}
	}
	// Others may have registered another definition since these were barred: that stands.
	if err := errors.Join(s.register(ctx, barred, true), s.checkNames(ctx, own)); err != nil {
		return err
	}
	s.looked, s.curious = time.Now(), false
	return nil
}

// namesAtOnce is how many names a look checks. They come in turn.
const namesAtOnce = 100

// checkNames notes again which entries are this instance's where that was lost, and gives up those that another instance has got since.
func (s *scheduler) checkNames(ctx context.Context, own []*line) error {
	if s.checked >= len(own) {
		s.checked = 0
	}
	some := own[s.checked:min(s.checked+namesAtOnce, len(own))]
	keys := make([]string, len(some))
	for i, l := range some {
		keys[i] = l.declared.Key
	}
	holders, err := s.run.rt.Owners(ctx, keys)
	if err != nil {
		return err
	}
	var lost []*line
	for i, l := range some {
		switch holders[i] {
		case s.instance:
		case "":
			lost = append(lost, l)
		default:
			l.barred = true
			s.refuse(l, "its key belongs to instance %s", holders[i])
		}
	}
	s.checked += len(some)
	return s.register(ctx, lost, true)
}

// load reads how the lines are registered. What is not there was removed or lost: the store knows which.
func (s *scheduler) load(ctx context.Context) error {
	for again := range 2 {
		lost, changes, err := s.read(ctx)
		if err != nil {
			return err
		}
		if len(lost) > 0 {
			if err := s.register(ctx, lost, true); err != nil {
				return err
			}
		}
		for _, l := range lost {
			if again == 1 && !l.removed && !l.barred {
				s.refuse(l, "what stands of it can't be read here")
			}
		}
		if s.changes = changes; len(lost) == 0 {
			break
		}
	}
	s.stale = false
	return nil
}

// read takes in the state of all lines, and returns those that there is none of. What was removed may be back.
func (s *scheduler) read(ctx context.Context) (lost []*line, changes string, err error) {
	var lines []*line
	for _, l := range s.lines {
		if !l.barred {
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
		sent := s.run.now()
		got, err := s.run.rt.Entries(ctx, s.instance, "", keys)
		if err != nil {
			return nil, "", err
		}
		s.sync(sent, got.Now)
		if first { // what changes after this is seen with the next look
			changes = got.Changes
		}
		for i, l := range some {
			if i >= len(got.Entries) || got.Entries[i].Missing || l.unmade {
				if l.unmade = false; !l.removed {
					lost = append(lost, l)
				}
				continue
			}
			l.removed = false
			s.adopt(l, got.Entries[i])
		}
		lines = lines[len(some):]
	}
	return lost, changes, nil
}

// adopt makes a line fire by what stands.
func (s *scheduler) adopt(l *line, state store.EntryState) {
	if s.registered && state.Fingerprint != l.mine && l.standing != state.Fingerprint {
		s.run.log.Warn("another process has registered another definition of an entry", "entry", l.declared.Key, "instance", s.instance,
			"spec", state.Spec, "zone", state.Zone)
		s.run.events.emit(EntryReplaced{Entry: l.declared.Key, Instance: s.instance, Spec: state.Spec, Zone: state.Zone})
	}
	l.standing = state.Fingerprint
	if l.spec == (cronspec.Spec{}) || state.Spec != l.state.Spec || state.Zone != l.state.Zone {
		zone, err := cronspec.Zone(state.Zone)
		spec, wrong := cronspec.Parse(state.Spec, zone)
		if err = cmp.Or(err, wrong); err != nil {
			s.refuse(l, "what stands of it can't be read here: %w", err)
			return
		}
		l.spec = spec
	}
	l.state, l.refused = state, ""
	if s.pending != nil && slices.Contains(s.pending.lines, l) {
		return // it is put back with the answer
	}
	s.reckon(l)
	if l.failures > 0 { // what could not be dispatched is put off, whatever else has changed
		if later := s.now().Add(loop.Pause(l.failures, loop.MaxPause)); !l.next.IsZero() && l.next.Before(later) {
			l.next = later
		}
	}
	s.push(l)
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
