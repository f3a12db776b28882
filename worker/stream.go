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

	// After many at a time the listener is left alone for a lull, unless it does not keep up. A process at full speed fills the queue in
	// 30 ms.
	many = 32
	lull = 5 * time.Millisecond

	some = 16 // events that the listener is told of before others may run
)

// stream hands events to the listener, one at a time, without ever holding up who emits them. A nil stream drops all.
type stream struct {
	listen  func(Event)
	log     *slog.Logger
	keeper  *keeper
	closing chan struct{} // closed with the stream

	mu      sync.Mutex
	ready   sync.Cond
	queue   []Event
	taken   int   // how many were taken out of it that the listener has not been told of
	dropped int   // since the newest in the queue
	last    Event // it has a place of its own, so that it is never dropped; nil before close, and when it has been taken
	closed  bool

	// The listener's goroutine only.
	batch      []Event // taken from the queue together, which costs less than one by one
	told       int     // how many of them the listener has been told of
	pressed    bool    // for time: it does not give way
	complained bool    // of the listener's panic
}

func newStream(listen func(Event), log *slog.Logger) *stream {
	if listen == nil {
		return nil
	}
	s := &stream{listen: listen, log: log, closing: make(chan struct{})}
	s.ready.L = &s.mu
	s.keeper = keep(s.deliver, func() bool { s.complain(ErrGoexit); return true })
	return s
}

// emit puts events in the queue. Callers ask wanted first where making the event costs something.
func (s *stream) emit(events ...Event) {
	if s == nil || len(events) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // who still emits was given up
		return
	}
	for _, e := range events {
		if s.dropped > 0 && s.roomLocked() {
			s.queue = append(s.queue, EventsDropped{s.dropped}) // it stands where they are missing
			s.dropped = 0
		}
		if s.roomLocked() {
			s.queue = append(s.queue, e)
		} else {
			s.dropped++
		}
	}
	s.ready.Signal()
}

func (s *stream) roomLocked() bool { return len(s.queue)+s.taken < maxEvents }

func (s *stream) wanted() bool { return s != nil }

// deliver calls the listener with the next events. It returns false when there will be none.
func (s *stream) deliver() bool {
	if s.told == len(s.batch) {
		s.gather()
		if !s.take() {
			return false
		}
	}
	if err := s.tell(); err != nil {
		s.complain(err)
	}
	s.mu.Lock()
	s.taken = len(s.batch) - s.told
	s.mu.Unlock()
	s.giveWay()
	return true
}

// giveWay lets others run before the listener is told of more: they do the work that the events tell of. Beside handlers that compute that
// takes as long as these do; then it is not done again until all that was taken is told.
func (s *stream) giveWay() {
	if s.pressed {
		return
	}
	began := time.Now()
	runtime.Gosched()
	s.pressed = time.Since(began) > time.Millisecond
}

// tell calls the listener with some events, up to one that it fails for.
func (s *stream) tell() (err error) {
	defer recovered(&err)
	for range min(some, len(s.batch)-s.told) {
		e := s.batch[s.told]
		s.batch[s.told] = nil
		s.told++
		s.listen(e)
	}
	return nil
}

// gather lets events come together, as to be woken for each costs more than the event does: where there were many just now more will come.
func (s *stream) gather() {
	switch n := len(s.batch); {
	case n < many:
		runtime.Gosched() // to who is about to emit
	case n < maxEvents/4:
		select {
		case <-time.After(lull):
		case <-s.closing:
		}
	}
}

// take waits for events and takes all that there are. It returns false when the last has been taken.
func (s *stream) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && s.dropped == 0 && !s.closed {
		s.ready.Wait()
	}
	s.batch, s.queue, s.told, s.pressed = s.queue, s.batch[:0], 0, false
	switch {
	case len(s.batch) > 0:
	case s.dropped > 0:
		s.batch = append(s.batch, EventsDropped{s.dropped})
		s.dropped = 0
	case s.last != nil:
		s.batch = append(s.batch, s.last)
		s.last = nil
	}
	s.taken = len(s.batch)
	return s.taken > 0
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
	close(s.closing)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.keeper.done:
		return nil
	case <-timer.C:
		return ErrListener
	}
}
