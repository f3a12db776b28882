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
)

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
	by := ""
	if !job.Deadline.IsZero() {
		by = strconv.FormatInt(job.Deadline.UnixMilli(), 10)
	}
	about, _ := json.Marshal(stored{d.Spec, d.Zone, d.CatchUp, d.Window, d.Jitter, d.SkipOverlap, d.RecordAge, d.RecordCount})
	template := append([]byte(by+" "), encodeRecord(&job)...)
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

// Owned reports whether it is noted which instance an entry belongs to. That stands in a key of its own, which may be lost when the
// rest is not; to register anew what is missing notes it again.
func (r *Runtime) Owned(ctx context.Context, entry string) (bool, error) {
	var there bool
	err := r.s.do(ctx, "looking for an entry", func() (err error) {
		there, err = r.s.rdb.HExists(ctx, r.s.keys.entries(), entry).Result()
		return r.s.named(ctx, err, r.s.keys.entries(), "hash")
	})
	return there, err
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
