package retry_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/retry"
)

// agenda is the times at which jobs come back.
type agenda []time.Time

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, k int) bool { return a[i].Before(a[k]) }
func (a agenda) Swap(i, k int)      { a[i], a[k] = a[k], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(time.Time)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// broken runs 100 new jobs a second into a dependency that fails all of them, for some time, and returns how many retries
// there were in each second.
func broken(p retry.Policy, seconds int) []int {
	var due agenda
	fail := func(attempt int) {
		if d, again := p.Next(attempt, errAny); again {
			heap.Push(&due, time.Now().Add(d-rand.N(d/2+1))) // as the runtime does
		}
	}
	retries := make([]int, seconds)
	for tick := range 100 * seconds {
		for len(due) > 0 && !due[0].After(time.Now()) {
			heap.Pop(&due)
			retries[tick/100]++
			fail(2)
		}
		fail(1)
		time.Sleep(10 * time.Millisecond)
	}
	return retries
}

func TestABrokenDependencyGetsNoMoreThanTheBudgetsShareOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		without := broken(retry.Exponential(time.Second, 10*time.Second), 120)
		with := broken(retry.Budget(0.1, retry.Exponential(time.Second, 10*time.Second)), 120)
		sum := 0
		for second, n := range with {
			sum += n
			if most := 10*(second+1) + 10 + 10; sum > most { // a tenth of what is new, and what was saved
				t.Fatalf("%d retries in the first %d s, want %d at most", sum, second+1, most)
			}
		}
		if sum < 500 {
			t.Errorf("%d retries in 120 s: far less than the budget of 1,200", sum)
		}
		if last := without[119]; last < 500 {
			t.Errorf("without a budget there were only %d retries in the last second", last)
		}
	})
}

func TestABudgetOfAHealthyThroughputPutsNothingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.Budget(0.1, retry.Fixed(time.Second))
		for i := range 3000 { // 100 a second, a twentieth of which fails
			if i%20 != 0 {
				p.(retry.Observer).Succeeded(1)
			} else if d, again := p.Next(1, errAny); d != time.Second || !again {
				t.Fatalf("job %d: %v, %v", i, d, again)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func TestWithoutHearingOfSuccessesTheSameBudgetWouldBeSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.Budget(0.1, retry.Fixed(time.Second))
		longest := time.Duration(0)
		for range 150 {
			d, _ := p.Next(1, errAny)
			longest = max(longest, d)
			time.Sleep(200 * time.Millisecond)
		}
		if longest < 10*time.Second {
			t.Errorf("the longest delay is %v", longest)
		}
	})
}

func TestABudgetIsHeardThroughThePoliciesAroundIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := retry.Budget(1, retry.Fixed(0))
		for _, p := range []retry.Policy{
			retry.Limit(5, inner), retry.When(isBusy, nil, inner), retry.When(isBusy, inner, nil), retry.Budget(0.5, inner),
		} {
			o, ok := p.(retry.Observer)
			if !ok {
				t.Errorf("%T does not pass successes on", p)
				continue
			}
			for range 300 {
				o.Succeeded(1)
			}
		}
		for i := range 1000 { // 1,200 were heard: 120 a second are granted, and those of 10 s at once
			if d, _ := inner.Next(2, errAny); d != 0 {
				t.Fatalf("retry %d is put off by %v", i+1, d)
			}
		}
	})
	if _, ok := retry.Limit(5, retry.Fixed(0)).(retry.Observer); ok {
		t.Error("a policy that need not hear of successes asks to")
	}
}

func TestABudgetNeverLeavesItsBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		share := rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)), rapid.Just(0.1)).Draw(rt, "share")
		inner := retry.Limit(rapid.IntRange(1, 4).Draw(rt, "limit"), retry.Exponential(time.Duration(rapid.Int64().Draw(rt, "base")), 6*time.Hour))
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 200).Draw(rt, "steps")
		p := retry.Budget(share, inner)
		for _, step := range steps {
			if step == 0 {
				p.(retry.Observer).Succeeded(1)
				continue
			}
			d, again := p.Next(step, errAny)
			want, wagain := inner.Next(step, errAny)
			if again != wagain {
				rt.Fatalf("again %v, its policy says %v", again, wagain)
			}
			if again && (d < want || d > max(want, 2*time.Hour)) {
				rt.Fatalf("%v, its policy says %v", d, want)
			}
		}
	})
}

func TestABudgetPutsNothingOffForMoreThanTwoHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retry.Budget(-1, retry.Fixed(0))
		var longest time.Duration
		for range 20_000 {
			d, again := p.Next(2, errAny)
			if !again {
				t.Fatal("gave up")
			}
			longest = max(longest, d)
		}
		if longest != 2*time.Hour {
			t.Errorf("the longest delay is %v", longest)
		}
	})
}
