package cronspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// Error is a spec that can't be read.
type Error struct {
	Spec     string
	Field    string // minute, day of the week, ...; "" when it is the spec as a whole
	Position int    // of the byte at which the trouble begins, counted from 1
	Problem  string
}

func (e *Error) Error() string {
	where := fmt.Sprintf("cron spec %q, at position %d", e.Spec, e.Position)
	if e.Field != "" {
		where += ", the " + e.Field
	}
	return where + ": " + e.Problem
}

// MaxText is how many bytes a spec may have, MinEvery the shortest interval of @every.
const (
	MaxText  = 1024
	MinEvery = 100 * time.Millisecond
)

// searchYears is how far a search goes. The rarest day there is, a 29th of February on a given weekday, comes within 40.
const searchYears = 100

// field is one of the six of a line.
type field struct {
	name   string
	parser cron.Parser
	bits   func(*cron.SpecSchedule) uint64
	names  []string // that may stand for numbers
}

var (
	monthNames   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	fields       = []field{
		{"second", cron.MustNewParser(cron.Second), func(s *cron.SpecSchedule) uint64 { return s.Second }, nil},
		{"minute", cron.MustNewParser(cron.Minute), func(s *cron.SpecSchedule) uint64 { return s.Minute }, nil},
		{"hour", cron.MustNewParser(cron.Hour), func(s *cron.SpecSchedule) uint64 { return s.Hour }, nil},
		{"day of the month", cron.MustNewParser(cron.Dom), func(s *cron.SpecSchedule) uint64 { return s.Dom }, nil},
		{"month", cron.MustNewParser(cron.Month), func(s *cron.SpecSchedule) uint64 { return s.Month }, monthNames},
		{"day of the week", cron.MustNewParser(cron.Dow), func(s *cron.SpecSchedule) uint64 { return s.Dow }, weekdayNames},
	}
)

// nicknames stand for lines.
var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// star marks a day field that begins with *, for the library: such a field does not restrict, it has to hold beside the other.
const star = 1 << 63

// word is a part of the spec and where it begins, counted from 1.
type word struct {
	text string
	at   int
}

// Parse reads a spec: five fields, or six with the second first; @every and a duration; or @daily and its kin. CRON_TZ=zone
// before it overrides the zone; nil is UTC. An error is an *Error, or that of [Zone].
//
// A field is a list of values, ranges (from-to, which may run over the end: fri-mon) and steps (*/n, from-to/n, from/n); months and
// weekdays may be named by three letters; 7 is Sunday as 0 is. If neither of the two day fields begins with * a day has to match one of
// them, else both.
func Parse(text string, zone *time.Location) (Spec, error) {
	if zone == nil {
		zone = time.UTC
	}
	whole := func(at int, format string, a ...any) (Spec, error) {
		return Spec{}, &Error{Spec: text, Position: at, Problem: fmt.Sprintf(format, a...)}
	}
	if len(text) > MaxText {
		return Spec{}, &Error{Spec: text[:40] + "...", Position: MaxText + 1, Problem: fmt.Sprintf("it has %d bytes; at most %d are allowed", len(text), MaxText)}
	}
	words := split(text)
	if len(words) > 0 && strings.HasPrefix(words[0].text, "CRON_TZ=") {
		var err error
		if zone, err = Zone(words[0].text[len("CRON_TZ="):]); err != nil {
			return whole(words[0].at+len("CRON_TZ="), "%v", err)
		}
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		return whole(len(text)+1, "it ends before its first field")
	case words[0].text == "@every":
		return parseEvery(text, words, zone)
	case words[0].text[0] == '@':
		line, ok := nicknames[strings.ToLower(words[0].text)]
		if !ok {
			return whole(words[0].at, "there is no %.40s", words[0].text)
		}
		if len(words) > 1 {
			return whole(words[1].at, "nothing may follow %s", words[0].text)
		}
		words = split(line)
	}
	switch len(words) {
	case len(fields):
	case len(fields) - 1:
		words = append([]word{{"0", 1}}, words...)
	default:
		at := len(text) + 1
		if len(words) > len(fields) {
			at = words[len(fields)].at
		}
		return whole(at, "it has %d fields; 5 are allowed, or 6 with the second first", len(words))
	}
	return parseFields(text, words, zone)
}

// split cuts a text at spaces and tabs.
func split(text string) (words []word) {
	at := -1
	for i := 0; i <= len(text); i++ {
		blank := i == len(text) || text[i] == ' ' || text[i] == '\t'
		switch {
		case blank && at >= 0:
			words = append(words, word{text[at:i], at + 1})
			at = -1
		case !blank && at < 0:
			at = i
		}
	}
	return words
}

func parseEvery(text string, words []word, zone *time.Location) (Spec, error) {
	if len(words) != 2 {
		return Spec{}, &Error{Spec: text, Position: words[0].at, Problem: "@every is followed by one duration"}
	}
	every, err := time.ParseDuration(words[1].text)
	switch {
	case err != nil:
		return Spec{}, &Error{Spec: text, Position: words[1].at, Problem: fmt.Sprintf("%.40q is not a duration", words[1].text)}
	case every < MinEvery || every%time.Millisecond != 0:
		return Spec{}, &Error{Spec: text, Position: words[1].at,
			Problem: fmt.Sprintf("%v is not an interval of whole milliseconds, %v or longer", every, MinEvery)}
	}
	return Spec{every: every, zone: zone}, nil
}

func parseFields(text string, words []word, zone *time.Location) (Spec, error) {
	var mask [6]uint64
	for i, w := range words {
		from := w.at
		for item := range strings.SplitSeq(w.text, ",") {
			bits, problem := fields[i].parse(item)
			if problem != "" {
				return Spec{}, &Error{Spec: text, Field: fields[i].name, Position: from, Problem: problem}
			}
			mask[i] |= bits &^ star
			from += len(item) + 1
		}
		if i != 3 && i != 5 {
			continue
		}
		if w.text[0] == '*' {
			mask[i] |= star
		}
	}
	s := Spec{zone: zone, fixed: words[1].text[0] != '*' && words[2].text[0] != '*'}
	for i, w := range words {
		s.text[i] = w.text
	}
	s.line = &cron.SpecSchedule{Second: mask[0], Minute: mask[1], Hour: mask[2], Dom: mask[3], Month: mask[4], Dow: mask[5],
		Location: time.UTC, MaxSearchYears: searchYears, DowOrDom: true}
	return s, nil
}

// form is what an item of a field's list looks like.
var form = regexp.MustCompile(`^(?:\*|([0-9]+|[a-z]+)(?:-([0-9]+|[a-z]+))?)(?:/[0-9]+)?$`)

// parse reads an item of the field's list, or says what is wrong with it.
func (f *field) parse(item string) (bits uint64, problem string) {
	low := strings.ToLower(item)
	parts := form.FindStringSubmatch(low)
	if parts == nil {
		return 0, fmt.Sprintf("%.40q is not a value, a range or a step", item)
	}
	for _, p := range parts[1:] {
		if p != "" && p[0] >= 'a' && !slices.Contains(f.names, p) {
			return 0, fmt.Sprintf("there is no %.40q", p)
		}
	}
	schedule, err := f.parser.Parse(low)
	if err != nil {
		return 0, err.Error()
	}
	one, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return 0, fmt.Sprintf("%.40q is not a value, a range or a step", item)
	}
	return f.bits(one), ""
}
