package worker

import (
	"maps"
	"unicode/utf8"

	"github.com/stint-go/stint/store"
)

// TickHook sees each tick that this process is about to dispatch, and returns what is added to the metadata of its job: UTF-8, at most 1 KiB, and
// no more together with what the entry declares here than a job may have; else it is left out as a whole, with a line in the log. It is copied.
// It is for what belongs to this one dispatch, such as a trace; what a job is about belongs to its entry.
//
// Other processes are about to dispatch the same tick, and one does. done, unless it is nil, is called once it is known what became of the tick:
// with the event where this process has dispatched it, else with nil: then another one has, or it was not dispatched, or that is not known of
// this process, which asks for what is still to be decided anew, and so calls the hook again. It may never be called when Run ends meanwhile.
//
// Both are called by the loop that dispatches all ticks of the instance, one after another, and have no context: what takes its time belongs
// elsewhere. A panic of either is logged, and changes nothing else; one that has not returned when Run has to end is left alone.
type TickHook func(instance string, t Tick) (metadata map[string]string, done func(*TickDispatched))

// maxTickMetadata bounds what a TickHook adds: 1,000 ticks may be dispatched in one call.
const maxTickMetadata = 1 << 10

// announce tells the hook of a tick that is to be dispatched. It returns whom to tell what became of it, nil for nobody.
func (s *scheduler) announce(l *line, d *store.Decision) func(*TickDispatched) {
	hook := s.run.cfg.OnTick
	if hook == nil || d.Skip != "" {
		return nil
	}
	zone := l.spec.Zone()
	t := Tick{Entry: l.declared.Key, At: d.Tick.In(zone), Late: s.now().Sub(d.Tick)}
	if !d.Previous.IsZero() {
		t.Previous = d.Previous.In(zone)
	}
	type said struct {
		metadata map[string]string
		done     func(*TickDispatched)
	}
	says, err := within(s.run.patient, func() (says said, _ error) {
		says.metadata, says.done = hook(s.instance, t)
		return says, nil
	})
	metadata := maps.Clone(says.metadata) // it is sent later, and may be sent again
	size := metadataSize(&store.NewJob{Metadata: metadata})
	switch {
	case err != nil:
		s.run.log.Error("the hook of a tick failed", "entry", t.Entry, "instance", s.instance, "err", err)
		return nil
	case size > maxTickMetadata || size+metadataSize(&l.declared.Job) > store.MaxMetadata:
		s.run.log.Warn("the metadata that a hook has for a tick is too much", "entry", t.Entry, "instance", s.instance, "bytes", size)
	case !isText(metadata):
		s.run.log.Warn("the metadata that a hook has for a tick is not UTF-8", "entry", t.Entry, "instance", s.instance)
	default:
		d.Metadata = metadata
	}
	return says.done
}

func isText(metadata map[string]string) bool {
	for k, v := range metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return false
		}
	}
	return true
}

// report tells who is waiting for it what became of a tick.
func (s *scheduler) report(done func(*TickDispatched), e *TickDispatched) {
	if done == nil {
		return
	}
	if _, err := within(s.run.patient, func() (none struct{}, _ error) { done(e); return none, nil }); err != nil {
		s.run.log.Error("the hook of a tick failed", "instance", s.instance, "err", err)
	}
}

// reportNone tells those who are still waiting that this process has not dispatched their ticks.
func (s *scheduler) reportNone(dones []func(*TickDispatched)) {
	for _, done := range dones {
		s.report(done, nil)
	}
}
