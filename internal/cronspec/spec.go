package cronspec

import (
	"slices"
	"time"

	cron "github.com/netresearch/go-cron"
)

// Spec is a cron line in a zone. Its zero value never fires.
type Spec struct {
	every time.Duration
	line  *cron.SpecSchedule // on the clock on the wall: its zone is UTC
	fixed bool               // neither the minute nor the hour begins with *
	text  [6]string          // the fields as they were written
	zone  *time.Location
}

// Zone returns the spec's zone.
func (s Spec) Zone() *time.Location {
	if s.zone == nil {
		return time.UTC
	}
	return s.zone
}

// Next returns the first tick after a moment, in the spec's zone; the zero time if there is none within 100 years, or before
// the year 10000.
//
// A fixed-time line, whose minute and hour both do not begin with *, fires on each matching time of day once: at its first
// occurrence where the clock is turned back, and where the clock is turned forward over it at the moment of that, once for all that
// falls into the gap. Any other line is one of intervals: it fires whenever the clock on the wall matches, in both passes
// of an hour that comes twice, and not in one that there is not. @every counts from 1970, so it is the same in all processes.
func (s Spec) Next(after time.Time) time.Time {
	after = after.Round(0)
	var next time.Time
	switch {
	case s.every > 0:
		next = s.nextEvery(after)
	case s.line == nil:
	case s.fixed:
		next = s.nextFixed(after)
	default:
		next = s.nextInterval(after)
	}
	if next.IsZero() || next.Year() > 9999 {
		return time.Time{}
	}
	return next.In(s.Zone())
}

// Last returns the last tick that is not after a moment, in the spec's zone; the zero time if there was none within 100 years.
func (s Spec) Last(until time.Time) time.Time { return s.last(until, time.Second) }

// Latest returns the latest n ticks after one moment and not after another, the earliest first, or as many as there are.
func (s Spec) Latest(after, until time.Time, n int) []time.Time {
	var all []time.Time
	for gap := time.Second; len(all) < n; {
		t := s.last(until, gap)
		if t.IsZero() || !t.After(after) {
			break
		}
		if len(all) > 0 {
			gap = all[len(all)-1].Sub(t) // it will hardly be longer to the one before
		}
		all, until = append(all, t), t.Add(-time.Nanosecond)
	}
	slices.Reverse(all)
	return all
}

// last is Last for who knows about how long ago it may be. It takes the fewer steps the better that is known, and a few dozen at most: first
// it goes back further and further until there is a tick, then halves what lies between the last that it knows of and the moment.
func (s Spec) last(until time.Time, back time.Duration) time.Time {
	if s.every > 0 {
		return s.nextEvery(until.Add(-s.every)).In(s.Zone())
	}
	var last time.Time
	for ; last.IsZero(); back *= 2 {
		if back > searchYears*366*24*time.Hour {
			return time.Time{}
		}
		if next := s.Next(until.Add(-back)); !next.IsZero() && !next.After(until) {
			last = next
		}
	}
	for end := until; ; {
		next := s.Next(last)
		if next.IsZero() || next.After(until) {
			return last
		}
		last = next
		middle := last.Add(end.Sub(last) / 2)
		if next = s.Next(middle); next.IsZero() || next.After(until) {
			end = middle
		} else {
			last = next
		}
	}
}

func (s Spec) nextEvery(after time.Time) time.Time {
	ms, every := after.UnixMilli(), s.every.Milliseconds() // UnixMilli rounds down
	n := ms / every
	if ms%every < 0 {
		n--
	}
	return time.UnixMilli((n + 1) * every)
}

// Times on the wall are written as instants in UTC.

// naive returns the first matching time on the wall that is not before from, or the zero time.
func (s Spec) naive(from time.Time) time.Time {
	return s.line.Next(from.Add(-time.Nanosecond).Truncate(time.Second))
}

// nextInterval follows elapsed time: from one stretch of a constant offset to the next.
func (s Spec) nextInterval(after time.Time) time.Time {
	from, limit := after.Add(time.Nanosecond), after.AddDate(searchYears, 0, 0)
	for from.Before(limit) {
		_, end := bounds(from, s.zone)
		offset := offsetAt(from, s.zone)
		wall := s.naive(from.UTC().Add(offset))
		if wall.IsZero() {
			return time.Time{}
		}
		if next := wall.Add(-offset); end.IsZero() || next.Before(end) {
			return next
		}
		from = end
	}
	return time.Time{}
}

// nextFixed maps each matching time on the wall to one instant.
func (s Spec) nextFixed(after time.Time) time.Time {
	from := furthest(after, s.zone).Add(time.Nanosecond)
	for {
		wall := s.naive(from)
		if wall.IsZero() {
			return time.Time{}
		}
		if next := instant(wall, s.zone); next.After(after) {
			return next
		}
		from = wall.Add(time.Nanosecond)
	}
}

// furthest returns the latest time that the clock on the wall has shown until a moment: where it was turned back, that is more than
// it shows now. All times up to it have had their first occurrence.
func furthest(t time.Time, zone *time.Location) time.Time {
	most := t.UTC().Add(offsetAt(t, zone))
	start, _ := bounds(t, zone)
	for !start.IsZero() && t.Sub(start) < 48*time.Hour {
		before := start.Add(-time.Nanosecond)
		if wall := before.UTC().Add(offsetAt(before, zone)); wall.After(most) {
			most = wall
		}
		start, _ = bounds(before, zone)
	}
	return most
}

// instant returns when the clock on the wall shows a time first or, where it is turned forward over it, when it is.
func instant(wall time.Time, zone *time.Location) time.Time {
	at := wall.Add(-16 * time.Hour) // no zone was ever further from UTC
	for {
		start, end := bounds(at, zone)
		shows := wall.Add(-offsetAt(at, zone))
		switch {
		case !start.IsZero() && shows.Before(start):
			return start
		case end.IsZero() || shows.Before(end):
			return shows
		}
		at = end
	}
}

func offsetAt(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// bounds returns from when until when a zone's offset is what it is at a moment, or a part of that time; the zero time is no bound.
func bounds(t time.Time, zone *time.Location) (start, end time.Time) {
	start, end = t.In(zone).ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// Where a zone goes on by a rule, Go takes each year for one of 365 days, and the last of a leap year for one beyond
		// its end. No clock is turned then.
		end = t.Add(24 * time.Hour)
	}
	return start, end
}
