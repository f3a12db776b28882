package retry_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/retry"
)

func TestLinearGrowsByItsStepUpToItsLimit(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name        string
		step, limit time.Duration
		want        []time.Duration
	}{
		{"up to its limit", 2 * s, 5 * s, []time.Duration{2 * s, 4 * s, 5 * s, 5 * s}},
		{"reaches its limit exactly", 2 * s, 4 * s, []time.Duration{2 * s, 4 * s, 4 * s}},
		{"a step over the limit", 9 * s, 2 * s, []time.Duration{2 * s, 2 * s}},
		{"zero step", 0, s, []time.Duration{0, 0, 0}},
		{"negative step is zero", -s, s, []time.Duration{0, 0, 0}},
		{"negative limit is zero", s, -s, []time.Duration{0, 0}},
		{"the longest", math.MaxInt64 / 2, math.MaxInt64, []time.Duration{math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64}},
	} {
		if got, ended := delays(retry.Linear(c.step, c.limit), len(c.want)); ended || !slices.Equal(got, c.want) {
			t.Errorf("%s: delays %v, ended %v; want %v", c.name, got, ended, c.want)
		}
	}
}

func TestLinearNeverLeavesItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := time.Duration(rapid.Int64().Draw(t, "step"))
		limit := time.Duration(rapid.Int64().Draw(t, "limit"))
		attempt := rapid.IntRange(math.MinInt, math.MaxInt-1).Draw(t, "attempt")
		p := retry.Linear(step, limit)
		d, again := p.Next(attempt, errAny)
		if top := max(limit, 0); !again || d < min(max(step, 0), top) || d > top {
			t.Fatalf("%v, %v after attempt %d is not within [%v, %v]", d, again, attempt, step, limit)
		}
		if next, _ := p.Next(attempt+1, errAny); next < d {
			t.Fatalf("%v after attempt %d, but %v after the one before", next, attempt+1, d)
		}
	})
}

func TestAScheduleHasADelayForEachRetryAndThenEnds(t *testing.T) {
	for _, c := range []struct{ given, want []time.Duration }{
		{[]time.Duration{time.Second, time.Hour, time.Minute}, []time.Duration{time.Second, time.Hour, time.Minute}},
		{[]time.Duration{-time.Second, 0, 5}, []time.Duration{0, 0, 5}},
		{nil, nil},
	} {
		if got, ended := delays(retry.Schedule(c.given...), 10); !ended || !slices.Equal(got, c.want) {
			t.Errorf("Schedule(%v): %v, ended %v", c.given, got, ended)
		}
	}
}

func TestAScheduleNeverLeavesItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })).Draw(t, "list")
		attempt := rapid.Int().Draw(t, "attempt")
		p, kept := retry.Schedule(list...), slices.Clone(list)
		clear(list) // it is the caller's
		d, again := p.Next(attempt, errAny)
		if want := max(attempt, 1) <= len(kept); again != want {
			t.Fatalf("again %v after attempt %d of a list of %d", again, attempt, len(kept))
		}
		if again && d != max(kept[max(attempt, 1)-1], 0) {
			t.Fatalf("%v after attempt %d of %v", d, attempt, kept)
		}
	})
}

var errBusy = errors.New("busy")

func isBusy(err error) bool { return errors.Is(err, errBusy) }

func TestWhenPicksThePolicyByTheError(t *testing.T) {
	p := retry.When(isBusy, retry.Fixed(time.Minute), retry.Limit(2, retry.Fixed(time.Second)))
	for _, c := range []struct {
		attempt int
		err     error
		delay   time.Duration
		again   bool
	}{
		{1, errAny, time.Second, true},
		{2, errAny, 0, false},
		{1, errBusy, time.Minute, true},
		{9, fmt.Errorf("calling: %w", errBusy), time.Minute, true},
	} {
		if d, again := p.Next(c.attempt, c.err); d != c.delay || again != c.again {
			t.Errorf("attempt %d, %v: %v, %v; want %v, %v", c.attempt, c.err, d, again, c.delay, c.again)
		}
	}
}

func TestWhenTakesTheDefaultForWhatIsNil(t *testing.T) {
	for _, p := range []retry.Policy{
		retry.When(nil, retry.Fixed(0), nil), // matches nothing
		retry.When(isBusy, nil, nil),
	} {
		for _, err := range []error{errAny, errBusy} {
			if d, again := p.Next(3, err); d != 4*time.Second || !again {
				t.Errorf("%v, %v", d, again)
			}
		}
	}
}

func TestWhenAnswersAsOneOfItsTwoDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := retry.Exponential(time.Duration(rapid.Int64().Draw(t, "base")), time.Duration(rapid.Int64().Draw(t, "limit")))
		b := retry.Limit(rapid.IntRange(0, 5).Draw(t, "n"), retry.Linear(time.Duration(rapid.Int64().Draw(t, "step")), time.Hour))
		attempt, busy := rapid.IntRange(0, 10).Draw(t, "attempt"), rapid.Bool().Draw(t, "busy")
		want, err := b, errAny
		if busy {
			want, err = a, errBusy
		}
		d, again := retry.When(isBusy, a, b).Next(attempt, err)
		if wd, wagain := want.Next(attempt, err); d != wd || again != wagain {
			t.Fatalf("%v, %v; want %v, %v", d, again, wd, wagain)
		}
	})
}
