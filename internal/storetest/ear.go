package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// ear is a subscription with somebody who always listens: the embedded server waits for its subscribers to take each message,
// and everybody else waits for it meanwhile.
type ear struct {
	sub   *store.Subscription
	news  chan struct{} // has a signal while there is something new
	group sync.WaitGroup

	mu    sync.Mutex
	heard []store.Message
	err   error
}

// listen subscribes and returns when that is in force.
func (e *Env) listen(t *testing.T, channels ...string) *ear {
	t.Helper()
	a := &ear{sub: e.Runtime.Subscribe(channels...), news: make(chan struct{}, 1)}
	t.Cleanup(func() {
		_ = a.sub.Close()
		a.group.Wait()
	})
	a.group.Go(a.run)
	for range channels {
		a.hear(t, store.Subscribed)
	}
	return a
}

// run takes messages until the subscription is closed.
func (a *ear) run() {
	for {
		m, err := a.sub.Receive(time.Hour)
		a.mu.Lock()
		if err != nil {
			a.err = err
		} else if m != (store.Message{}) {
			a.heard = append(a.heard, m)
		}
		a.mu.Unlock()
		select {
		case a.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// until waits for the message that is last, at most ten seconds, and returns those before it that were not returned yet.
func (a *ear) until(t *testing.T, last func(store.Message) bool) []store.Message {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		a.mu.Lock()
		for i, m := range a.heard {
			if last(m) {
				before := a.heard[:i:i]
				a.heard = a.heard[i+1:]
				a.mu.Unlock()
				return before
			}
		}
		err := a.err
		a.mu.Unlock()
		if err != nil {
			t.Fatalf("receiving: %v", err)
		}
		select {
		case <-a.news:
		case <-timeout:
			t.Fatal("a message did not come")
		}
	}
}

// hear waits for a message of a kind.
func (a *ear) hear(t *testing.T, kind store.MessageKind) (got store.Message) {
	t.Helper()
	a.until(t, func(m store.Message) bool {
		got = m
		return m.Kind == kind
	})
	return got
}
