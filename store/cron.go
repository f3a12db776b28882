package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/cronspec"
)

// Entry is a line of cron that is registered.
type Entry struct {
	Key, Spec, Zone, Instance string
	Enabled                   bool
	// Next is the next tick, zero while the entry is disabled. Last is the last that was dispatched, zero if none was. Both are in the
	// entry's zone.
	Next, Last time.Time
	// Overdue is for how long the earliest tick that is not decided has been due: nobody was there to dispatch it, or Redis refuses. It is 0
	// where there is none, and while the entry is disabled.
	Overdue time.Duration
}

// EntryState is an entry as it is registered.
type EntryState struct {
	Definition       // less its Job
	Missing, Enabled bool
	Decided, Last    time.Time // the latest tick that is decided, and the last that was dispatched
	Fingerprint      string
}

// EntriesRead answers Entries.
type EntriesRead struct {
	Now     time.Time // by Redis' clock
	Changes string    // a number that is another one after each change of an entry of the instance
	Entries []EntryState
}

// Entries reads the entries of an instance that have these keys, in their order, at most MaxCall. Where the number of changes is known and still
// the same it reads none.
func (r *Runtime) Entries(ctx context.Context, instance, known string, keys []string) (EntriesRead, error) {
	var read EntriesRead
	err := r.s.do(ctx, "reading entries", func() (err error) {
		read, err = r.s.readEntries(ctx, instance, known, keys)
		return err
	})
	return read, err
}

func (s *Store) readEntries(ctx context.Context, instance, known string, keys []string) (EntriesRead, error) {
	a := s.askEntries(instance, known, keys)
	p, err := s.run(ctx, scriptEntries, a.keys, a.args...)
	if err != nil {
		return EntriesRead{}, err
	}
	return entriesRead(keys, &p), nil
}

func (s *Store) askEntries(instance, known string, keys []string) ask {
	args := []any{known}
	for _, k := range keys {
		args = append(args, k)
	}
	cron := s.keys.cron(instance)
	return ask{[]string{cron[0], cron[2]}, args}
}

func entriesRead(keys []string, p *reader) EntriesRead {
	read := EntriesRead{Now: parseMS(p.str()), Changes: p.str()}
	l := p.list()
	for i := 0; l.more() && i < len(keys); i++ {
		read.Entries = append(read.Entries, entryState(keys[i], l.str(), l.str()))
	}
	return read
}

// ticksOf takes apart what is kept of an entry's ticks, as the scripts do.
var ticksOf = regexp.MustCompile(`(?s)^(\d) (\d+) (\d+) ([0-9a-f]+) [0-9a-f]+ .*$`)

func entryState(key, definition, state string) EntryState {
	e := EntryState{Definition: Definition{Key: key}}
	var d stored
	f := ticksOf.FindStringSubmatch(state)
	if f == nil || json.Unmarshal([]byte(definition), &d) != nil {
		e.Missing = true
		return e
	}
	f = f[1:]
	e.Spec, e.Zone, e.CatchUp, e.Window, e.Jitter = d.Spec, d.Zone, d.CatchUp, d.Window, d.Jitter
	e.SkipOverlap, e.RecordAge, e.RecordCount = d.SkipOverlap, d.RecordAge, d.RecordCount
	e.Enabled, e.Decided, e.Last, e.Fingerprint = f[0] == "1", parseMS(f[1]), parseMS(f[2]), f[3]
	return e
}

// Entries returns all entries of cron that are registered, by key, in a round trip for 100 instances. Where foreign keys spoil instances, or
// nobody answers for them, as of a node of a Cluster that is away, those of the others are returned together with the error, in which the
// *KeyErrors are joined.
func (s *Store) Entries(ctx context.Context) ([]Entry, error) {
	var all []Entry
	err := s.do(ctx, "listing entries", func() error {
		owners, err := s.rdb.HGetAll(ctx, s.keys.entries()).Result()
		if err != nil {
			return s.named(ctx, err, s.keys.entries(), "hash")
		}
		by := map[string][]string{}
		for key, instance := range owners {
			by[instance] = append(by[instance], key)
		}
		all, err = s.entriesBy(ctx, by)
		return err
	})
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return all, err
}

// entriesBy returns those of the entries, named by instance, that there are.
func (s *Store) entriesBy(ctx context.Context, by map[string][]string) ([]Entry, error) {
	type part struct {
		instance string
		keys     []string
	}
	var all []Entry
	var parts []part
	for instance, keys := range by {
		for some := range slices.Chunk(keys, maxAsks) { // a request has at most the square of that
			parts = append(parts, part{instance, some})
		}
	}
	var spoilt error
	for some := range slices.Chunk(parts, maxAsks) {
		had := len(all)
		asks := make([]ask, len(some))
		for i, p := range some {
			asks[i] = s.askEntries(p.instance, "", p.keys)
		}
		err := s.runAll(ctx, scriptEntries, asks, func(i int, p reader) {
			read := entriesRead(some[i].keys, &p)
			for _, e := range read.Entries {
				if !e.Missing {
					all = append(all, e.entry(some[i].instance, read.Now))
				}
			}
		})
		spoilt = errors.Join(spoilt, err)
		if err != nil && !foreign(err) && len(all) == had {
			break // nobody answers at all
		}
	}
	return all, spoilt
}

func (e *EntryState) entry(instance string, now time.Time) Entry {
	out := Entry{Key: e.Key, Spec: e.Spec, Zone: e.Zone, Instance: instance, Enabled: e.Enabled, Last: e.Last}
	zone, err := cronspec.Zone(e.Zone)
	if err != nil {
		return out // a machine without zones can't tell the next
	}
	spec, err := cronspec.Parse(e.Spec, zone)
	if err != nil {
		return out // a later version's
	}
	if !e.Last.IsZero() {
		out.Last = e.Last.In(spec.Zone())
	}
	if e.Enabled {
		out.Next = spec.Next(now)
		if due := spec.Next(e.Decided); !due.IsZero() && due.Before(now) {
			out.Overdue = now.Sub(due)
		}
	}
	return out
}

// EnableEntry enables or disables an entry, in all processes, until it is called again: a restart changes nothing of it, nor does a new
// registration. Ticks while an entry is disabled are not missed. ErrNotFound if there is none.
func (s *Store) EnableEntry(ctx context.Context, key string, on bool) error {
	to := 0
	if on {
		to = 1
	}
	return s.entry(ctx, "enabling or disabling an entry", key, func(instance string) error {
		return s.found(ctx, key, scriptEnable, s.keys.cron(instance)[2:], key, to)
	})
}

// RemoveEntry removes an entry with the records of its ticks. Processes that had registered it stop firing it; it comes back with the
// next process that starts and declares it. ErrNotFound if there is none.
func (s *Store) RemoveEntry(ctx context.Context, key string) error {
	return s.entry(ctx, "removing an entry", key, func(instance string) error {
		err := s.found(ctx, key, scriptUnschedule, s.keysOf(instance, key), key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		// Of one that is not there the name may be noted all the same: the reply of an earlier try was lost.
		_, agreed := s.agree(ctx, instance, []string{key})
		return cmp.Or(agreed, err)
	})
}

// entry finds the instance of an entry.
func (s *Store) entry(ctx context.Context, op, key string, f func(instance string) error) error {
	if err := validName("entry", key); err != nil {
		return err
	}
	return s.do(ctx, op, func() error {
		names, err := s.names(ctx, []string{key})
		if err != nil {
			return err
		}
		if names[0] == "" {
			return fmt.Errorf("%w: entry %s", ErrNotFound, key)
		}
		return f(names[0])
	})
}

// keysOf are the keys of an instance's entries and those of one of them, as unschedule.lua wants them.
func (s *Store) keysOf(instance, entry string) []string {
	return append(s.keys.cron(instance), s.keys.dispatches(instance, entry), s.keys.removed(instance, entry))
}

// found runs a script that says whether there is the entry.
func (s *Store) found(ctx context.Context, key string, sc script, keys []string, args ...any) error {
	p, err := s.run(ctx, sc, keys, args...)
	if err != nil {
		return err
	}
	if p.int() == 0 {
		return fmt.Errorf("%w: entry %s", ErrNotFound, key)
	}
	return nil
}
