package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// The benchmarks compare within one run, in rounds that alternate, since the machine's speed is not the same from minute to
// minute: they report medians of ratios. What is compared is the CPU time that Redis spends, as it accounts for
// itself, and jobs a second beside it. Enqueuing is not measured.
//
//	go test -run '^$' -bench . ./store
const (
	benchBatch  = 100    // finishes and claims in one call: the pool's workers
	benchRound  = 10_000 // jobs in a round
	benchRounds = 7      // at least; -benchtime adds to them
	benchLoad   = 100_000
)

// defaultDone is the retention that handlers have unless they say otherwise.
var defaultDone = store.Retention{Age: 24 * time.Hour, Count: 10_000}

// A claim with a finish against a bare list: LPUSH and RPOP of the same ids and payloads, pipelined in the same batches.
func BenchmarkClaimAndFinish(b *testing.B) {
	for _, keep := range []store.Retention{{}, defaultDone} {
		for _, apart := range []bool{false, true} {
			b.Run(fmt.Sprintf("keeping=%d/bare-apart=%v", keep.Count, apart), func(b *testing.B) {
				r := newBenchRig(b)
				terms := r.terms("mail", keep)
				for range keep.Count / benchRound { // the bound is reached, as it is in the long run
					r.process(terms)
				}
				r.compare("x-bare", func() spent { return r.process(terms) }, func() spent { return r.bare(apart) })
			})
		}
	}
}

// The same beside 100,000 jobs that other workers hold, against an instance without them.
func BenchmarkClaimAndFinishBesideJobsInFlight(b *testing.B) {
	r := newBenchRig(b)
	crowded, empty := r.terms("crowded", store.Retention{}), r.terms("empty", store.Retention{})
	for range benchLoad / store.MaxCall {
		r.enqueue(crowded.Instance, store.MaxCall)
		r.exchange(crowded, store.Exchange{Claims: newUUIDs(store.MaxCall)})
	}
	r.expect(store.Stats{Instance: "crowded", Total: benchLoad, Doing: benchLoad})
	r.compare("x-empty", func() spent { return r.process(crowded) }, func() spent { return r.process(empty) })
	r.expect(store.Stats{Instance: "crowded", Total: benchLoad, Doing: benchLoad})
}

// The same beside 100,000 jobs that are kept done, against an instance that has none yet.
func BenchmarkClaimAndFinishBesideJobsKeptDone(b *testing.B) {
	r := newBenchRig(b)
	keep := store.Retention{Age: 24 * time.Hour, Count: 100 * benchLoad}
	full := r.terms("full", keep)
	for range benchLoad / benchRound {
		r.process(full)
	}
	r.expect(store.Stats{Instance: "full", Total: benchLoad, Done: benchLoad})
	fresh := 0
	trim := full
	trim.Done.Count = benchLoad
	r.compare("x-empty", func() spent {
		defer func() { // so that there are as many before the next round, and no table doubles meanwhile
			for left := benchRound; left > 0; {
				m, err := r.store.Runtime().Reap(context.Background(), trim)
				if err != nil || m.Trimmed[store.Done] == 0 {
					r.Fatalf("%d are left to be trimmed: %+v, %v", left, m, err)
				}
				left -= m.Trimmed[store.Done]
			}
		}()
		return r.process(full)
	}, func() spent {
		fresh++
		return r.process(r.terms(fmt.Sprintf("fresh-%d", fresh), keep))
	})
}

// benchRig is a server of the benchmark's own with a store on it.
type benchRig struct {
	*testing.B
	client *redis.Client
	store  *store.Store
	lane   map[string]*store.Lane // by instance
}

func newBenchRig(b *testing.B) *benchRig {
	client := redistest.Start(b).Client(b)
	st, err := store.Open(client, store.Options{Prefix: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	return &benchRig{b, client, st, map[string]*store.Lane{}}
}

func (r *benchRig) terms(instance string, keep store.Retention) store.Terms {
	return store.Terms{Instance: instance, Process: uuid.New(), Lease: time.Hour, Done: keep, Dead: keep, MaxCrashes: 3}
}

// spent is what a round took.
type spent struct {
	cpu, wall time.Duration
}

// measure returns what Redis and the clock spend on f.
func (r *benchRig) measure(f func()) spent {
	cpu, start := r.cpu(), time.Now()
	f()
	wall := time.Since(start)
	return spent{r.cpu() - cpu, wall}
}

// cpu is what the server's main thread, which runs all commands, has spent so far, in user and in system mode.
func (r *benchRig) cpu() time.Duration {
	info, err := r.client.Info(context.Background(), "cpu").Result()
	if err != nil {
		r.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				r.Fatal(err)
			}
			sum += seconds
		}
	}
	return time.Duration(sum * float64(time.Second))
}

// compare alternates rounds of a and b and reports the ratio of their CPU times, and the speed of a.
func (r *benchRig) compare(unit string, a, b func() spent) {
	var ratio, cpu, speed []float64
	for i := 0; i < benchRounds || r.Loop(); i++ {
		var as, bs spent
		if i%2 == 0 {
			as, bs = a(), b()
		} else {
			bs, as = b(), a()
		}
		ratio = append(ratio, float64(as.cpu)/float64(bs.cpu))
		cpu = append(cpu, float64(as.cpu.Nanoseconds())/1000/benchRound)
		speed = append(speed, benchRound/as.wall.Seconds())
	}
	r.ReportMetric(median(ratio), unit)
	r.ReportMetric(median(cpu), "redis-µs/job")
	r.ReportMetric(median(speed), "jobs/s")
	r.ReportMetric(0, "ns/op") // a round is no operation
}

func median(some []float64) float64 {
	slices.Sort(some)
	return some[len(some)/2]
}

// process enqueues a round's jobs, and measures how they are claimed and completed.
func (r *benchRig) process(t store.Terms) spent {
	for range benchRound / store.MaxCall {
		r.enqueue(t.Instance, store.MaxCall)
	}
	workers := newUUIDs(benchBatch)
	done := 0
	took := r.measure(func() {
		var finishes []store.Finish
		for done < benchRound {
			got := r.exchange(t, store.Exchange{Finishes: finishes, Claims: workers})
			done += len(finishes)
			finishes = finishes[:0]
			for _, l := range got.Leases {
				finishes = append(finishes, store.Finish{Lease: l, Verb: store.Complete})
			}
			if len(finishes) == 0 {
				break
			}
		}
	})
	if done != benchRound {
		r.Fatalf("%d jobs done of %d", done, benchRound)
	}
	return took
}

func (r *benchRig) exchange(t store.Terms, x store.Exchange) store.Exchanged {
	lane := r.lane[t.Instance]
	if lane == nil {
		lane = new(store.Lane)
		r.lane[t.Instance] = lane
	}
	got, err := r.store.Runtime().Exchange(context.Background(), lane, t, x)
	if err != nil {
		r.Fatal(err)
	}
	return got
}

var benchPayload = []byte(`{"user":"012345678901234567890"}`) // 32 bytes

func (r *benchRig) enqueue(instance string, n int) {
	jobs := make([]store.NewJob, n)
	for i, id := range newUUIDs(n) {
		jobs[i] = store.NewJob{ID: id, Payload: benchPayload}
	}
	errs, err := r.store.Runtime().Enqueue(context.Background(), new(store.Lane), instance, jobs)
	if err = errors.Join(append(errs, err)...); err != nil {
		r.Fatal(err)
	}
}

// bare moves as many ids and payloads through a list, in pipelines of a batch: all in one, so that they are pushed and popped in a
// single round trip, or apart, as whoever produces and whoever consumes would.
func (r *benchRig) bare(apart bool) spent {
	ctx := context.Background()
	return r.measure(func() {
		for range benchRound / benchBatch {
			p := r.client.Pipeline()
			for _, id := range newUUIDs(benchBatch) {
				p.LPush(ctx, "bench:bare", append(id[:], benchPayload...))
			}
			if apart {
				if _, err := p.Exec(ctx); err != nil {
					r.Fatal(err)
				}
			}
			for range benchBatch {
				p.RPop(ctx, "bench:bare")
			}
			if _, err := p.Exec(ctx); err != nil {
				r.Fatal(err)
			}
		}
	})
}

// expect makes sure that there is what the benchmark is about.
func (r *benchRig) expect(want store.Stats) {
	all, err := r.store.Stats(context.Background())
	if err != nil || !slices.Contains(all, want) {
		r.Fatalf("%+v are not among %+v: %v", want, all, err)
	}
}

func newUUIDs(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}
