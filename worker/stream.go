package worker

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

const (
	maxEvents = 8192 // wait for the listener at most

	// After many at a time the listener is left alone for a lull. It is short beside the time in which the queue could fill up.
	many = 32
	lull = 2 * time.Millisecond
)

// stream hands events to the listener, one at a time, without ever holding up who emits them. A nil stream drops all.
type stream struct {
	listen func(Event)
	log    *slog.Logger
	keeper *keeper

	mu      sync.Mutex
	ready   sync.Cond
	ring    [maxEvents]Event
	first   int // the oldest in the ring
	count   int
	dropped int   // since the newest in the ring
	last    Event // it has a place of its own, so that it is never dropped; nil before close, and when it has been taken
	closed  bool

	// The listener's goroutine only.
	batch      [1024]Event // taken from the queue together, which costs less than one by one
	taken      int         // how many that were
	told       int         // how many of them the listener has been told of
	complained bool        // of the listener's panic
}

func newStream(listen func(Event), log *slog.Logger) *stream {
	if listen == nil {
		return nil
	}
	s := &stream{listen: listen, log: log}
	s.ready.L = &s.mu
	s.keeper = keep(s.deliver, func() bool { s.complain(ErrGoexit); return true })
	return s
}

// emit puts events in the queue. Callers ask wanted first where making the event costs something.
func (s *stream) emit(events ...Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		s.emitLocked(e)
	}
}

func (s *stream) emitLocked(e Event) {
	if s.dropped > 0 && s.count < maxEvents {
		s.pushLocked(EventsDropped{s.dropped}) // it stands where they are missing
		s.dropped = 0
	}
	if s.count == maxEvents || s.closed {
		s.dropped++
		return
	}
	s.pushLocked(e)
}

func (s *stream) wanted() bool { return s != nil }

func (s *stream) pushLocked(e Event) {
	s.ring[(s.first+s.count)%maxEvents] = e
	s.count++
	s.ready.Signal()
}

// deliver calls the listener with the next event. It returns false when there will be none.
func (s *stream) deliver() bool {
	if s.told == s.taken {
		s.gather()
		if s.told, s.taken = 0, s.take(); s.taken == 0 {
			return false
		}
	}
	e := s.batch[s.told]
	s.batch[s.told] = nil
	s.told++
	if err := s.call(e); err != nil {
		s.complain(err)
	}
	return true
}

// gather lets events come together, as to be woken for each costs more than the event does: where there were many just now more will come.
func (s *stream) gather() {
	if s.taken < many {
		runtime.Gosched() // to who is about to emit
	} else {
		time.Sleep(lull)
	}
}

func (s *stream) call(e Event) (err error) {
	defer recovered(&err)
	s.listen(e)
	return nil
}

// take waits for events and takes some; none when the last has been taken.
func (s *stream) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.count == 0 && s.dropped == 0 && !s.closed {
		s.ready.Wait()
	}
	n := 0
	for ; s.count > 0 && n < len(s.batch); n++ {
		s.batch[n] = s.ring[s.first]
		s.ring[s.first] = nil
		s.first = (s.first + 1) % maxEvents
		s.count--
	}
	switch {
	case n > 0 || s.closed && s.last == nil:
	case s.dropped > 0:
		s.batch[0], n = EventsDropped{s.dropped}, 1
		s.dropped = 0
	default:
		s.batch[0], n = s.last, 1
		s.last = nil
	}
	return n
}

// complain tells, once, that the listener fails: it can hardly be told by an event.
func (s *stream) complain(err error) {
	if s.complained {
		return
	}
	s.complained = true
	attrs := []any{"err", err}
	if p, ok := errors.AsType[*PanicError](err); ok {
		attrs = append(attrs, "stack", string(p.Stack))
	}
	s.log.Error("the listener to events fails; it goes on with the next event, this is said once", attrs...)
}

// close delivers what is queued, and then the last event, and ends the listener's goroutine. It waits no longer than the patience.
func (s *stream) close(last Event, patience time.Duration) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.last, s.closed = last, true
	s.ready.Signal()
	s.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.keeper.done:
		return nil
	case <-timer.C:
		return ErrListener
	}
}
