package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// endings notifies the Waits of a client over one subscription, which is there while somebody waits. Connecting and
// subscribing may take as long as an outage, so nobody waits for that: whoever joins is woken when it has come about.
//
// No more is asked of the connection while an answer is out. The Redis client writes under a lock that reading needs as
// well, so with a server that stops reading until its answers are read, as the embedded one does, both would stand still.
type endings struct {
	rt      *store.Runtime
	changes *batch.Group[string] // channels that somebody has begun or ceased to wait on

	mu       sync.Mutex
	topics   map[string]*topic // by channel: what somebody waits for
	asked    int               // subscriptions that are not confirmed
	answered sync.Cond         // told when they are

	// These are touched by flush alone, of which there is one at a time.
	sub      *store.Subscription // nil while nobody waits
	receiver *loop.Loop
	stale    map[string]bool // subscribed to, though nobody waits any more
}

// topic is a job that somebody waits for.
type topic struct {
	ears  map[chan struct{}]struct{} // each takes one signal
	heard bool                       // its end will be heard
}

func (e *endings) init(rt *store.Runtime) {
	e.rt = rt
	e.topics = map[string]*topic{}
	e.answered.L = &e.mu
	e.changes = batch.New(1, store.MaxCall, store.MaxCall, func(string) int { return 1 }, e.flush)
}

// join returns a channel that signals whenever the job should be looked at: when its end will be heard from now on, when
// it no longer will, and at its end.
func (e *endings) join(job uuid.UUID) chan struct{} {
	channel, ear := e.rt.EndedChannel(job), make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.topics[channel]
	if t == nil {
		t = &topic{ears: map[chan struct{}]struct{}{}}
		e.topics[channel] = t
		e.changes.Add(channel)
	}
	t.ears[ear] = struct{}{}
	return ear
}

// leave ends what join began.
func (e *endings) leave(job uuid.UUID, ear chan struct{}) {
	channel := e.rt.EndedChannel(job)
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.topics[channel]
	if delete(t.ears, ear); len(t.ears) == 0 {
		delete(e.topics, channel)
		e.changes.Add(channel)
	}
}

// heard reports whether the end of a job that somebody waits for will be heard.
func (e *endings) heard(job uuid.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.topics[e.rt.EndedChannel(job)].heard
}

// flush makes the subscription what the topics ask for; only those on the given channels have changed.
func (e *endings) flush(_ int, channels []string) {
	all, more := e.compare(channels)
	switch {
	case len(all) == 0 && e.sub != nil:
		e.receiver.Stop()
		e.sub, e.stale = nil, nil
	case len(all) > 0 && e.sub == nil:
		e.listen(all)
	case len(more) > 0:
		// An error is the connection's: the receiver meets it too and connects again, to all channels.
		if less := slices.Collect(maps.Keys(e.stale)); len(less) > 0 { // none would mean all
			_ = e.sub.Remove(context.Background(), less...)
			clear(e.stale)
		}
		_ = e.sub.Add(context.Background(), more...)
	}
	e.mu.Lock()
	for e.asked > 0 {
		e.answered.Wait()
	}
	e.mu.Unlock()
}

// compare tells what is to be subscribed to: all that somebody waits on where there is no subscription, otherwise those
// among the channels. What nobody waits on any more becomes stale: it is unsubscribed from on the next occasion.
func (e *endings) compare(channels []string) (all, more []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all = slices.Collect(maps.Keys(e.topics))
	if e.sub == nil {
		e.asked = len(all)
		return all, nil
	}
	for _, c := range channels {
		if e.topics[c] != nil {
			delete(e.stale, c)
			more = append(more, c)
		} else {
			e.stale[c] = true
		}
	}
	e.asked = len(more)
	return all, more
}

// listen opens the subscription.
func (e *endings) listen(channels []string) {
	sub := e.rt.Subscribe(channels...)
	e.sub, e.stale = sub, map[string]bool{}
	e.receiver = loop.Start(context.Background(), loop.Config{
		Name:      loop.Name{Loop: "endings"},
		Pass:      func(context.Context) (time.Duration, error) { return 0, e.receive(sub) },
		Interrupt: func() { _ = sub.Close() },
	})
}

func (e *endings) receive(sub *store.Subscription) error {
	m, err := sub.Receive(time.Second)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil: // all are subscribed to again when there is a connection
		for _, t := range e.topics {
			t.signalLocked(false)
		}
		e.confirmLocked(e.asked)
	case m.Kind == store.Subscribed, m.Kind == store.Ended:
		if t := e.topics[m.Channel]; t != nil {
			t.signalLocked(true)
		}
		if m.Kind == store.Subscribed {
			e.confirmLocked(1)
		}
	}
	return err
}

// confirmLocked notes that n subscriptions were confirmed, or never will be.
func (e *endings) confirmLocked(n int) {
	if e.asked = max(e.asked-n, 0); e.asked == 0 {
		e.answered.Broadcast()
	}
}

func (t *topic) signalLocked(heard bool) {
	t.heard = heard
	for ear := range t.ears {
		select {
		case ear <- struct{}{}:
		default: // it has one
		}
	}
}
