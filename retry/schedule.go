package retry

import (
	"math"
	"slices"
	"time"
)

// Linear returns a policy that always tries again: after step when the first attempt has failed, and step later each further
// time, up to limit. A negative duration is taken as zero; a step over the limit is cut to it.
func Linear(step, limit time.Duration) Policy {
	limit = max(limit, 0)
	return linear{min(max(step, 0), limit), limit}
}

type linear struct{ step, limit time.Duration }

func (l linear) Next(attempt int, _ error) (time.Duration, bool) {
	n := time.Duration(max(attempt, 1))
	if l.step > 0 && n > math.MaxInt64/l.step {
		return l.limit, true
	}
	return min(n*l.step, l.limit), true
}

// Schedule returns a policy that has a delay for each retry, and gives up after the last: with n delays there are at most n+1
// attempts in all. A negative delay is taken as zero. Without delays there is no retry.
func Schedule(delays ...time.Duration) Policy {
	s := schedule(slices.Clone(delays))
	for i := range s {
		s[i] = max(s[i], 0)
	}
	return s
}

type schedule []time.Duration

func (s schedule) Next(attempt int, _ error) (time.Duration, bool) {
	if i := max(attempt, 1) - 1; i < len(s) {
		return s[i], true
	}
	return 0, false
}

// When returns a policy that follows p for the errors that match, and otherwise for all others. It is asked for each failed
// attempt anew, and the number of the attempt counts all of them, whatever they failed with. A match that is nil matches
// nothing. A nil policy is taken as Exponential(time.Second, 6*time.Hour).
//
//	busy := func(err error) bool { return errors.Is(err, ErrBusy) }
//	retry.When(busy, retry.Fixed(time.Minute), retry.Limit(5, nil))
func When(match func(error) bool, p, otherwise Policy) Policy {
	if match == nil {
		match = func(error) bool { return false }
	}
	w := when{match, orDefault(p), orDefault(otherwise)}
	return watched(w, w.p, w.otherwise)
}

type when struct {
	match        func(error) bool
	p, otherwise Policy
}

func (w when) Next(attempt int, err error) (time.Duration, bool) {
	if w.match(err) {
		return w.p.Next(attempt, err)
	}
	return w.otherwise.Next(attempt, err)
}
