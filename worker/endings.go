package worker

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// endings notifies the Waits of a client over one subscription, which is there while somebody waits. Connecting and
// subscribing may take as long as an outage, so nobody waits for that: whoever joins is woken when it has come about.
type endings struct {
	rt      *store.Runtime
	changes *batch.Group[string] // channels that somebody has begun or ceased to wait on

	mu     sync.Mutex
	topics map[string]*topic // by channel: what somebody waits for

	// These are touched by flush alone, of which there is one at a time.
	sub      *store.Subscription // nil while nobody waits
	receiver *loop.Loop
}

// topic is a job that somebody waits for.
type topic struct {
	ears  map[chan struct{}]struct{} // each takes one signal
	heard bool                       // its end will be heard
}

func (e *endings) init(rt *store.Runtime) {
	e.rt = rt
	e.topics = map[string]*topic{}
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
	all, more, less := e.compare(channels)
	switch {
	case len(all) == 0 && e.sub == nil:
	case len(all) == 0:
		e.receiver.Stop()
		e.sub = nil
	case e.sub == nil:
		e.listen(all)
	default:
		// An error is the connection's: the receiver meets it too and connects again, to all channels.
		if len(more) > 0 {
			_ = e.sub.Add(context.Background(), more...)
		}
		if len(less) > 0 { // none would mean all
			_ = e.sub.Remove(context.Background(), less...)
		}
	}
}

// compare tells which of the channels somebody waits on, and which not; all has those that anybody waits on, but only
// where there is no subscription yet.
func (e *endings) compare(channels []string) (all, more, less []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range channels {
		if e.topics[c] != nil {
			more = append(more, c)
		} else {
			less = append(less, c)
		}
	}
	for c := range e.topics {
		all = append(all, c)
		if e.sub != nil {
			break
		}
	}
	return all, more, less
}

// listen opens the subscription.
func (e *endings) listen(channels []string) {
	sub := e.rt.Subscribe(channels...)
	e.sub = sub
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
	case m.Kind == store.Subscribed, m.Kind == store.Ended:
		if t := e.topics[m.Channel]; t != nil {
			t.signalLocked(true)
		}
	}
	return err
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
