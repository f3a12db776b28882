package worker

import (
	"context"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/store"
)

// How outcomes travel.
const (
	relayLanes = 2               // requests in flight to the parents of an instance
	relayTime  = 5 * time.Second // of one request
)

// relays bring the outcomes of children to their parents as soon as they have ended: those for the parents of one instance in the same
// requests, and in others than the rest, which a server that is away does not hold up then. What they don't bring is still in the outbox, from
// which the sweeper takes it.
type relays struct {
	rt      *store.Runtime
	silence *silence
	ctx     context.Context // of all requests
	stop    context.CancelFunc

	mu         sync.Mutex
	byInstance map[string]*batch.Group[store.Outcome] // the parents'
}

func newRelays(ctx context.Context, rt *store.Runtime, s *silence) *relays {
	r := &relays{rt: rt, silence: s, byInstance: map[string]*batch.Group[store.Outcome]{}}
	r.ctx, r.stop = context.WithCancel(ctx)
	return r
}

// add has an outcome brought to its parent.
func (r *relays) add(o store.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.byInstance[o.Parent.Instance]
	if g == nil {
		g = r.group(o.Parent.Instance)
		r.byInstance[o.Parent.Instance] = g
	}
	g.Add(o)
}

func (r *relays) group(instance string) *batch.Group[store.Outcome] {
	weigh := func(o store.Outcome) int { return 256 + len(o.Text) }
	return batch.New(relayLanes, callItems, callWeight, weigh, func(_ int, outcomes []store.Outcome) {
		if r.ctx.Err() != nil {
			return
		}
		_ = r.silence.ask(instance, func() error { // an error is the sweeper's to tell, if it meets it as well
			ctx, cancel := context.WithTimeout(r.ctx, relayTime)
			defer cancel()
			return guard(func() error { return r.rt.Relay(ctx, outcomes) })
		})
	})
}

// wait returns when nothing is under way any more, and cuts off what takes longer than one request may. Nothing is added any more.
func (r *relays) wait() {
	cut := time.AfterFunc(relayTime, r.stop)
	defer cut.Stop()
	defer r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.byInstance {
		g.Wait()
	}
}
