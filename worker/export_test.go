package worker

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
