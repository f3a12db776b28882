package worker

import (
	"slices"
	"sync"
)

// suspicion sees to it that the process runs one job at a time that is suspected of crashing it, whatever instance it is of:
// that its instance runs no other is the store's to see to. So a feed asks for suspects only with the leave that it has of
// here, which one has at a time. Who learns without it that there are some stands in line for it.
type suspicion struct {
	mu     sync.Mutex
	holder *feed   // who has the leave; nil: nobody
	asks   int     // its requests with it that are unanswered
	held   int     // suspects that it runs
	line   []*feed // who has to wait for it
}

// ask reports whether a request of f may bring a suspect.
func (s *suspicion) ask(f *feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != f {
		return false
	}
	s.asks++
	return true
}

// answered notes what a request of f, with the leave or without, has brought: suspects that run now, suspects whose ends are known
// now, and whether there are more. It returns who is to ask for some, if that should be at once.
func (s *suspicion) answered(f *feed, leave bool, brought, ended int, more bool) (next *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leave {
		s.asks--
	}
	if s.holder == f {
		s.held += brought - ended
		f.vain = leave && more && brought == 0 // a limit, for example
		used := leave || ended > 0
		if s.asks > 0 || s.held > 0 || more && (len(s.line) == 0 || !used) {
			return nil
		}
		s.holder = nil
	} else {
		f.vain = false
	}
	if more && !slices.Contains(s.line, f) {
		s.line = append(s.line, f)
	}
	if s.holder != nil || len(s.line) == 0 {
		return nil
	}
	s.holder, s.line = s.line[0], s.line[1:]
	if s.holder.vain { // it has just tried; it has the leave when it tries again
		return nil
	}
	return s.holder
}
