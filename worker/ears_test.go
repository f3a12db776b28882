package worker_test

import (
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/stint-go/stint/worker"
)

// These listen to what a supervisor says: its events, and the lines of its log.

// eventLog keeps events in their order.
type eventLog struct {
	mu  sync.Mutex
	all []worker.Event
}

func (l *eventLog) add(e worker.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *eventLog) list() []worker.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// of returns the events of one type.
func of[E worker.Event](l *eventLog) []E {
	var some []E
	for _, e := range l.list() {
		if e, ok := e.(E); ok {
			some = append(some, e)
		}
	}
	return some
}

// lines is a log in memory.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// count is how many lines contain text.
func (l *lines) count(text string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
