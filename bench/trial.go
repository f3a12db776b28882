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
	most     int // rounds that are enough, however many are asked for; 0: there is no such number
	// waits says that it hardly does anything but wait. Such trials run beside each other, and so do their variants.
	waits bool
	// number is what makes it differ from others of its kind, in a growth.
	number float64
}

// sample is what a round of a variant brings: figures by name.
type sample map[string][]float64

// brought is what all rounds of a trial have brought, by variant.
type brought struct {
	samples map[string][]sample
	failed  map[string]error
}

// maxRound bounds a round of one variant, whatever happens.
const maxRound = 4 * time.Minute

// conductAll runs the trials that are due, those that wait last and beside each other.
func (b *bench) conductAll(ctx context.Context, due map[*trial]bool) error {
	var waiting []*trial
	for _, t := range trials {
		switch {
		case !due[t]:
		case t.waits:
			waiting = append(waiting, t)
		default:
			b.conduct(ctx, t)
		}
	}
	srv, err := b.server(ctx, false)
	if err != nil {
		return err
	}
	if err := srv.flush(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, t := range waiting {
		all.Go(func() { b.conduct(ctx, t) })
	}
	all.Wait()
	return ctx.Err()
}

// conduct runs all rounds of a trial: A B, B A, A B and so on.
func (b *bench) conduct(ctx context.Context, t *trial) {
	rounds := b.rounds
	if t.most > 0 {
		rounds = min(rounds, t.most)
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
			if ctx.Err() == nil {
				b.round(ctx, t, v, r+1, rounds)
			}
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
	if s == nil && err == nil {
		said = "left out of a quick run"
	}
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
		case name == "lost" || name == "doubled":
			if f, _ := total(name)([]sample{s}); f.value != 0 {
				parts = append(parts, fmt.Sprintf("%s %.0f !", name, f.value))
			}
		case len(v) == 1:
			parts = append(parts, name+" "+round(v[0]))
		default:
			parts = append(parts, fmt.Sprintf("%s ×%d", name, len(v)))
		}
	}
	return strings.Join(parts, ", ")
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
