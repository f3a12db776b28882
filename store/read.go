package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Stats counts an instance's jobs, in one atomic snapshot.
type Stats struct {
	Instance                                              string
	Total                                                 int64 // records; the sum of the states
	Todo, Scheduled, Doing, Parked, Done, Dead, Cancelled int64

	Paused     bool
	OldestTodo time.Duration // how long the oldest of the todo has been so
}

// Filter selects jobs for List; the zero Filter selects all.
type Filter struct {
	Instance string // "": all, by name
	State    State  // "": all, in the order of a job's life
	// Error selects the jobs whose LastError contains it, OlderThan those that have been todo, or ended, for so long.
	Error     string
	OlderThan time.Duration

	Cursor string // Next of the page before, or ""
	Limit  int    // 0: 100; at most MaxCall
}

// Page is a part of a listing. Next is empty on the last page.
type Page struct {
	Jobs []Job
	Next string
}

// Instances returns the names of all instances that jobs were enqueued for or that a process has served, sorted.
func (s *Store) Instances(ctx context.Context) ([]string, error) {
	var names []string
	err := s.do(ctx, "listing instances", func() (err error) {
		names, err = s.rdb.SMembers(ctx, s.keys.instances()).Result()
		return s.named(ctx, err, s.keys.instances(), "set")
	})
	slices.Sort(names)
	return names, err
}

// Stats returns one Stats an instance, by name. It takes a time that does not depend on the number of jobs. Where a foreign key
// spoils an instance, the others are returned together with its *KeyError.
func (s *Store) Stats(ctx context.Context) ([]Stats, error) {
	names, err := s.Instances(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Stats, 0, len(names))
	var spoilt []error
	for _, name := range names {
		st, err := s.stats(ctx, name)
		var key *KeyError
		switch {
		case errors.As(err, &key):
			spoilt = append(spoilt, err)
		case err != nil:
			return nil, err
		default:
			all = append(all, st)
		}
	}
	return all, errors.Join(spoilt...)
}

func (s *Store) stats(ctx context.Context, instance string) (Stats, error) {
	st := Stats{Instance: instance}
	err := s.do(ctx, "counting", func() error {
		reply, err := s.run(ctx, scriptStats, s.instanceKeys(instance))
		if err != nil {
			return err
		}
		p := reader{v: reply}
		st.Total = p.int()
		counts := p.list()
		for _, n := range []*int64{&st.Scheduled, &st.Todo, &st.Doing, &st.Parked, &st.Done, &st.Dead, &st.Cancelled} {
			*n = counts.int()
		}
		st.Paused = p.int() == 1
		st.OldestTodo = millis(p.int())
		return nil
	})
	return st, err
}

// find returns the instance of a job, by its id alone: all instances are asked in one pipeline.
func (s *Store) find(ctx context.Context, id uuid.UUID) (string, error) {
	names, err := s.rdb.SMembers(ctx, s.keys.instances()).Result()
	if err != nil {
		return "", s.named(ctx, err, s.keys.instances(), "set")
	}
	pipe := s.rdb.Pipeline()
	asked := make([]*redis.BoolCmd, len(names))
	for i, name := range names {
		asked[i] = pipe.HExists(ctx, s.instanceKeys(name)[kJobs], string(id[:]))
	}
	_, failed := pipe.Exec(ctx)
	for i, name := range names {
		if ok, err := asked[i].Result(); err == nil && ok {
			return name, nil
		}
	}
	for i, name := range names { // it may be where we could not look
		if err := asked[i].Err(); err != nil {
			return "", s.named(ctx, err, s.instanceKeys(name)[kJobs], "hash")
		}
	}
	if failed != nil {
		return "", failed
	}
	return "", fmt.Errorf("%w: %s", ErrNotFound, id)
}

// at runs a script about one job in the instance that has it.
func (s *Store) at(ctx context.Context, op string, id uuid.UUID, f func(instance string, keys []string) error) error {
	return s.do(ctx, op, func() error {
		instance, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		return f(instance, s.instanceKeys(instance))
	})
}

// Get returns a snapshot of a job, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id uuid.UUID) (Job, error) {
	var j Job
	err := s.at(ctx, "reading a job", id, func(instance string, keys []string) (err error) {
		j, err = s.read(ctx, instance, keys, id)
		return err
	})
	return j, err
}

func (s *Store) read(ctx context.Context, instance string, keys []string, id uuid.UUID) (Job, error) {
	reply, err := s.run(ctx, scriptGet, keys, id[:])
	if err != nil {
		return Job{}, err
	}
	if len(reply) == 0 {
		return Job{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	p := reader{v: reply}
	return snapshot(instance, id, stateAt(p.int()), p.str(), &p), nil
}

// List returns a page of the jobs that f selects: by instance, then by state in the order of a life; in each, todo, scheduled,
// doing and parked from the first to be served on, the others from the latest to end on. A page has at most 1 MiB and so
// may be shorter than f.Limit; so may one for which 10,000 jobs were looked at, of which f.Error or f.OlderThan left few or
// none. Only an empty Next says that it is the last. Jobs that change state meanwhile may be missed, or
// be seen twice.
func (s *Store) List(ctx context.Context, f Filter) (Page, error) {
	limit := f.Limit
	switch {
	case limit == 0:
		limit = 100
	case limit < 0 || limit > MaxCall:
		return Page{}, invalid("a page of %d jobs; 1 to %d are allowed", f.Limit, MaxCall)
	}
	from, err := parseCursor(f.Cursor)
	if err != nil {
		return Page{}, err
	}
	instances, err := s.selected(ctx, f)
	if err != nil {
		return Page{}, err
	}
	var page Page
	room, looks := int64(maxPage), 0
	for _, instance := range instances {
		for place, set := range listed {
			if f.State != "" && f.State != stateAt(int64(set)) || from.before(instance, place) {
				continue
			}
			at := cursor{instance: instance, place: place}
			if from.instance == instance && from.place == place {
				at = from
			}
			for more := true; more; {
				var full bool
				if more, full, err = s.list(ctx, f, &at, limit-len(page.Jobs), &room, &page); err != nil {
					return Page{}, err
				}
				if more {
					looks++
				}
				if full || len(page.Jobs) >= limit || looks >= maxLooks {
					page.Next = at.String() // maybe an empty page follows
					return page, nil
				}
			}
		}
	}
	return page, nil
}

// suspectSet is the number of the set of suspects, which are todo, in the scripts; the other sets have their state's.
const suspectSet = 8

// listed are the numbers of the sets in the order in which they are listed.
var listed = []int{1, suspectSet, 2, 3, 4, 5, 6, 7}

// stateAt turns a script's number of a set into the state.
func stateAt(n int64) State {
	switch {
	case n == suspectSet:
		return Todo
	case n < 1 || int(n) > len(states):
		return ""
	}
	return states[n-1]
}

// numberOf is the number of a state's set in the scripts.
func numberOf(state State) int { return slices.Index(states, state) + 1 }

func (f Filter) validate() error {
	switch {
	case f.State != "" && !slices.Contains(states, f.State):
		return invalid("there is no state %.40q", string(f.State))
	case f.OlderThan < 0:
		return invalid("the age %v is negative", f.OlderThan)
	case f.OlderThan > 0 && f.State != Todo && !f.State.Terminal():
		return invalid("jobs are selected by age only where they are todo, done, dead or cancelled")
	case f.Instance != "":
		return ValidateInstance(f.Instance)
	}
	return nil
}

// age is the filter's OlderThan in the scripts' words.
func (f Filter) age() int64 {
	if f.OlderThan == 0 {
		return -1
	}
	return f.OlderThan.Milliseconds()
}

// maxLooks is how often List goes on, 500 jobs at a time, before it returns what it has.
const maxLooks = 20

// maxPage is how many bytes a page may have, unless its first job has more.
const maxPage = 1 << 20

// list fills the page up with what follows the cursor in its set, and moves the cursor on.
func (s *Store) list(ctx context.Context, f Filter, at *cursor, limit int, room *int64, page *Page) (more, full bool, err error) {
	err = s.do(ctx, "listing", func() error {
		set, first := listed[at.place], 0
		if len(page.Jobs) == 0 {
			first = 1
		}
		reply, err := s.run(ctx, scriptList, s.instanceKeys(at.instance), set, limit, at.id, at.score, *room, first, f.age(), f.Error)
		if err != nil {
			return err
		}
		p := reader{v: reply}
		left := p.int()
		more, full = left > 0, left == 2
		*room = p.int()
		at.id, at.score = p.str(), p.str()
		for l := p.list(); l.more(); {
			var id uuid.UUID
			copy(id[:], l.str())
			page.Jobs = append(page.Jobs, snapshot(at.instance, id, stateAt(int64(set)), l.str(), &l))
		}
		return nil
	})
	return more, full, err
}

// cursor is the last job that was looked at for a page.
type cursor struct {
	instance  string
	place     int // in listed
	id, score string
}

func (c cursor) String() string {
	text := strings.Join([]string{c.instance, strconv.Itoa(c.place), c.score, c.id}, " ")
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	f := strings.SplitN(string(b), " ", 4)
	if err != nil || len(f) != 4 || ValidateInstance(f[0]) != nil {
		return cursor{}, invalid("not a cursor: %.40q", s)
	}
	if n, err := strconv.ParseFloat(f[2], 64); (err != nil || math.IsNaN(n) || len(f[3]) != idLen) && f[2]+f[3] != "" {
		return cursor{}, invalid("not a cursor: %.40q", s)
	}
	place, err := strconv.Atoi(f[1])
	if err != nil || place < 0 || place >= len(listed) {
		return cursor{}, invalid("not a cursor: %.40q", s)
	}
	return cursor{f[0], place, f[3], f[2]}, nil
}

// before reports whether a set of an instance has been listed when the cursor was made.
func (c cursor) before(instance string, place int) bool {
	if c.instance != instance {
		return instance < c.instance
	}
	return place < c.place
}
