package retry_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/retry"
)

var errAny = errors.New("any")

// delays asks for the delay after each of the attempts 1 to n; the last is the first at which p said no.
func delays(p retry.Policy, n int) (got []time.Duration, ended bool) {
	for attempt := 1; attempt <= n; attempt++ {
		d, again := p.Next(attempt, errAny)
		if !again {
			return got, true
		}
		got = append(got, d)
	}
	return got, false
}

func TestDelaysFollowThePolicy(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name string
		p    retry.Policy
		want []time.Duration
	}{
		{"fixed", retry.Fixed(3 * s), []time.Duration{3 * s, 3 * s, 3 * s, 3 * s}},
		{"fixed, negative is zero", retry.Fixed(-s), []time.Duration{0, 0, 0, 0}},
		{"exponential doubles up to its limit", retry.Exponential(s, 7*s), []time.Duration{s, 2 * s, 4 * s, 7 * s, 7 * s}},
		{"exponential reaches its limit exactly", retry.Exponential(s, 4*s), []time.Duration{s, 2 * s, 4 * s, 4 * s}},
		{"exponential, an odd limit", retry.Exponential(3, 7), []time.Duration{3, 6, 7, 7}},
		{"exponential, base over the limit", retry.Exponential(9*s, 2*s), []time.Duration{2 * s, 2 * s}},
		{"exponential, zero base", retry.Exponential(0, s), []time.Duration{0, 0, 0}},
		{"exponential, negative base is zero", retry.Exponential(-s, s), []time.Duration{0, 0, 0}},
		{"exponential, negative limit is zero", retry.Exponential(s, -s), []time.Duration{0, 0, 0}},
		{"exponential, the longest limit", retry.Exponential(math.MaxInt64/2, math.MaxInt64),
			[]time.Duration{math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ended := delays(c.p, len(c.want))
			if ended {
				t.Fatalf("ended after %v; without Limit a policy never ends", got)
			}
			for i := range c.want {
				if got[i] != c.want[i] {
					t.Fatalf("delays %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestLimitCountsAllAttempts(t *testing.T) {
	for _, c := range []struct{ n, retries int }{{5, 4}, {2, 1}, {1, 0}, {0, 0}, {-3, 0}} {
		got, ended := delays(retry.Limit(c.n, retry.Fixed(time.Second)), 10)
		if !ended || len(got) != c.retries {
			t.Errorf("Limit(%d): %d retries, ended %v; want %d retries", c.n, len(got), ended, c.retries)
		}
	}
}

func TestTheTighterOfTwoLimitsHolds(t *testing.T) {
	for _, p := range []retry.Policy{
		retry.Limit(3, retry.Limit(7, retry.Fixed(0))),
		retry.Limit(7, retry.Limit(3, retry.Fixed(0))),
	} {
		if got, ended := delays(p, 10); !ended || len(got) != 2 {
			t.Errorf("%d retries, ended %v; want 2", len(got), ended)
		}
	}
}

func TestLimitOfNoPolicySpacesAttemptsAsTheDefaultDoes(t *testing.T) {
	p, want := retry.Limit(25, nil), retry.Limit(25, retry.Exponential(time.Second, 6*time.Hour))
	for attempt := 1; attempt <= 26; attempt++ {
		d, again := p.Next(attempt, errAny)
		if wd, wagain := want.Next(attempt, errAny); d != wd || again != wagain {
			t.Errorf("attempt %d: %v, %v; want %v, %v", attempt, d, again, wd, wagain)
		}
	}
}

func TestLimitPassesTheErrorOn(t *testing.T) {
	var seen error
	retry.Limit(2, policyFunc(func(_ int, err error) (time.Duration, bool) {
		seen = err
		return 0, true
	})).Next(1, errAny)
	if seen != errAny {
		t.Errorf("the policy saw %v", seen)
	}
}

// policyFunc is a policy of the user's own.
type policyFunc func(int, error) (time.Duration, bool)

func (f policyFunc) Next(attempt int, err error) (time.Duration, bool) { return f(attempt, err) }

func TestExponentialNeverLeavesItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64().Draw(t, "base"))
		limit := time.Duration(rapid.Int64().Draw(t, "limit"))
		attempt := rapid.Int().Draw(t, "attempt")
		p := retry.Exponential(base, limit)
		d, again := p.Next(attempt, errAny)
		if !again {
			t.Fatal("ended")
		}
		if top := max(limit, 0); d < min(max(base, 0), top) || d > top {
			t.Fatalf("%v after attempt %d is not within [%v, %v]", d, attempt, base, limit)
		}
		if attempt == math.MaxInt {
			return
		}
		if next, _ := p.Next(attempt+1, errAny); next < d {
			t.Fatalf("%v after attempt %d, but %v after the one before", next, attempt+1, d)
		}
	})
}
