package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	Barred     Registration = 'f' // the key that would say that it was removed is foreign
)

// Register registers entries of an instance, at most MaxCall; their jobs have about a MiB together. What is registered is replaced: the newest
// registration wins. With missing set only what is not there, or has lost a part, is added, unless it was removed within a day: for a process that
// finds that Redis has lost what it had registered.
//
// The slices have what became of each, and about it: the instance that its key belongs to or, of one that is Barred, what is wrong.
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
	result, about := make([]Registration, len(all)), make([]string, len(all))
	err := r.s.do(ctx, "registering entries", func() (err error) {
		if err = r.s.announce(ctx, instance, false); err != nil {
			return err
		}
		// What was removed must not be noted as ours again: so that is only asked for at first.
		if about, err = r.s.own(ctx, instance, all, !missing); err != nil {
			return err
		}
		var ours []int
		for i := range all {
			if result[i] = Elsewhere; about[i] == instance {
				ours = append(ours, i)
			}
		}
		if err = r.s.register(ctx, instance, all, ours, missing, result, about); err != nil {
			return err
		}
		return r.s.settle(ctx, instance, all, result, about)
	})
	return result, about, err
}

// register registers those of the entries that are ours.
func (s *Store) register(ctx context.Context, instance string, all []Definition, ours []int, missing bool, result []Registration, about []string) error {
	keys, args := s.keys.cron(instance), []any{flag(!missing)}
	for _, i := range ours {
		args, keys = append(args, all[i].words()...), append(keys, s.keys.removed(instance, all[i].Key))
	}
	p, err := s.run(ctx, scriptRegister, keys, args...)
	if err != nil {
		return err
	}
	letters, types := p.str(), p.list()
	if len(letters) != len(ours) {
		return fmt.Errorf("answered for %d entries of %d", len(letters), len(ours))
	}
	for k, i := range ours {
		if result[i] = Registration(letters[k]); result[i] == Barred {
			about[i] = (&KeyError{Key: s.keys.removed(instance, all[i].Key), Type: types.str(), Want: "string"}).Error()
		}
	}
	return nil
}

// settle sees to it that what stands now has its name. Another process may have removed an entry meanwhile, and a third may have
// registered it for another instance then: that one has it, and here it is removed.
func (s *Store) settle(ctx context.Context, instance string, all []Definition, result []Registration, about []string) error {
	keys, at := make([]string, len(all)), map[string]int{}
	for i := range all {
		keys[i], at[all[i].Key] = all[i].Key, i
	}
	elsewhere, err := s.agree(ctx, instance, keys)
	if err != nil {
		return err
	}
	for key, holder := range elsewhere {
		i := at[key]
		if result[i] == Elsewhere {
			continue // it was before: that what stands here does not fire is all that there is to do
		}
		result[i], about[i] = Elsewhere, holder
		if err := s.found(ctx, key, scriptUnschedule, s.keysOf(instance, key), key); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

// entriesOf returns the keys of an instance's entries.
func (s *Store) entriesOf(ctx context.Context, instance string) ([]string, error) {
	key := s.keys.cron(instance)[0]
	all, err := s.rdb.HGetAll(ctx, key).Result()
	return slices.Sorted(maps.Keys(all)), s.named(ctx, err, key, "hash")
}
