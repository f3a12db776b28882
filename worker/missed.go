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

// plan decides the ticks of an entry after base that are due and that nobody has decided: the earliest first, at most 1,000. It looks at no more
// ticks than it names.
func plan(spec cronspec.Spec, e *store.EntryState, base, now time.Time) (all []store.Decision) {
	late, next := now.Add(-prompt), spec.Next(base)
	var fire []time.Time
	if !next.IsZero() && next.Before(late) { // in the ordinary course nothing of the past is searched
		all, fire = missed(spec, e, base, late)
		next = spec.Next(late.Add(-time.Nanosecond))
	}
	for ; !next.IsZero() && !next.After(now); next = spec.Next(next) {
		fire = append(fire, next)
	}
	previous := e.Last
	for _, t := range fire {
		if !previous.Before(t) { // it was dispatched by a clock that has gone back since
			previous = time.Time{}
		}
		all = append(all, store.Decision{Tick: t, Previous: previous})
		previous = t
	}
	return all
}

// missed decides the ticks of an entry after one moment and before another, which were missed. Those that are older than the window are
// skipped; of those within it, all but the latest few are, which it returns.
func missed(spec cronspec.Spec, e *store.EntryState, from, late time.Time) (skip []store.Decision, fire []time.Time) {
	edge := late.Add(prompt - max(e.Window, prompt)) // what is decided promptly was not missed, however short the window
	if first := spec.Next(from); first.Before(edge) {
		last := spec.Last(edge.Add(-time.Nanosecond))
		skip = append(skip, store.Decision{Tick: last, First: first, Skip: fmt.Sprintf("missed, and older than the window of %v", e.Window)})
		from = last
	}
	reason := fmt.Sprintf("missed: only the latest %d are made up for", e.CatchUp)
	if e.CatchUp == 0 {
		reason = "missed: none is made up for"
	}
	latest := spec.Latest(from, late.Add(-time.Nanosecond), named+e.CatchUp)
	if len(latest) > 0 {
		if first := spec.Next(from); first.Before(latest[0]) {
			skip = append(skip, store.Decision{Tick: spec.Last(latest[0].Add(-time.Nanosecond)), First: first, Skip: reason})
		}
	}
	skips := max(len(latest)-e.CatchUp, 0)
	for _, t := range latest[:skips] {
		skip = append(skip, store.Decision{Tick: t, Skip: reason})
	}
	return skip, latest[skips:]
}

// held is when the job of a tick runs, which its id tells: the same in all processes.
func held(tick time.Time, job uuid.UUID, jitter time.Duration) time.Time {
	if jitter <= 0 {
		return time.Time{}
	}
	return tick.Add(time.Duration(binary.BigEndian.Uint64(job[8:]) % uint64(jitter)))
}
