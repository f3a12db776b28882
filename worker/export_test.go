package worker

import (
	"time"

	"github.com/stint-go/stint/store"
)

// Picker is what decides which instance of a shared pool is asked next.
type Picker struct{ picker }

// NewPicker returns a Picker for instances with these weights.
func NewPicker(strict bool, weights ...int) *Picker {
	k := &Picker{picker{strict: strict}}
	for _, w := range weights {
		k.add(w)
	}
	return k
}

// Next picks one of those that may be picked, -1 if there is none.
func (k *Picker) Next(may func(i int) bool) int { return k.next(may) }

// HandedOver is an attempt that a worker was given and has not begun.
type HandedOver struct{ attempt }

// NewHandedOver returns one.
func NewHandedOver() *HandedOver {
	return &HandedOver{attempt{lease: &store.Lease{}}}
}

// Abandon is what Run does before it returns without the handler.
func (h *HandedOver) Abandon() { h.abandon() }

// Begin reports whether the handler may be called.
func (h *HandedOver) Begin() bool { return h.begin("", 0) }

// Planned returns how many ticks of an entry are to be decided after base.
func Planned(spec Spec, base, now time.Time) int {
	return len(plan(spec.spec, &store.EntryState{Definition: store.Definition{CatchUp: 1, Window: DefaultWindow}, Decided: base}, base, now))
}
