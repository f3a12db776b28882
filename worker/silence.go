package worker

import (
	"errors"
	"sync"
	"time"
)

// How silence is taken.
const (
	silentFrom = time.Second      // a failure that took less has held nobody up
	silentFor  = 10 * time.Second // between two questions to an instance that was silent
)

// errSilent: an instance was not asked, since it has just kept somebody waiting for nothing.
var errSilent = errors.New("its server does not answer")

// silence keeps in mind which instances of parents and children are on a server that is away, so that who needs something of one does not
// wait for it after all the others: one asks, every now and then, and the rest goes on at once. What they leave undone is the sweeper's. The
// zero value knows of none.
type silence struct {
	mu    sync.Mutex
	again map[string]time.Time // of those that were silent: when to ask again
}

// ask calls f, which makes a request to an instance, and returns as it does; or errSilent, without calling it.
func (s *silence) ask(instance string, f func() error) error {
	if !s.turn(instance) {
		return errSilent
	}
	began := time.Now()
	err := f()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err == nil || now.Sub(began) < silentFrom {
		delete(s.again, instance)
		return err
	}
	if s.again == nil {
		s.again = map[string]time.Time{}
	}
	s.again[instance] = now.Add(silentFor)
	return err
}

// turn reports whether to ask. Of those who come once it is time again only the first is to.
func (s *silence) turn(instance string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	again, silent := s.again[instance]
	if !silent {
		return true
	}
	now := time.Now()
	if now.Before(again) {
		return false
	}
	s.again[instance] = now.Add(silentFor)
	return true
}
