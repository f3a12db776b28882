package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// trial is something that is done with several variants, in turns. Any number of measures can be read off what it brings.
type trial struct {
	name     string
	variants []variant
	run      func(ctx context.Context, b *bench, v variant) (sample, error)
	once     bool // one round is enough, however many are asked for
	// waits says that it hardly does anything but wait. Such trials run beside each other, and so do their variants.
	waits bool
}

// sample is what a round of a variant brings: figures by name.
type sample map[string][]float64

// brought is what all rounds of a trial have brought, by variant.
type brought struct {
	samples map[string][]sample
	failed  map[string]error
}

// maxRound bounds a round of one variant, whatever happens.
const maxRound = 3 * time.Minute

// conduct runs all rounds of a trial: A B, B A, A B and so on.
func (b *bench) conduct(ctx context.Context, t *trial) {
	rounds := b.rounds
	if t.once || t.waits {
		rounds = 1
	}
	variants := slices.DeleteFunc(slices.Clone(t.variants), func(v variant) bool { return !b.sides.MatchString(v.name) })
	if t.waits {
		var all sync.WaitGroup
		for _, v := range variants {
			all.Go(func() { b.round(ctx, t, v, 1, 1) })
		}
		all.Wait()
		return
	}
	for r := range rounds {
		for _, v := range variants {
			b.round(ctx, t, v, r+1, rounds)
		}
		slices.Reverse(variants)
	}
}

// round runs a trial once with one variant.
func (b *bench) round(ctx context.Context, t *trial, v variant, r, of int) {
	ctx, cancel := context.WithTimeout(ctx, maxRound)
	defer cancel()
	began := time.Now()
	s, err := t.run(ctx, b, v)
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.got[t]
	if got == nil {
		got = &brought{map[string][]sample{}, map[string]error{}}
		b.got[t] = got
	}
	said := s.String()
	if err != nil {
		got.failed[v.name] = err
		said = "FAILED: " + err.Error()
	}
	if s != nil { // what was lost counts even if the round failed
		got.samples[v.name] = append(got.samples[v.name], s)
		b.count(v.of, s)
	}
	fmt.Fprintf(b.log, "%6.0fs  %-22s %-24s %d/%d in %4.1fs  %s\n",
		time.Since(b.began).Seconds(), t.name, v.name, r, of, time.Since(began).Seconds(), said)
}

// count adds to the jobs lost and doubled in all.
func (b *bench) count(of system, s sample) {
	for _, what := range []string{"lost", "doubled"} {
		for _, n := range s[what] {
			b.faults[of][what] += n
		}
	}
}

// String is the sample in one line; of many figures of a name it gives the number.
func (s sample) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		switch v := s[name]; {
		case len(v) == 1 && (name == "lost" || name == "doubled"):
			if v[0] != 0 {
				parts = append(parts, fmt.Sprintf("%s %.0f !", name, v[0]))
			}
		case len(v) == 1:
			parts = append(parts, name+" "+round(v[0]))
		default:
			parts = append(parts, fmt.Sprintf("%s ×%d", name, len(v)))
		}
	}
	return strings.Join(parts, ", ")
}
