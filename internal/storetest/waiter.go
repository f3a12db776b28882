package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// waiter is a process that has asked for work in vain and listens.
type waiter struct {
	process uuid.UUID
	ear     *ear
}

// listeners returns n processes that listen but have not asked for work.
func (e *Env) listeners(t *testing.T, n int) []*waiter {
	t.Helper()
	all := make([]*waiter, n)
	for i := range all {
		process := uuid.New()
		all[i] = &waiter{process, e.listen(t, e.Runtime.ProcessChannel(process))}
	}
	return all
}

// waiters returns n processes that wait, in this order.
func (e *Env) waiters(t *testing.T, n int) []*waiter {
	t.Helper()
	all := e.listeners(t, n)
	for _, w := range all {
		e.ask(t, w.process)
		e.Later(t, time.Millisecond)
	}
	return all
}

// ask lets a process claim for one worker; the claim is to come back empty, so that it waits.
func (e *Env) ask(t *testing.T, process uuid.UUID) {
	t.Helper()
	terms := e.Terms()
	terms.Process = process
	if got := e.Exchange(t, terms, store.Exchange{Claims: workers(1), Wait: true}).Leases; len(got) != 0 {
		t.Fatalf("a process that is to wait got %d jobs", len(got))
	}
}

// messages returns what a waiter has been told up to now: a last word is said to it and awaited.
func (e *Env) messages(t *testing.T, w *waiter) []store.Message {
	t.Helper()
	e.say(t, e.Runtime.ProcessChannel(w.process), "end")
	return w.ear.until(t, func(m store.Message) bool { return m.Kind == store.Nothing })
}

// wantWoken fails the test unless exactly those were woken, each once.
func (e *Env) wantWoken(t *testing.T, what string, all []*waiter, woken ...int) {
	t.Helper()
	want := map[int]int{}
	for _, i := range woken {
		want[i] = 1
	}
	for i, w := range all {
		got := e.messages(t, w)
		if len(got) != want[i] {
			t.Errorf("%s: process %d was woken %d times, want %d", what, i, len(got), want[i])
		}
		for _, m := range got {
			if m.Kind != store.Wake || m.Instance != instance {
				t.Errorf("%s: process %d was told %+v", what, i, m)
			}
		}
	}
}
