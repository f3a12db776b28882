package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/cronspec"
)

// Entry is a line of cron that is registered.
type Entry struct {
	Key, Spec, Zone, Instance string
	Enabled                   bool
	// Next is the next tick, zero while the entry is disabled. Last is the last that was dispatched, zero if none was. Both are in the
	// entry's zone.
	Next, Last time.Time
}

// Bounds of what is kept of an entry's ticks, unless its definition has others.
const (
	DefRecordAge   = 7 * 24 * time.Hour
	DefRecordCount = 10_000
)

// Definition is what a process declares of an entry.
type Definition struct {
	Key         string // as the name of an instance
	Spec, Zone  string // both can be read
	CatchUp     int    // how many of the ticks that were missed are made up for
	Window      time.Duration
	Jitter      time.Duration
	SkipOverlap bool
	RecordAge   time.Duration // 0: DefRecordAge
	RecordCount int           // 0: DefRecordCount
	Job         NewJob        // what each tick enqueues: its payload, priority, most attempts, metadata, deadline
}

// stored is a definition in Redis: what is not a matter of the job.
type stored struct {
	Spec        string        `json:"spec"`
	Zone        string        `json:"zone,omitempty"`
	CatchUp     int           `json:"catchUp"`
	Window      time.Duration `json:"window"`
	Jitter      time.Duration `json:"jitter,omitempty"`
	SkipOverlap bool          `json:"skipOverlap,omitempty"`
	RecordAge   time.Duration `json:"recordAge"`
	RecordCount int           `json:"recordCount"`
}

// Validate says what is wrong with a definition, but for its spec and zone.
func (d *Definition) Validate() error {
	if err := validName("entry", d.Key); err != nil {
		return err
	}
	job := d.Job
	job.ID = uuid.Max // any: each tick's has its own
	return job.validate()
}

// Fingerprint is the same for definitions that are, and for hardly any others.
func (d *Definition) Fingerprint() string {
	fingerprint, _ := d.words()[3].(string)
	return fingerprint
}

// words are a valid definition in the words of register.lua.
func (d *Definition) words() []any {
	job := d.Job
	if job.Priority == 0 {
		job.Priority = DefPriority
	}
	by := ""
	if !job.Deadline.IsZero() {
		by = strconv.FormatInt(job.Deadline.UnixMilli(), 10)
	}
	about, _ := json.Marshal(stored{d.Spec, d.Zone, d.CatchUp, d.Window, d.Jitter, d.SkipOverlap, d.RecordAge, d.RecordCount})
	template := append([]byte(by+" "), encodeRecord(job.Priority, &job)...)
	return []any{d.Key, about, template, digest(string(about), string(template)), digest(d.Spec, d.Zone)}
}

// digest is short, and as good as unique.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Registration is what became of a definition.
type Registration byte

// What becomes of a definition.
const (
	Registered Registration = 'n' // it is new
	Unchanged  Registration = 's'
	Changed    Registration = 'c' // it takes the place of another one
	Retimed    Registration = 't' // the same, with another spec or zone: ticks until now are nobody's
	Removed    Registration = 'r' // it was removed, and stays so
	Kept       Registration = 'k' // another definition stands
	Elsewhere  Registration = 'x' // its key belongs to another instance
)

// Register registers entries of an instance, at most MaxCall; their jobs have about a MiB together. What is registered is replaced: the newest
// registration wins. With missing set only what is not there is added, unless it was removed within a day: for a process that
// finds that Redis has lost what it had registered.
//
// The slices have what became of each, and the instance that each key belongs to.
func (r *Runtime) Register(ctx context.Context, instance string, all []Definition, missing bool) ([]Registration, []string, error) {
	if err := ValidateInstance(instance); err != nil {
		return nil, nil, err
	}
	if len(all) > MaxCall {
		return nil, nil, invalid("%d entries in one call; at most %d are allowed", len(all), MaxCall)
	}
	for i := range all {
		if err := all[i].Validate(); err != nil {
			return nil, nil, fmt.Errorf("entry %s: %w", all[i].Key, err)
		}
	}
	result, holders := make([]Registration, len(all)), make([]string, len(all))
	err := r.s.do(ctx, "registering entries", func() (err error) {
		if err = r.s.announce(ctx, instance, false); err != nil {
			return err
		}
		// What was removed must not be noted as ours again: so that is only asked for at first.
		if holders, err = r.s.own(ctx, instance, all, !missing); err != nil {
			return err
		}
		keys, args, sent := r.s.keys.cron(instance), []any{1}, []int{}
		if missing {
			args[0] = 0
		}
		for i := range all {
			if result[i] = Elsewhere; holders[i] != instance {
				continue
			}
			sent, args, keys = append(sent, i), append(args, all[i].words()...), append(keys, r.s.keys.removed(instance, all[i].Key))
		}
		reply, err := r.s.run(ctx, scriptRegister, keys, args...)
		if err != nil {
			return err
		}
		p := reader{v: reply}
		letters := p.str()
		if len(letters) != len(sent) {
			return fmt.Errorf("answered for %d entries of %d", len(letters), len(sent))
		}
		var there []Definition
		for k, i := range sent {
			if result[i] = Registration(letters[k]); missing && result[i] != Removed {
				there = append(there, all[i])
			}
		}
		_, err = r.s.own(ctx, instance, there, true)
		return err
	})
	return result, holders, err
}

// own notes which instance the keys belong to, and returns for each the one that it does.
func (s *Store) own(ctx context.Context, instance string, all []Definition, note bool) ([]string, error) {
	if len(all) == 0 {
		return nil, nil
	}
	args := []any{flag(note)}
	for i := range all {
		args = append(args, all[i].Key, instance)
	}
	reply, err := s.run(ctx, scriptOwn, []string{s.keys.entries()}, args...)
	if err != nil {
		return nil, err
	}
	p := reader{v: reply}
	l := p.list()
	holders := make([]string, len(all))
	for i := range holders {
		holders[i] = l.str()
	}
	return holders, nil
}

// disown forgets which instance entries belong to.
func (s *Store) disown(ctx context.Context, entries ...string) error {
	if len(entries) == 0 {
		return nil
	}
	return s.named(ctx, s.rdb.HDel(ctx, s.keys.entries(), entries...).Err(), s.keys.entries(), "hash")
}

// entriesOf returns the keys of an instance's entries.
func (s *Store) entriesOf(ctx context.Context, instance string) ([]string, error) {
	key := s.keys.cron(instance)[0]
	all, err := s.rdb.HGetAll(ctx, key).Result()
	return slices.Sorted(maps.Keys(all)), s.named(ctx, err, key, "hash")
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
	args := []any{known}
	for _, k := range keys {
		args = append(args, k)
	}
	cron := s.keys.cron(instance)
	reply, err := s.run(ctx, scriptEntries, []string{cron[0], cron[2]}, args...)
	if err != nil {
		return EntriesRead{}, err
	}
	p := reader{v: reply}
	read := EntriesRead{Now: parseMS(p.str()), Changes: p.str()}
	l := p.list()
	for i := 0; l.more() && i < len(keys); i++ {
		read.Entries = append(read.Entries, entryState(keys[i], l.str(), l.str()))
	}
	return read, nil
}

func entryState(key, definition, state string) EntryState {
	e := EntryState{Definition: Definition{Key: key}}
	var d stored
	f := strings.SplitN(state, " ", 6)
	if len(f) != 6 || json.Unmarshal([]byte(definition), &d) != nil {
		e.Missing = true
		return e
	}
	e.Spec, e.Zone, e.CatchUp, e.Window, e.Jitter = d.Spec, d.Zone, d.CatchUp, d.Window, d.Jitter
	e.SkipOverlap, e.RecordAge, e.RecordCount = d.SkipOverlap, d.RecordAge, d.RecordCount
	e.Enabled, e.Decided, e.Last, e.Fingerprint = f[0] == "1", parseMS(f[1]), parseMS(f[2]), f[3]
	return e
}

func parseMS(digits string) time.Time {
	ms, _ := strconv.ParseInt(digits, 10, 64)
	return fromMS(ms)
}

// Entries returns all entries of cron that are registered, by key.
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
		for instance, keys := range by {
			for some := range slices.Chunk(keys, MaxCall) {
				read, err := s.readEntries(ctx, instance, "", some)
				if err != nil {
					return err
				}
				for _, e := range read.Entries {
					if !e.Missing {
						all = append(all, e.entry(instance, read.Now))
					}
				}
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return all, err
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
		keys := append(s.keys.cron(instance), s.keys.dispatches(instance, key), s.keys.removed(instance, key))
		err := s.found(ctx, key, scriptUnschedule, keys, key)
		if err != nil {
			return err
		}
		return s.disown(ctx, key)
	})
}

// entry finds the instance of an entry.
func (s *Store) entry(ctx context.Context, op, key string, f func(instance string) error) error {
	if err := validName("entry", key); err != nil {
		return err
	}
	return s.do(ctx, op, func() error {
		owner, err := s.rdb.HMGet(ctx, s.keys.entries(), key).Result()
		if err != nil {
			return s.named(ctx, err, s.keys.entries(), "hash")
		}
		instance, ok := owner[0].(string)
		if !ok {
			return fmt.Errorf("%w: entry %s", ErrNotFound, key)
		}
		return f(instance)
	})
}

// found runs a script that says whether there is the entry.
func (s *Store) found(ctx context.Context, key string, sc script, keys []string, args ...any) error {
	reply, err := s.run(ctx, sc, keys, args...)
	if err != nil {
		return err
	}
	p := reader{v: reply}
	if p.int() == 0 {
		return fmt.Errorf("%w: entry %s", ErrNotFound, key)
	}
	return nil
}
