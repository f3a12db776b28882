package retry

import "time"

// Policy decides after a failed attempt. It must be safe for concurrent use.
type Policy interface {
	// Next is given the number of the attempt that failed, 1 for the first, and its error. If again is true, the job is
	// to be tried once more, after at most delay; zero or less means at once. If again is false, delay means nothing.
	Next(attempt int, err error) (delay time.Duration, again bool)
}

// Fixed returns a policy that always tries again after d. A negative d is taken as zero.
func Fixed(d time.Duration) Policy { return fixed(max(d, 0)) }

type fixed time.Duration

func (f fixed) Next(int, error) (time.Duration, bool) { return time.Duration(f), true }

// Exponential returns a policy that always tries again: after base when the first attempt has failed, and after twice
// as long each further time, up to limit. A negative duration is taken as zero; a base over the limit is cut to it.
func Exponential(base, limit time.Duration) Policy {
	limit = max(limit, 0)
	return exponential{min(max(base, 0), limit), limit}
}

type exponential struct{ base, limit time.Duration }

func (e exponential) Next(attempt int, _ error) (time.Duration, bool) {
	d := e.base
	// Ends after 63 rounds at the latest, however large attempt is: d doubles until it passes the limit, unless it is zero.
	for ; attempt > 1 && d > 0; attempt-- {
		if d > e.limit/2 {
			return e.limit, true
		}
		d *= 2
	}
	return d, true
}

// Limit returns a policy that follows p through at most n attempts in all, the first one included: once attempt n has
// failed there is no other. The attempt that has failed has been made, so an n under 1 is the same as 1: never again.
// A nil p is taken as Exponential(time.Second, 6*time.Hour).
func Limit(n int, p Policy) Policy {
	l := limited{n, orDefault(p)}
	return watched(l, l.p)
}

type limited struct {
	n int
	p Policy
}

func (l limited) Next(attempt int, err error) (time.Duration, bool) {
	if attempt >= l.n {
		return 0, false
	}
	return l.p.Next(attempt, err)
}
