package worker

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/cronspec"
	"github.com/stint-go/stint/store"
)

const (
	// prompt is how late a tick may be without having been missed.
	prompt = time.Second
	// named is how many of the ticks that are skipped in a row have each a record of their own: the latest. One stands for the others.
	named = 100
)

// plan is what is asked of the store for a line that is due. Of one that is disabled that is the latest tick alone, to hear whether it still
// is: what was before it is enabled again is nobody's.
func (l *line) plan(now time.Time) []store.Decision {
	if !l.state.Enabled {
		return []store.Decision{{Tick: l.spec.Last(now), Previous: l.state.Last}}
	}
	return plan(l.spec, &l.state, now)
}

// plan decides the ticks of an entry that are due and that nobody has decided: the earliest first, at most 1,000. Those that are
// older than the window are skipped; of those that were missed within it, all but the latest few are.
func plan(spec cronspec.Spec, e *store.EntryState, now time.Time) []store.Decision {
	var all []store.Decision
	from, edge := e.Decided, now.Add(-e.Window)
	if first := spec.Next(from); !first.IsZero() && first.Before(edge) {
		last := spec.Last(edge.Add(-time.Nanosecond))
		all = append(all, store.Decision{Tick: last, First: first, Skip: fmt.Sprintf("missed, and older than the window of %v", e.Window)})
		from = last
	}
	var missed, prompts []time.Time
	var first, last time.Time // of those before missed
	for t := spec.Next(from); !t.IsZero() && !t.After(now); t = spec.Next(t) {
		if now.Sub(t) <= prompt {
			prompts = append(prompts, t)
			continue
		}
		if missed = append(missed, t); len(missed) > 2*(named+e.CatchUp) {
			over := len(missed) - named - e.CatchUp
			if first.IsZero() {
				first = missed[0]
			}
			last, missed = missed[over-1], append(missed[:0], missed[over:]...)
		}
	}
	if over := len(missed) - named - e.CatchUp; over > 0 {
		if first.IsZero() {
			first = missed[0]
		}
		last, missed = missed[over-1], missed[over:]
	}
	reason := fmt.Sprintf("missed: only the latest %d are made up for", e.CatchUp)
	if e.CatchUp == 0 {
		reason = "missed: none is made up for"
	}
	if !first.IsZero() {
		all = append(all, store.Decision{Tick: last, First: first, Skip: reason})
	}
	skips := max(len(missed)-e.CatchUp, 0)
	for _, t := range missed[:skips] {
		all = append(all, store.Decision{Tick: t, Skip: reason})
	}
	previous := e.Last
	for _, t := range append(missed[skips:], prompts...) {
		all = append(all, store.Decision{Tick: t, Previous: previous})
		previous = t
	}
	return all
}

// held is when the job of a tick runs, which its id tells: the same in all processes.
func held(tick time.Time, job uuid.UUID, jitter time.Duration) time.Time {
	if jitter <= 0 {
		return time.Time{}
	}
	return tick.Add(time.Duration(binary.BigEndian.Uint64(job[8:]) % uint64(jitter)))
}
