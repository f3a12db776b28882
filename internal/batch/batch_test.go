package batch_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func one(int) int { return 1 }

// recorder keeps the batches that were flushed; each takes a second, or as long as it says.
type recorder struct {
	takes   func(items []int) time.Duration
	mu      sync.Mutex
	batches [][]int
	at      []time.Duration
	start   time.Time
	busy    [8]atomic.Bool
	most    int
	running int
	t       *testing.T
}

func (r *recorder) flush(lane int, items []int) {
	if r.busy[lane].Swap(true) {
		r.t.Errorf("lane %d runs twice at once", lane)
	}
	r.mu.Lock()
	r.batches = append(r.batches, slices.Clone(items))
	r.at = append(r.at, time.Since(r.start))
	r.running++
	r.most = max(r.most, r.running)
	r.mu.Unlock()
	took := time.Second
	if r.takes != nil {
		took = r.takes(items)
	}
	time.Sleep(took)
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
	r.busy[lane].Store(false)
}

func TestALoneItemGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t, start: time.Now()}
		g := batch.New(2, 100, 100, one, r.flush)
		g.Add(1)
		g.Wait()
		if len(r.batches) != 1 || r.at[0] != 0 {
			t.Fatalf("batches %v at %v, want one at 0s", r.batches, r.at)
		}
	})
}

func TestWhatIsAddedWhileTheLanesAreBusyTravelsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t, start: time.Now()}
		g := batch.New(2, 100, 100, one, r.flush)
		for i := range 2 {
			g.Add(i)
			synctest.Wait()
		}
		for i := range 50 {
			g.Add(2 + i)
			synctest.Wait()
		}
		g.Wait()
		if len(r.batches) != 3 || len(r.batches[2]) != 50 || r.most != 2 {
			t.Fatalf("batches %v, at most %d at once, want 1, 1 and 50 items on two lanes", r.batches, r.most)
		}
		if r.at[2] != time.Second {
			t.Errorf("the last batch left after %v, want 1s, as soon as a lane is free", r.at[2])
		}
	})
}

func TestBatchesKeepTheirBoundsAndTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t, start: time.Now()}
		weigh := func(n int) int { return n }
		g := batch.New(1, 3, 10, weigh, r.flush)
		g.AddAll([]int{1, 2, 3, 4, 50, 6, 4, 1})
		g.Wait()
		want := [][]int{{1, 2, 3}, {4}, {50}, {6, 4}, {1}}
		if !slices.EqualFunc(r.batches, want, slices.Equal[[]int]) {
			t.Fatalf("batches %v, want %v", r.batches, want)
		}
	})
}

func TestMoreThanABatchTakesEveryLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t, start: time.Now()}
		g := batch.New(3, 10, 100, one, r.flush)
		g.AddAll(make([]int, 60))
		g.Wait()
		if len(r.batches) != 6 || r.most != 3 || time.Since(r.start) != 2*time.Second {
			t.Fatalf("%d batches, at most %d at once, in %v; want 6, 3 and 2s", len(r.batches), r.most, time.Since(r.start))
		}
	})
}

func TestFlushMayAdd(t *testing.T) {
	var g *batch.Group[int]
	var sum atomic.Int64
	g = batch.New(2, 10, 100, one, func(_ int, items []int) {
		for _, n := range items {
			sum.Add(int64(n))
			if n > 1 {
				g.Add(n - 1)
			}
		}
	})
	g.Add(100)
	g.Wait()
	if sum.Load() != 5050 {
		t.Fatalf("flushed %d in all, want 5050", sum.Load())
	}
}

func TestEachItemOfManyGoroutinesIsFlushedOnceAndInItsOrder(t *testing.T) {
	const adders, each = 8, 2000
	var mu sync.Mutex
	var batches, items int
	last := map[int]int{}
	g := batch.New(1, 64, 1<<20, one, func(_ int, some []int) {
		mu.Lock()
		defer mu.Unlock()
		batches++
		items += len(some)
		for _, n := range some {
			if who := n / each; last[who] != n%each {
				t.Errorf("adder %d: item %d came instead of %d", who, n%each, last[who])
			}
			last[n/each]++
		}
	})
	var wg sync.WaitGroup
	for a := range adders {
		wg.Go(func() {
			for i := range each {
				g.Add(a*each + i)
			}
		})
	}
	wg.Wait()
	g.Wait()
	if items != adders*each {
		t.Fatalf("%d items in %d batches, want %d", items, batches, adders*each)
	}
}

func TestThoseWhoAreReadyTogetherTravelTogether(t *testing.T) {
	var mu sync.Mutex
	var batches int
	g := batch.New(2, 1000, 1<<20, one, func(int, []int) {
		mu.Lock()
		batches++
		mu.Unlock()
	})
	const rounds, ready = 100, 50
	for range rounds {
		var wg sync.WaitGroup
		for i := range ready {
			wg.Go(func() { g.Add(i) })
		}
		wg.Wait()
		g.Wait()
	}
	if batches > rounds*ready/2 {
		t.Errorf("%d batches for %d items: they hardly ever travel together", batches, rounds*ready)
	}
}

func BenchmarkAdd(b *testing.B) {
	g := batch.New(2, 1000, 1<<20, one, func(int, []int) {})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g.Add(1)
		}
	})
	g.Wait()
}

func TestABatchBesideAnotherIsAtLeastAsLargeInAGroupThatFills(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		fill  bool
		sizes []int
		at    []time.Duration
	}{
		"that fills":    {true, []int{4, 4, 3}, []time.Duration{0, 2 * ms, 6 * ms}},
		"that does not": {false, []int{4, 3, 4}, []time.Duration{0, ms, 4 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{t: t, start: time.Now(), takes: func([]int) time.Duration { return 4 * ms }}
				g := batch.New(2, 100, 100, one, r.flush)
				if tc.fill {
					g.Fill()
				}
				g.AddAll([]int{1, 2, 3, 4})
				synctest.Wait()
				time.Sleep(ms)
				g.AddAll([]int{5, 6, 7})
				synctest.Wait()
				time.Sleep(ms)
				g.Add(8)
				synctest.Wait()
				time.Sleep(ms)
				g.AddAll([]int{9, 10, 11})
				g.Wait()
				r.want(tc.sizes, tc.at)
			})
		})
	}
}

// want checks how many items the batches had, and when they left.
func (r *recorder) want(sizes []int, at []time.Duration) {
	r.t.Helper()
	var got []int
	for _, b := range r.batches {
		got = append(got, len(b))
	}
	if !slices.Equal(got, sizes) || !slices.Equal(r.at, at) {
		r.t.Errorf("batches of %v at %v, want %v at %v", got, r.at, sizes, at)
	}
}

func TestAFullBatchGoesBesideALargerOneInAGroupThatFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t, start: time.Now(), takes: func([]int) time.Duration { return time.Millisecond }}
		g := batch.New(3, 2, 100, one, r.flush)
		g.Fill()
		g.AddAll([]int{1, 2, 3, 4, 5})
		g.Wait()
		r.want([]int{2, 2, 1}, []time.Duration{0, 0, time.Millisecond})
	})
}

func TestABatchThatIsFullByWeightGoesBesideALargerOneInAGroupThatFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t, start: time.Now(), takes: func([]int) time.Duration { return 4 * time.Millisecond }}
		g := batch.New(3, 100, 10, func(n int) int { return n }, r.flush)
		g.Fill()
		g.AddAll([]int{1, 1, 1, 1})
		synctest.Wait()
		time.Sleep(time.Millisecond)
		g.AddAll([]int{6, 3})
		synctest.Wait()
		if len(r.batches) != 1 {
			t.Errorf("%v have gone; two items that are not full are to wait", r.batches)
		}
		g.Add(4)
		g.Wait()
		r.want([]int{4, 2, 1}, []time.Duration{0, time.Millisecond, 5 * time.Millisecond})
		r.batches, r.at, r.start = nil, nil, time.Now()
		g.AddAll([]int{1, 1, 1}) // what went before weighs nothing any more
		synctest.Wait()
		g.AddAll([]int{1, 1})
		g.Wait()
		r.want([]int{3, 2}, []time.Duration{0, 4 * time.Millisecond})
	})
}

func TestABatchThatIsStuckHoldsUpNobodyForLongInAGroupThatFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stuck, held = 10 * time.Second, 5 * time.Millisecond
		r := &recorder{t: t, start: time.Now(), takes: func(items []int) time.Duration {
			if len(items) == 250 {
				return stuck
			}
			return time.Millisecond
		}}
		g := batch.New(2, 250, 1000, one, r.flush)
		g.Fill()
		g.AddAll(make([]int, 250))
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		for range 3 { // the second comes while the first is held back, and goes with it
			g.Add(1)
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		g.Add(1)
		g.Wait()
		first, second := 100*time.Millisecond, 206*time.Millisecond
		r.want([]int{250, 3, 1}, []time.Duration{0, first + held, second + held})
		if took := time.Since(r.start); took != stuck {
			t.Errorf("it took %v in all, want the %v of the batch that is stuck", took, stuck)
		}
	})
}
