package store

import (
	"context"
	"encoding/base64"
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
	Cursor   string // Next of the page before, or ""
	Limit    int    // 0: 100; at most MaxCall
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

// Stats returns one Stats an instance, by name. It takes a time that does not depend on the number of jobs.
func (s *Store) Stats(ctx context.Context) ([]Stats, error) {
	names, err := s.Instances(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Stats, 0, len(names))
	for _, name := range names {
		st, err := s.stats(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
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

// stateAt turns a script's number of a state, 1 to 7 in the order of states, into the state.
func stateAt(n int64) State {
	if n < 1 || int(n) > len(states) {
		return ""
	}
	return states[n-1]
}

// List returns a page of the jobs that f selects: by instance, then by state in the order of a life; in each, todo, scheduled,
// doing and parked from the first to be served on, the others from the latest to end on. A page has at most 1 MiB and so
// may be shorter than f.Limit; only an empty Next says that it is the last. Jobs that change state meanwhile may be missed, or
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
	if f.State != "" && !slices.Contains(states, f.State) {
		return Page{}, invalid("there is no state %.40q", string(f.State))
	}
	instances := []string{f.Instance}
	if f.Instance == "" {
		if instances, err = s.Instances(ctx); err != nil {
			return Page{}, err
		}
	} else if err := ValidateInstance(f.Instance); err != nil {
		return Page{}, err
	}
	var page Page
	room := int64(maxPage)
	for _, instance := range instances {
		for _, state := range states {
			if f.State != "" && f.State != state || from.before(instance, state) {
				continue
			}
			at := cursor{instance: instance, state: state}
			if from.instance == instance && from.state == state {
				at = from
			}
			more, err := s.list(ctx, &at, limit, &room, &page)
			if err != nil {
				return Page{}, err
			}
			if more || len(page.Jobs) >= limit {
				page.Next = at.String() // maybe an empty page follows
				return page, nil
			}
		}
	}
	return page, nil
}

// maxPage is how many bytes a page may have, unless its first job has more.
const maxPage = 1 << 20

// list fills the page up with what follows the cursor in its state, and moves the cursor on. There is more when the page is
// full.
func (s *Store) list(ctx context.Context, at *cursor, limit int, room *int64, page *Page) (more bool, err error) {
	err = s.do(ctx, "listing", func() error {
		number, first := slices.Index(states, at.state)+1, 0
		if len(page.Jobs) == 0 {
			first = 1
		}
		reply, err := s.run(ctx, scriptList, s.instanceKeys(at.instance), number, limit-len(page.Jobs), at.id, at.score, *room, first)
		if err != nil {
			return err
		}
		p := reader{v: reply}
		more = p.int() == 1
		*room = p.int()
		for l := p.list(); l.more(); {
			at.id, at.score = l.str(), l.str()
			var id uuid.UUID
			copy(id[:], at.id)
			page.Jobs = append(page.Jobs, snapshot(at.instance, id, at.state, at.score, &l))
		}
		return nil
	})
	return more, err
}

// cursor is the last job of a page.
type cursor struct {
	instance  string
	state     State
	id, score string
}

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join([]string{c.instance, string(c.state), c.score, c.id}, " ")))
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	f := strings.SplitN(string(b), " ", 4)
	if err != nil || len(f) != 4 || ValidateInstance(f[0]) != nil || !slices.Contains(states, State(f[1])) {
		return cursor{}, invalid("not a cursor: %.40q", s)
	}
	if n, err := strconv.ParseFloat(f[2], 64); (err != nil || math.IsNaN(n) || len(f[3]) != idLen) && f[2]+f[3] != "" {
		return cursor{}, invalid("not a cursor: %.40q", s)
	}
	return cursor{f[0], State(f[1]), f[3], f[2]}, nil
}

// before reports whether a state of an instance has been listed when the cursor was made.
func (c cursor) before(instance string, state State) bool {
	if c.instance != instance {
		return instance < c.instance
	}
	return slices.Index(states, state) < slices.Index(states, c.state)
}
