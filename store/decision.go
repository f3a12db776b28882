package store

import (
	"slices"
	"time"
)

// Decision is what is to become of a tick.
type Decision struct {
	Tick     time.Time
	First    time.Time // Skip: the first of the ticks that this stands for; zero: only Tick
	Skip     string    // the reason to skip it; "": it is dispatched
	Previous time.Time // the last that was dispatched before it, for the job
	Due      time.Time // when the job is to run; zero: now
	// Metadata is added to that of the entry's job, which stands where both have a key.
	Metadata map[string]string
}

// EntryTicks are the ticks of an entry that are to be decided.
type EntryTicks struct {
	Entry     EntryState // as it was read
	Decisions []Decision // the earliest first; together with those of other entries at most MaxCall
	// Till is until when, by Redis' clock, these are what is to be decided: later the verdict is Behind. Zero: for as long as nobody else has
	// decided any.
	Till time.Time
}

// Latest is the latest of the decisions that is to be dispatched; the zero one if none is.
func (e *EntryTicks) Latest() Decision {
	for _, d := range slices.Backward(e.Decisions) {
		if d.Skip == "" {
			return d
		}
	}
	return Decision{}
}

// TickVerdict is what is said of the ticks of an entry.
type TickVerdict byte

// The verdicts. Only Decided has changed anything.
const (
	Decided  TickVerdict = 'a' // as far as Outcomes go
	Behind   TickVerdict = 'b' // others have decided meanwhile: see Latest; or Till is over
	Altered  TickVerdict = 'c' // the definition is another one: read it
	Early    TickVerdict = 'e' // after Outcomes comes a tick that is not due by Redis' clock
	NoRoom   TickVerdict = 'f' // the call was full
	Absent   TickVerdict = 'g' // there is no such entry
	Spoilt   TickVerdict = 'k' // the key of its records is foreign: see Err. Nothing is known of the entry
	Unmade   TickVerdict = 'l' // after Outcomes comes a tick whose job can't be made: the entry has to be registered again
	Disabled TickVerdict = 'o'
)

// TickOutcome is what became of a decision.
type TickOutcome byte

// The outcomes.
const (
	TickDispatched TickOutcome = 'd'
	TickKnown      TickOutcome = 'x' // it was decided already
	TickSkipped    TickOutcome = 's'
	TickOverlap    TickOutcome = 'o' // skipped: the job of the last one has not ended
	TickFailed     TickOutcome = 'f' // Unmade: noted for the first time. It is still to be decided
)

// TickAnswer is what became of the ticks of an entry.
type TickAnswer struct {
	Verdict      TickVerdict
	Latest, Last time.Time // the latest tick that is decided now, the last that was dispatched
	Outcomes     []TickOutcome
	DecidedAt    time.Time // when this was answered first
	Err          error     // Spoilt: a *KeyError
}
