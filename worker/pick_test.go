package worker_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stint-go/stint/worker"
)

func anyOne(int) bool { return true }

// picks counts n picks.
func picks(k *worker.Picker, contenders, n int, may func(i int) bool) []int {
	count := make([]int, contenders)
	for range n {
		count[k.Next(may)]++
	}
	return count
}

func TestPicksAreInProportionToTheWeightsAtAnyTime(t *testing.T) {
	k := worker.NewPicker(false, 6, 3, 1)
	for round := range 100 {
		if got := picks(k, 3, 10, anyOne); !slices.Equal(got, []int{6, 3, 1}) {
			t.Fatalf("10 picks are %v in round %d, want 6, 3 and 1", got, round)
		}
	}
}

func TestPicksAreMixed(t *testing.T) {
	k := worker.NewPicker(false, 1, 1)
	for range 100 {
		if a, b := k.Next(anyOne), k.Next(anyOne); a == b {
			t.Fatal("of two alike one was picked twice in a row")
		}
	}
}

func TestWhoMayNotBePickedSavesNothingUpAndTheOthersKeepTheirProportion(t *testing.T) {
	k := worker.NewPicker(false, 6, 3, 1)
	if got := picks(k, 3, 4000, func(i int) bool { return i != 0 }); !slices.Equal(got, []int{0, 3000, 1000}) {
		t.Errorf("without the first 4,000 picks are %v", got)
	}
	if got := picks(k, 3, 100, anyOne); got[0] < 55 || got[0] > 65 {
		t.Errorf("100 picks are %v after the first could not be picked, want 60 of it", got)
	}
}

func TestWhoeverMayBePickedNowAndThenTheSharesStayBounded(t *testing.T) {
	weights := []int{50, 7, 1}
	k := worker.NewPicker(false, weights...)
	for range 1000 {
		mask := rand.IntN(8)
		k.Next(func(i int) bool { return mask&(1<<i) != 0 })
	}
	got := picks(k, 3, 5800, anyOne)
	for i, w := range weights {
		if d := got[i] - 100*w; d < -58 || d > 58 {
			t.Errorf("picks are %v of 5,800, want 5000, 700 and 100, give or take one round", got)
		}
	}
}

func TestAStrictPickIsTheFirstThatMayBePicked(t *testing.T) {
	k := worker.NewPicker(true, 1, 100, 100)
	for first := range 3 {
		if got := k.Next(func(i int) bool { return i >= first }); got != first {
			t.Errorf("picked %d, want %d", got, first)
		}
	}
}

func TestWithNobodyToPickThereIsNoPick(t *testing.T) {
	for _, strict := range []bool{true, false} {
		if got := worker.NewPicker(strict, 3, 4).Next(func(int) bool { return false }); got != -1 {
			t.Errorf("picked %d, want none", got)
		}
	}
}
