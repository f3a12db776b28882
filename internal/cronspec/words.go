package cronspec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String says in words when the spec fires.
func (s Spec) String() string {
	switch {
	case s.every > 0:
		return "every " + short(s.every) + ", counted from 1970"
	case s.line == nil:
		return "never"
	}
	words := s.timeOfDay() + " " + s.days()
	if s.text[4] != "*" {
		words += " in " + list(values(s.line.Month, 1, 12), func(n int) string { return time.Month(n).String() })
	}
	return words + ", " + s.zone.String() + " time"
}

// short writes a duration without the zeros at its end.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// maxTimes is how many times of day are named one by one.
const maxTimes = 6

func (s Spec) timeOfDay() string {
	seconds, minutes, hours := values(s.line.Second, 0, 59), values(s.line.Minute, 0, 59), values(s.line.Hour, 0, 23)
	if n := len(seconds) * len(minutes) * len(hours); n <= maxTimes {
		var times []string
		for _, h := range hours {
			for _, m := range minutes {
				for _, sec := range seconds {
					one := fmt.Sprintf("%02d:%02d", h, m)
					if len(seconds) > 1 || sec > 0 {
						one += fmt.Sprintf(":%02d", sec)
					}
					times = append(times, one)
				}
			}
		}
		return "at " + join(times)
	}
	var parts []string
	if len(seconds) > 1 || seconds[0] > 0 {
		parts = append(parts, unit("second", s.text[0], seconds))
	}
	parts = append(parts, unit("minute", s.text[1], minutes), unit("hour", s.text[2], hours))
	return "at " + strings.Join(parts, " of ")
}

// unit says which seconds, minutes or hours.
func unit(name, text string, all []int) string {
	if text == "*" {
		return "every " + name
	}
	if step, ok := strings.CutPrefix(text, "*/"); ok && !strings.Contains(step, ",") {
		return "every " + name + " that is a multiple of " + step
	}
	return name + " " + list(all, strconv.Itoa)
}

func (s Spec) days() string {
	of := func() string {
		return "on day " + list(values(s.line.Dom, 1, 31), strconv.Itoa) + " of the month"
	}
	week := func() string {
		return "on " + list(values(s.line.Dow, 0, 6), func(n int) string { return time.Weekday(n).String() })
	}
	dom, dow := s.text[3], s.text[5]
	switch {
	case dom == "*" && dow == "*":
		return "every day"
	case dow == "*":
		return of()
	case dom == "*":
		return week()
	case dom[0] == '*' || dow[0] == '*':
		return of() + " if it is " + strings.TrimPrefix(week(), "on ")
	}
	return of() + " and " + week()
}

func values(mask uint64, from, to int) (all []int) {
	for n := from; n <= to; n++ {
		if mask&(1<<n) != 0 {
			all = append(all, n)
		}
	}
	return all
}

// list writes numbers, three or more in a row as a range.
func list(all []int, name func(int) string) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
			parts = append(parts, name(all[i]))
		} else {
			parts = append(parts, name(all[i])+" to "+name(all[j]))
		}
		i = j + 1
	}
	return join(parts)
}

func join(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
