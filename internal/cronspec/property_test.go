package cronspec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/cronspec"
)

// zones with gaps and repeated hours of all kinds: at midnight, of half an hour, of a whole day, in the south, none at all.
var zones = []string{"UTC", "America/New_York", "Europe/Paris", "Europe/London", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo",
	"Asia/Kolkata", "America/St_Johns", "Pacific/Apia", "Asia/Tehran", "Africa/Casablanca", "Pacific/Kwajalein", "Antarctica/Troll"}

func anyZone(t *rapid.T) *time.Location {
	zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func anyMoment(t *rapid.T) time.Time {
	from, to := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	return time.UnixMilli(rapid.Int64Range(from.UnixMilli(), to.UnixMilli()).Draw(t, "moment"))
}

func anyField(t *rapid.T, name string, from, to int, stars bool) string {
	n := func(what string) int { return rapid.IntRange(from, to).Draw(t, name+" "+what) }
	kind := rapid.IntRange(0, 5).Draw(t, name)
	if !stars {
		kind = rapid.IntRange(0, 3).Draw(t, name+" without *")
	}
	switch kind {
	case 0, 1:
		return fmt.Sprint(n("value"))
	case 2:
		return fmt.Sprintf("%d,%d", n("value"), n("other"))
	case 3:
		low := rapid.IntRange(from, to-1).Draw(t, name+" low")
		high := rapid.IntRange(low+1, to).Draw(t, name+" high")
		return fmt.Sprintf("%d-%d/%d", low, high, rapid.IntRange(1, high-low).Draw(t, name+" step"))
	case 4:
		return fmt.Sprintf("*/%d", rapid.IntRange(1, to-from).Draw(t, name+" step"))
	}
	return "*"
}

func anySpec(t *rapid.T, fixed bool) string {
	f := []string{anyField(t, "minute", 0, 59, !fixed), anyField(t, "hour", 0, 23, !fixed), "*", "*", "*"}
	if rapid.Bool().Draw(t, "with days") {
		f[2], f[3], f[4] = anyField(t, "day", 1, 31, true), anyField(t, "month", 1, 12, true), anyField(t, "weekday", 0, 7, true)
	}
	return strings.Join(f, " ")
}

// A line at one time of day fires exactly once on each day that the calendar of its zone has, whatever is done to the clocks.
func TestNoFixedTimeDayIsLostOrDoubled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, start := anyZone(t), anyMoment(t)
		hour, minute := rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute")
		s := parse(t, fmt.Sprintf("%d %d * * *", minute, hour), zone.String())
		local := start.In(zone)
		day := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC).AddDate(0, 0, 1)
		// From well before the first of the days, so that none of them is begun already.
		tick := s.Last(day.Add(-40 * time.Hour))
		var got []time.Time
		for wall := day; wall.Before(day.AddDate(0, 0, 400)); {
			if tick = s.Next(tick); tick.IsZero() {
				t.Fatal("it ends")
			}
			wall = time.Date(tick.Year(), tick.Month(), tick.Day(), tick.Hour(), tick.Minute(), tick.Second(), 0, time.UTC)
			got = append(got, wall)
		}
		for d := day; d.Before(day.AddDate(0, 0, 398)); d = d.AddDate(0, 0, 1) {
			want := d.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
			// What falls into a gap stands on the wall as the gap's end: one tick between this time and the next day's.
			n := 0
			for _, wall := range got {
				if !wall.Before(want) && wall.Before(want.AddDate(0, 0, 1)) {
					n++
				}
			}
			if n != 1 && !gapped(zone, want) {
				t.Fatalf("%s fires %d times for %v", zone, n, want)
			}
		}
	})
}

// gapped reports whether a whole day is missing from the zone's calendar about a time on the wall: as in Apia in 2011.
func gapped(zone *time.Location, wall time.Time) bool {
	for h := -50; h <= 50; h++ {
		at := wall.Add(time.Duration(h) * time.Hour).In(zone)
		start, _ := at.ZoneBounds()
		if start.IsZero() {
			continue
		}
		_, was := start.Add(-1).In(zone).Zone()
		_, is := start.In(zone).Zone()
		if is-was > 12*3600 || was-is > 12*3600 {
			return true
		}
	}
	return false
}

func TestTicksIncreaseAndAreTheSameWhereverTheSearchStarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, start := anyZone(t), anyMoment(t)
		s := parse(t, anySpec(t, rapid.Bool().Draw(t, "fixed")), zone.String())
		all := ticks(s, start, 40)
		for i := range all {
			if i > 0 && !all[i].After(all[i-1]) {
				t.Fatalf("after %v comes %v", all[i-1], all[i])
			}
			before := start
			if i > 0 {
				before = all[i-1]
			}
			gap := all[i].Sub(before)
			from := before.Add(time.Duration(rapid.Int64Range(0, int64(gap)-1).Draw(t, "from")))
			if next := s.Next(from); !next.Equal(all[i]) {
				t.Fatalf("from %v the next is %v, from %v it is %v", before, all[i], from, next)
			}
			if last := s.Last(all[i]); !last.Equal(all[i]) {
				t.Fatalf("the last until %v is %v", all[i], last)
			}
		}
	})
}

// The slow way to say the same: minute by minute on the wall.
func TestTicksAreThoseOfASearchMinuteByMinute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, start := anyZone(t), anyMoment(t).Truncate(time.Minute)
		fixed := rapid.Bool().Draw(t, "fixed")
		minute, hour := anyField(t, "minute", 0, 59, !fixed), anyField(t, "hour", 0, 23, !fixed)
		s := parse(t, minute+" "+hour+" * * *", zone.String())
		var ofDay [24 * 60]bool // by the same fields where no clock is changed
		plain, day := parse(t, minute+" "+hour+" * * *", ""), time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		for tick := plain.Next(day.Add(-1)); tick.Day() == 1; tick = plain.Next(tick) {
			ofDay[tick.Hour()*60+tick.Minute()] = true
		}
		matches := func(wall time.Time) bool { return ofDay[wall.Hour()*60+wall.Minute()] }
		byIntervals := minute[0] == '*' || hour[0] == '*'
		var want []time.Time
		seen := map[time.Time]bool{}
		asWall := func(at time.Time) time.Time {
			l := at.In(zone)
			return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
		}
		from, to := start.Add(-30*time.Hour), start.Add(40*time.Hour)
		previous := asWall(from.Add(-time.Minute))
		for at := from; at.Before(to); at = at.Add(time.Minute) {
			wall, fires := asWall(at), false
			if byIntervals {
				fires = matches(wall)
			} else {
				for w := previous.Add(time.Minute); !w.After(wall); w = w.Add(time.Minute) { // more than one where a gap ends
					if !seen[w] && matches(w) {
						fires = true
					}
					seen[w] = true
				}
			}
			if wall.After(previous) || byIntervals {
				previous = wall
			}
			if fires && at.After(start) {
				want = append(want, at)
			}
		}
		got := ticks(s, start, len(want))
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%s %s in %s after %v:\ngot  %v\nwant %v", minute, hour, zone, start, got, want)
		}
	})
}

// What is found from behind is what a search from the front finds.
func TestTheLatestTicksAreTheLastOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, after := anyZone(t), anyMoment(t)
		text := anySpec(t, rapid.Bool().Draw(t, "fixed"))
		if rapid.Bool().Draw(t, "every") {
			text = "@every " + (time.Duration(rapid.IntRange(100, 1e9).Draw(t, "ms")) * time.Millisecond).String()
		}
		spec, err := cronspec.Parse(text, zone)
		if err != nil {
			t.Skip(err)
		}
		var all []time.Time
		until := after
		for n := rapid.IntRange(0, 60).Draw(t, "ticks"); len(all) < n; {
			next := spec.Next(until)
			if next.IsZero() {
				break
			}
			all, until = append(all, next), next
		}
		if next := spec.Next(until); !next.IsZero() { // anywhere up to the next
			until = until.Add(time.Duration(rapid.Float64Range(0, 0.999).Draw(t, "part") * float64(next.Sub(until))))
		}
		n := rapid.IntRange(1, 70).Draw(t, "n")
		want := all[max(0, len(all)-n):]
		if got := spec.Latest(after, until, n); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%q in %v: the latest %d from %v to %v are %v, want %v", text, zone, n, after, until, got, want)
		}
		if last := spec.Last(until); len(all) > 0 && !last.Equal(all[len(all)-1]) {
			t.Fatalf("%q in %v: the last until %v is %v, want %v", text, zone, until, last, all[len(all)-1])
		}
	})
}
