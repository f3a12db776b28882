package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// figure is what a measure says of one variant, and between what its rounds lay.
type figure struct{ value, low, high float64 }

// value reads a figure off the samples of a variant; ok is false if they don't have it.
type value func([]sample) (f figure, ok bool)

// median is that of the rounds, with their range.
func median(name string) value {
	return func(all []sample) (figure, bool) { return spread(each(all, name), 0.5) }
}

// percentile is one of all the rounds' figures together.
func percentile(name string, p float64) value {
	return func(all []sample) (figure, bool) { return spread(each(all, name), p/100) }
}

// worst is the greatest of all.
func worst(name string) value { return percentile(name, 100) }

// total is the sum; it is 0 where there is nothing to sum.
func total(name string) value {
	return func(all []sample) (figure, bool) {
		sum := 0.0
		for _, x := range each(all, name) {
			sum += x
		}
		return figure{sum, sum, sum}, len(all) > 0
	}
}

func each(all []sample, name string) (v []float64) {
	for _, s := range all {
		v = append(v, s[name]...)
	}
	return v
}

// spread returns the quantile q: the least of the figures that so many are not greater than. With an even number of rounds
// that is the lower of the two in the middle, so that it is a figure that was measured.
func spread(v []float64, q float64) (figure, bool) {
	if len(v) == 0 {
		return figure{}, false
	}
	v = slices.Sorted(slices.Values(v))
	at := max(int(math.Ceil(q*float64(len(v))))-1, 0)
	return figure{v[at], v[0], v[len(v)-1]}, true
}

// budget is what a measure has to keep to.
type budget struct {
	text  string
	holds func(ours, ratio float64) bool // nil: there is none
}

// times: at least n times the peer.
func times(n float64) budget {
	return budget{fmt.Sprintf(">= %v x", n), func(_, ratio float64) bool { return ratio >= n }}
}

// atMostTimes: at most n times the peer.
func atMostTimes(n float64) budget {
	return budget{fmt.Sprintf("<= %v x", n), func(_, ratio float64) bool { return ratio <= n }}
}

// atMost: at most n, whatever the peer has.
func atMost(n float64) budget {
	return budget{fmt.Sprintf("<= %v", n), func(ours, _ float64) bool { return ours <= n }}
}

// round writes a number with three digits that count.
func round(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a == 0:
		return "0"
	case a >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// group sets digits in threes.
func group(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
