package worker

import (
	"github.com/stint-go/stint/store"
)

// TickHook sees each tick that this process is about to dispatch, and returns what is added to the metadata of its job: at most 1 KiB, more is left
// out as a whole, with a line in the log. It is for what belongs to this one dispatch, such as a trace; what a job is about belongs to its entry.
//
// Other processes are about to dispatch the same tick, and one does. done, unless it is nil, is called when it is known which: with the event where
// it was this process, else with nil. It may never be called when Run ends meanwhile. A panic of either is logged, and changes nothing else.
type TickHook func(instance string, t Tick) (metadata map[string]string, done func(*TickDispatched))

// maxTickMetadata bounds what a TickHook adds: 1,000 ticks may be dispatched in one call.
const maxTickMetadata = 1 << 10

// announce tells the hook of a tick that is to be dispatched. It returns whom to tell what became of it, nil for nobody.
func (s *scheduler) announce(l *line, d *store.Decision) (done func(*TickDispatched)) {
	hook := s.run.cfg.OnTick
	if hook == nil || d.Skip != "" {
		return nil
	}
	zone := l.spec.Zone()
	t := Tick{Entry: l.declared.Key, At: d.Tick.In(zone), Late: s.now().Sub(d.Tick)}
	if !d.Previous.IsZero() {
		t.Previous = d.Previous.In(zone)
	}
	var metadata map[string]string
	err := guard(func() error { metadata, done = hook(s.instance, t); return nil })
	size := metadataSize(&store.NewJob{Metadata: metadata})
	switch {
	case err != nil:
		s.run.log.Error("the hook of a tick failed", "entry", t.Entry, "instance", s.instance, "err", err)
		return nil
	case size > maxTickMetadata || size+metadataSize(&l.declared.Job) > store.MaxMetadata:
		s.run.log.Warn("the metadata that a hook has for a tick is too much", "entry", t.Entry, "instance", s.instance, "bytes", size)
	default:
		d.Metadata = metadata
	}
	return done
}

// report tells who is waiting for it what became of a tick.
func (s *scheduler) report(done func(*TickDispatched), e *TickDispatched) {
	if done == nil {
		return
	}
	if err := guard(func() error { done(e); return nil }); err != nil {
		s.run.log.Error("the hook of a tick failed", "instance", s.instance, "err", err)
	}
}

// reportNone tells those who are still waiting that this process has not dispatched their ticks.
func (s *scheduler) reportNone(dones []func(*TickDispatched)) {
	for _, done := range dones {
		s.report(done, nil)
	}
}
