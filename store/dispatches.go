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

	"github.com/redis/go-redis/v9"
)

// DispatchFilter selects records of ticks; the zero one selects all.
type DispatchFilter struct {
	Entry    string    // "": all, by key
	Status   string    // "": any
	Node     string    // "": any
	From, To time.Time // ticks at these times and between; zero: no bound

	Cursor string // Next of the page before, or ""
	Limit  int    // 0: 100; at most MaxCall
}

// DispatchPage is a part of a listing. Next is empty on the last page.
type DispatchPage struct {
	Dispatches []Dispatch
	Next       string
}

// FindDispatch returns the record of an entry's tick, or ErrNotFound. Where many ticks were skipped at once a record stands for all of them:
// see Dispatch.First.
func (s *Store) FindDispatch(ctx context.Context, entry string, tick time.Time) (Dispatch, error) {
	var found Dispatch
	err := s.entry(ctx, "finding a dispatch", entry, func(instance string) error {
		key, at := s.keys.dispatches(instance, entry), strconv.FormatInt(ms(tick), 10)
		for look := range findLooks { // between a tick and a later one that stands for it there may be what was done by hand, or has failed
			z := redis.ZRangeArgs{Key: key, Start: at, Stop: "+inf", ByScore: true, Offset: int64(look) * dispatchStep, Count: dispatchStep}
			some, err := s.rdb.ZRangeArgs(ctx, z).Result()
			if err != nil {
				return s.named(ctx, err, key, "zset")
			}
			for _, member := range some {
				d, ok := parseDispatch(instance, entry, member)
				if ok && !d.ByHand && !d.First.After(tick) && !d.FireAt.Before(tick.Truncate(time.Millisecond)) {
					found = d
					return nil
				}
			}
			if len(some) < dispatchStep {
				break
			}
		}
		return fmt.Errorf("%w: no record of %s for %v", ErrNotFound, entry, tick)
	})
	return found, err
}

// Dispatched reports whether the job of an entry's tick was enqueued. A tick that was skipped or has failed was not dispatched.
func (s *Store) Dispatched(ctx context.Context, entry string, tick time.Time) (bool, error) {
	d, err := s.FindDispatch(ctx, entry, tick)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && d.Status == StatusDispatched, err
}

// A listing looks for a page at dispatchMost records, and reads at most dispatchReads times; a search for one tick findLooks times, as far as
// dispatch.lua looks; dispatchStep records at a time.
const (
	dispatchMost  = 10_000
	dispatchReads = 200
	findLooks     = 2
	dispatchStep  = 500
)

// ownersOf returns the instances that entries belong to: of one, or of all.
func (s *Store) ownersOf(ctx context.Context, entry string) (map[string]string, error) {
	if entry == "" {
		owners, err := s.rdb.HGetAll(ctx, s.keys.entries()).Result()
		return owners, s.named(ctx, err, s.keys.entries(), "hash")
	}
	names, err := s.names(ctx, []string{entry})
	if err != nil || names[0] == "" {
		return nil, err
	}
	return map[string]string{entry: names[0]}, nil
}

// Dispatches returns a page of the records that f selects: by the entry's key, the latest tick first. One page looks at 10,000
// records, of 200 entries, at most and so may be shorter than f.Limit, or empty: only an empty Next says that it is the last. A
// record that stands for many is listed by the last of its ticks. A *KeyError names records that can't be read; the page has
// those of other entries.
func (s *Store) Dispatches(ctx context.Context, f DispatchFilter) (DispatchPage, error) {
	limit, err := pageLimit(f.Limit, "records")
	if err != nil {
		return DispatchPage{}, err
	}
	at, err := parseDispatchCursor(f.Cursor)
	if err != nil {
		return DispatchPage{}, err
	}
	if f.Entry != "" {
		if err := validName("entry", f.Entry); err != nil {
			return DispatchPage{}, err
		}
	}
	var page DispatchPage
	err = s.do(ctx, "listing dispatches", func() error {
		owners, err := s.ownersOf(ctx, f.Entry)
		if err != nil {
			return err
		}
		var keys []string
		for key := range owners {
			if key >= at.entry {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		reads, seen, bad := 0, 0, error(nil)
		for _, key := range keys {
			if key != at.entry {
				at = dispatchCursor{entry: key, score: math.Inf(1)}
			}
			for {
				if reads++; reads > dispatchReads || seen >= dispatchMost || len(page.Dispatches) == limit {
					page.Next = at.String()
					return bad
				}
				n, more, err := s.pageOf(ctx, owners[key], f, &at, limit, &page)
				if err != nil && !foreign(err) {
					return err
				}
				seen += n
				if bad = errors.Join(bad, err); !more {
					break
				}
			}
		}
		return bad
	})
	return page, err
}

// pageOf goes through some records of one entry after the cursor, which it moves on. It returns how many it has read.
func (s *Store) pageOf(ctx context.Context, instance string, f DispatchFilter, at *dispatchCursor, limit int, page *DispatchPage) (n int, more bool, err error) {
	key := s.keys.dispatches(instance, at.entry)
	low, high := "-inf", at.score
	if !f.From.IsZero() {
		low = strconv.FormatInt(ms(f.From), 10)
	}
	if !f.To.IsZero() {
		high = min(high, float64(ms(f.To)))
	}
	top := "+inf"
	if !math.IsInf(high, 1) {
		top = strconv.FormatFloat(high, 'f', 0, 64)
	}
	some, err := s.rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: key, Start: top, Stop: low, ByScore: true, Rev: true, Count: dispatchStep}).Result()
	if err != nil {
		return 0, false, s.named(ctx, err, key, "zset")
	}
	for _, z := range some {
		member, _ := z.Member.(string)
		if z.Score == at.score && member >= at.member {
			continue // of the page before
		}
		if len(page.Dispatches) == limit {
			return len(some), true, nil
		}
		at.score, at.member = z.Score, member
		d, ok := parseDispatch(instance, at.entry, member)
		if ok && (f.Status == "" || f.Status == d.Status) && (f.Node == "" || f.Node == d.Node) {
			page.Dispatches = append(page.Dispatches, d)
		}
	}
	return len(some), len(some) == dispatchStep, nil
}

// parseDispatch reads a record:
//
//	letter tick first at n node... job... reason
//
// The node has n bytes, the job, which only what was dispatched has, 16.
func parseDispatch(instance, entry, record string) (d Dispatch, ok bool) {
	f := strings.SplitN(record, " ", 6)
	if len(f) != 6 || len(f[0]) != 1 {
		return d, false
	}
	n, err := strconv.Atoi(f[4])
	if err != nil || n < 0 || n > len(f[5]) {
		return d, false
	}
	d = Dispatch{Entry: entry, Instance: instance, FireAt: parseMS(f[1]), First: parseMS(f[2]), DispatchedAt: parseMS(f[3]), Node: f[5][:n]}
	rest := f[5][n:]
	switch f[0] {
	case "d", "h":
		d.Status, d.ByHand = StatusDispatched, f[0] == "h"
		if len(rest) < len(d.Job) {
			return d, false
		}
		rest = rest[copy(d.Job[:], rest):]
	case "s":
		d.Status = StatusSkipped
	case "f":
		d.Status = StatusFailed
	default:
		return d, false
	}
	d.Reason = rest
	return d, true
}

// dispatchCursor is the last record that was looked at for a page.
type dispatchCursor struct {
	entry  string
	score  float64
	member string
}

func (c dispatchCursor) String() string {
	text := strings.Join([]string{c.entry, strconv.FormatFloat(c.score, 'f', -1, 64), c.member}, " ")
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parseDispatchCursor(text string) (dispatchCursor, error) {
	if text == "" {
		return dispatchCursor{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	f := strings.SplitN(string(b), " ", 3)
	if err != nil || len(f) != 3 || validName("entry", f[0]) != nil {
		return dispatchCursor{}, invalid("not a cursor: %.40q", text)
	}
	score, err := strconv.ParseFloat(f[1], 64)
	if err != nil || math.IsNaN(score) {
		return dispatchCursor{}, invalid("not a cursor: %.40q", text)
	}
	return dispatchCursor{f[0], score, f[2]}, nil
}
