package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

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

// List returns a page of the jobs that f selects: by instance, then by state in the order of a life; in each, todo, scheduled,
// doing and parked from the first to be served on, the others from the latest to end on. A page has at most 1 MiB and so
// may be shorter than f.Limit; so may one for which 10,000 jobs were looked at, of which f.Error or f.OlderThan left few or
// none. Only an empty Next says that it is the last. Jobs that change state meanwhile may be missed, or
// be seen twice; so may jobs be seen twice that are doing, whose order changes with each heartbeat.
//
// Where a foreign key spoils an instance, the jobs of the others are returned together with its *KeyError, and Next leads on past it.
func (s *Store) List(ctx context.Context, f Filter) (Page, error) {
	limit, err := pageLimit(f.Limit, "jobs")
	if err != nil {
		return Page{}, err
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
	var spoilt []error
	room, looks := int64(maxPage), 0
	for _, instance := range instances {
	sets:
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
				more, full, err = s.list(ctx, f, &at, limit-len(page.Jobs), &room, &page)
				if foreign(err) {
					spoilt = append(spoilt, err)
					break sets // it is the same with all of the instance's
				}
				if err != nil {
					return Page{}, err
				}
				if more {
					looks++
				}
				if full || len(page.Jobs) >= limit || looks >= maxLooks {
					page.Next = at.String() // maybe an empty page follows
					return page, errors.Join(spoilt...)
				}
			}
		}
	}
	return page, errors.Join(spoilt...)
}

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

// pageLimit is how many of what a page may have at most, where n were asked for.
func pageLimit(n int, what string) (int, error) {
	if n < 0 || n > MaxCall {
		return 0, invalid("a page of %d %s; 1 to %d are allowed", n, what, MaxCall)
	}
	return cmp.Or(n, 100), nil
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
		p, err := s.run(ctx, scriptList, s.instanceKeys(at.instance), set, limit, at.id, at.score, *room, first, f.age(), f.Error)
		if err != nil {
			return err
		}
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

// cursor is the last member of a set that was looked at for a page: a job, or in doing a worker.
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
