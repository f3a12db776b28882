package cronspec_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the same on a machine without zone data

	"github.com/stint-go/stint/internal/cronspec"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func parse(t failer, spec, zone string) cronspec.Spec {
	t.Helper()
	loc, err := cronspec.Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cronspec.Parse(spec, loc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t failer, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ticks returns the first n after a moment.
func ticks(s cronspec.Spec, after time.Time, n int) (all []time.Time) {
	for range n {
		if after = s.Next(after); after.IsZero() {
			break
		}
		all = append(all, after)
	}
	return all
}

func TestTicksAreWhatAnIndependentProgramSays(t *testing.T) {
	text, err := os.ReadFile("testdata/ticks.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows, about := 0, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			about = strings.TrimPrefix(line, "# ")
			continue
		}
		rows++
		cells := strings.Split(line, " | ")
		t.Run(about, func(t *testing.T) {
			s := parse(t, cells[0], cells[1])
			var want []time.Time
			for _, one := range strings.Fields(cells[3]) {
				want = append(want, at(t, one))
			}
			after := at(t, cells[2])
			got := ticks(s, after, len(want))
			if !slices.EqualFunc(got, want, time.Time.Equal) {
				t.Errorf("%s in %s after %v:\ngot  %v\nwant %v", cells[0], cells[1], after, got, want)
			}
			for i, tick := range got {
				if last := s.Last(tick); !last.Equal(tick) {
					t.Errorf("the last tick until %v is %v", tick, last)
				}
				if i > 0 {
					if last := s.Last(tick.Add(-time.Second)); !last.Equal(got[i-1]) {
						t.Errorf("the last tick before %v is %v, want %v", tick, last, got[i-1])
					}
				}
			}
		})
	}
	if rows != 18 {
		t.Errorf("%d rows, want 18", rows)
	}
}

func TestEveryCountsFrom1970(t *testing.T) {
	s := parse(t, "@every 90s", "Europe/Paris")
	for _, c := range []struct{ after, want string }{
		{"1970-01-01T00:00:00Z", "1970-01-01T00:01:30Z"},
		{"1970-01-01T00:01:29.999999999Z", "1970-01-01T00:01:30Z"},
		{"1970-01-01T00:01:30Z", "1970-01-01T00:03:00Z"},
		{"1969-12-31T23:59:00Z", "1970-01-01T00:00:00Z"},
		{"2026-03-29T00:59:30Z", "2026-03-29T01:00:00Z"}, // Paris turns its clocks: that is nothing to it
	} {
		if got := s.Next(at(t, c.after)); !got.Equal(at(t, c.want)) || got.Location().String() != "Europe/Paris" {
			t.Errorf("after %s: %v, want %s", c.after, got, c.want)
		}
	}
	if got := parse(t, "@every 250ms", "").Next(at(t, "2026-01-01T00:00:00.1Z")); !got.Equal(at(t, "2026-01-01T00:00:00.25Z")) {
		t.Errorf("250 ms: %v", got)
	}
}

func TestNamesListsRangesStepsAndSeconds(t *testing.T) {
	for spec, want := range map[string]string{ // the first three ticks after 2026-01-01 (a Thursday), UTC
		"@yearly":                   "2027-01-01T00:00:00Z 2028-01-01T00:00:00Z 2029-01-01T00:00:00Z",
		"@annually":                 "2027-01-01T00:00:00Z 2028-01-01T00:00:00Z 2029-01-01T00:00:00Z",
		"@monthly":                  "2026-02-01T00:00:00Z 2026-03-01T00:00:00Z 2026-04-01T00:00:00Z",
		"@weekly":                   "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z 2026-01-18T00:00:00Z",
		"@daily":                    "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z",
		"@Midnight":                 "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z",
		"@hourly":                   "2026-01-01T01:00:00Z 2026-01-01T02:00:00Z 2026-01-01T03:00:00Z",
		"*/20 30 6 * * *":           "2026-01-01T06:30:00Z 2026-01-01T06:30:20Z 2026-01-01T06:30:40Z",
		"0 0 1 JAN,Jul *":           "2026-07-01T00:00:00Z 2027-01-01T00:00:00Z 2027-07-01T00:00:00Z",
		"0 12 * * THU":              "2026-01-01T12:00:00Z 2026-01-08T12:00:00Z 2026-01-15T12:00:00Z",
		"0 12 * * fri-mon":          "2026-01-02T12:00:00Z 2026-01-03T12:00:00Z 2026-01-04T12:00:00Z",
		"0 22-1 * * *":              "2026-01-01T01:00:00Z 2026-01-01T22:00:00Z 2026-01-01T23:00:00Z",
		"10-20/5 0 * * *":           "2026-01-01T00:10:00Z 2026-01-01T00:15:00Z 2026-01-01T00:20:00Z",
		"50/5 0 * * *":              "2026-01-01T00:50:00Z 2026-01-01T00:55:00Z 2026-01-02T00:50:00Z",
		"  0\t4  * * *  ":           "2026-01-01T04:00:00Z 2026-01-02T04:00:00Z 2026-01-03T04:00:00Z",
		"0 0 */2 * 1":               "2026-01-05T00:00:00Z 2026-01-19T00:00:00Z 2026-02-09T00:00:00Z", // begins with *: both
		"0 0 2 * 1":                 "2026-01-02T00:00:00Z 2026-01-05T00:00:00Z 2026-01-12T00:00:00Z",
		"CRON_TZ=Asia/Tokyo @daily": "2026-01-01T15:00:00Z 2026-01-02T15:00:00Z 2026-01-03T15:00:00Z",
	} {
		var got []string
		for _, tick := range ticks(parse(t, spec, ""), at(t, "2026-01-01T00:00:00Z"), 3) {
			got = append(got, tick.UTC().Format(time.RFC3339))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s:\ngot  %v\nwant %v", spec, got, want)
		}
	}
}

func TestWhatCannotBeReadIsRefusedWithItsFieldAndPosition(t *testing.T) {
	for spec, want := range map[string]struct {
		field string
		at    int
		says  string
	}{
		"":                                  {"", 1, "before its first field"},
		"   ":                               {"", 4, "before its first field"},
		"* * * *":                           {"", 8, "4 fields"},
		"* * * * * * *":                     {"", 13, "7 fields"},
		"60 * * * *":                        {"minute", 1, "60"},
		"0 24 * * *":                        {"hour", 3, "24"},
		"0  1,25 * * *":                     {"hour", 6, "25"},
		"0 0 32 * *":                        {"day of the month", 5, "32"},
		"0 0 0 * *":                         {"day of the month", 5, "0"},
		"0 0 * 13 *":                        {"month", 7, "13"},
		"0 0 * jan-foo *":                   {"month", 7, "foo"},
		"0 0 * * 8":                         {"day of the week", 9, "8"},
		"0 0 * * mon,,tue":                  {"day of the week", 13, "not a value"},
		"60 0 0 * * *":                      {"second", 1, "60"},
		"0 mon * * *":                       {"hour", 3, "no \"mon\""},
		"*/0 * * * *":                       {"minute", 1, "step"},
		"* 1-2-3 * * *":                     {"hour", 3, "not a value"},
		"* -1 * * *":                        {"hour", 3, "not a value"},
		"H * * * *":                         {"minute", 1, "no \"h\""},
		"0 0 L * *":                         {"day of the month", 5, "no \"l\""},
		"0 0 ? * *":                         {"day of the month", 5, "not a value"},
		"0 0 * * fri#2":                     {"day of the week", 9, "not a value"},
		"1,2,999999999999999999999 * * * *": {"minute", 5, "999"},
		"@dayly":                            {"", 1, "no @dayly"},
		"@daily 1":                          {"", 8, "nothing may follow"},
		"@every":                            {"", 1, "one duration"},
		"@every soon":                       {"", 8, "not a duration"},
		"@every 10ms":                       {"", 8, "not an interval"},
		"@every -1h":                        {"", 8, "not an interval"},
		"@every 100.5ms":                    {"", 8, "not an interval"},
		"CRON_TZ=Mars/Base * * * * *":       {"", 9, "no zone"},
		"CRON_TZ=Local * * * * *":           {"", 9, "another machine"},
		"CRON_TZ=Asia/Tokyo":                {"", 19, "before its first field"},
		"0 0 * * é":                         {"day of the week", 9, "not a value"},
		strings.Repeat("*", 2000):           {"", 1025, "2000 bytes"},
	} {
		_, err := cronspec.Parse(spec, nil)
		var e *cronspec.Error
		if !errors.As(err, &e) {
			t.Errorf("%.60q: %v, want an *Error", spec, err)
			continue
		}
		if e.Field != want.field || e.Position != want.at || !strings.Contains(e.Problem, want.says) {
			t.Errorf("%.60q: %v; want field %q at %d and %q", spec, err, want.field, want.at, want.says)
		}
		if !strings.Contains(err.Error(), want.field) || !strings.Contains(err.Error(), "position") {
			t.Errorf("%.60q: the text %q leaves something out", spec, err)
		}
	}
}

func TestASpecThatNeverFiresHasNoTick(t *testing.T) {
	for _, spec := range []string{"0 0 31 2 *", "0 0 30 feb *", "0 0 31 4,6,9,11 *"} {
		s := parse(t, spec, "Europe/Paris")
		if next, last := s.Next(at(t, "2026-01-01T00:00:00Z")), s.Last(at(t, "2026-01-01T00:00:00Z")); !next.IsZero() || !last.IsZero() {
			t.Errorf("%s: next %v, last %v", spec, next, last)
		}
	}
	if !(cronspec.Spec{}).Next(time.Now()).IsZero() {
		t.Error("the zero Spec fires")
	}
	// The rarest there is: both of the fields begin with *, so both have to hold.
	s := parse(t, "0 0 29 2 */7", "")
	if s.Next(at(t, "2001-01-01T00:00:00Z")).IsZero() {
		t.Error("a 29th of February that is a Sunday is never found")
	}
	if next := s.Next(at(t, "9990-01-01T00:00:00Z")); next.Year() > 9999 {
		t.Errorf("a tick in the year %d", next.Year())
	}
}

func TestAnUnknownZoneIsRefusedAndAMachineWithoutZonesIsTold(t *testing.T) {
	for _, name := range []string{"Mars/Base", "Local", "../etc/passwd", "europe/paris\x00"} {
		if _, err := cronspec.Zone(name); err == nil {
			t.Errorf("%q is taken for a zone", name)
		} else if strings.Contains(err.Error(), "tzdata") {
			t.Errorf("%q: %v, though there are zones", name, err)
		}
	}
	bare := func(name string) (*time.Location, error) {
		if name == "" || name == "UTC" {
			return time.UTC, nil
		}
		return nil, errors.New("unknown time zone " + name)
	}
	if _, err := cronspec.ZoneFrom("Europe/Paris", bare); err == nil || !strings.Contains(err.Error(), `import _ "time/tzdata"`) {
		t.Errorf("without zone data: %v", err)
	}
	if zone, err := cronspec.ZoneFrom("", bare); err != nil || zone != time.UTC {
		t.Errorf("no zone is %v, %v; want UTC", zone, err)
	}
}

func TestAZoneIsLoadedOnce(t *testing.T) {
	first, err := cronspec.Zone("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := cronspec.Zone("America/New_York"); err != nil || again != first {
		t.Errorf("%p and %p, %v; want the same", first, again, err)
	}
	if _, err := cronspec.Zone("Mars/Base"); err == nil {
		t.Error("an unknown zone is not refused")
	}
	if _, err := cronspec.Zone("Local"); err == nil {
		t.Error("Local is not refused")
	}
}

func TestASpecSaysInWordsWhenItFires(t *testing.T) {
	for spec, want := range map[string]string{
		"30 2 * * *":                "at 02:30 every day, Europe/Paris time",
		"0,30 2 * * *":              "at 02:00 and 02:30 every day, Europe/Paris time",
		"15 30 2 * * *":             "at 02:30:15 every day, Europe/Paris time",
		"*/15 * * * *":              "at every minute that is a multiple of 15 of every hour every day, Europe/Paris time",
		"0 * * * mon-fri":           "at minute 0 of every hour on Monday to Friday, Europe/Paris time",
		"0 9 1,15 jan-mar *":        "at 09:00 on day 1 and 15 of the month in January to March, Europe/Paris time",
		"0 0 13 * 5":                "at 00:00 on day 13 of the month and on Friday, Europe/Paris time",
		"0 0 */2 * 5":               "at 00:00 on day " + "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29 and 31" + " of the month if it is Friday, Europe/Paris time",
		"0-30/10 8-18 * * *":        "at minute 0, 10, 20 and 30 of hour 8 to 18 every day, Europe/Paris time",
		"* * * * * *":               "at every second of every minute of every hour every day, Europe/Paris time",
		"@every 90m":                "every 1h30m, counted from 1970",
		"@every 2h":                 "every 2h, counted from 1970",
		"CRON_TZ=Asia/Tokyo @daily": "at 00:00 every day, Asia/Tokyo time",
	} {
		if got := parse(t, spec, "Europe/Paris").String(); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", spec, got, want)
		}
	}
}

// Go's bounds of a zone end before they begin on the last day of a leap year that is beyond the zone's table.
func TestTheLastDayOfALeapYearHasItsTicks(t *testing.T) {
	for spec, want := range map[string]string{"30 2 * * *": "2040-12-31T01:30:00Z 2041-01-01T01:30:00Z", "*/30 12 * * *": "2040-12-30T11:30:00Z 2040-12-31T11:00:00Z"} {
		var got []string
		for _, tick := range ticks(parse(t, spec, "Europe/Paris"), at(t, "2040-12-30T11:00:00Z"), 2) {
			got = append(got, tick.UTC().Format(time.RFC3339))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s:\ngot  %v\nwant %s", spec, got, want)
		}
	}
}
