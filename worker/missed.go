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
	// most is more than there can be within prompt: ticks are at least 100 ms apart.
	most = 20
)

// plan decides the ticks of an entry after base that are due and that nobody has decided: the earliest first, at most 1,000. Those that are
// older than the window are skipped; of those that were missed within it, all but the latest few are. It looks at no more ticks than it names.
func plan(spec cronspec.Spec, e *store.EntryState, base, now time.Time) []store.Decision {
	var all []store.Decision
	from, edge := base, now.Add(-max(e.Window, prompt)) // what is decided promptly was not missed, however short the window
	if first := spec.Next(from); !first.IsZero() && first.Before(edge) {
		last := spec.Last(edge.Add(-time.Nanosecond))
		all = append(all, store.Decision{Tick: last, First: first, Skip: fmt.Sprintf("missed, and older than the window of %v", e.Window)})
		from = last
	}
	reason := fmt.Sprintf("missed: only the latest %d are made up for", e.CatchUp)
	if e.CatchUp == 0 {
		reason = "missed: none is made up for"
	}
	late := now.Add(-prompt - time.Nanosecond) // until then a tick was missed
	missed := spec.Latest(from, late, named+e.CatchUp)
	if len(missed) > 0 {
		if first := spec.Next(from); first.Before(missed[0]) {
			all = append(all, store.Decision{Tick: spec.Last(missed[0].Add(-time.Nanosecond)), First: first, Skip: reason})
		}
		from = missed[len(missed)-1]
	}
	skips := max(len(missed)-e.CatchUp, 0)
	for _, t := range missed[:skips] {
		all = append(all, store.Decision{Tick: t, Skip: reason})
	}
	previous := e.Last
	for _, t := range append(missed[skips:], spec.Latest(from, now, most)...) {
		if !previous.Before(t) { // it was dispatched by a clock that has gone back since
			previous = time.Time{}
		}
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
