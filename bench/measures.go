package main

// measure is a row of the table.
type measure struct {
	name, unit string
	budget     budget
	from       *trial
	ours, peer string // variants; without a peer there is nothing to compare with
	value      value
}

// Names of the variants that measures compare.
const (
	us      = "stint"
	them    = "asynq"
	usKeep  = "stint keeping 10,000"
	bare    = "list, LPOP each"
	bareAll = "list, LPOP many"
)

var (
	stintNone = variant{name: us, of: ours, perSecond: 80_000, open: stintWith(nil)}
	stintKeep = variant{name: usKeep, of: ours, perSecond: 80_000, warm: 11_000, open: stintWith(func(s *stint) { s.keep = true })}
	asynqNone = variant{name: them, of: peers, perSecond: 8000, open: peerWith(nil)}
	floorEach = variant{name: bare, of: floors, perSecond: 500_000, open: floorWith(true)}
	floorMany = variant{name: bareAll, of: floors, perSecond: 600_000, open: floorWith(false)}
)

// The trials, and what is measured by them. See docs/performance.md for how each is done.
var (
	throughput = &trial{name: "throughput", run: load{}.run,
		variants: []variant{stintNone, asynqNone, stintKeep, floorEach, floorMany}}
	far3 = &trial{name: "3 ms farther", run: load{delay: 3e6, rate: map[system]int{ours: 15_000, peers: 280}}.run,
		variants: []variant{stintNone, asynqNone}}
	enqueueOne = &trial{name: "enqueue", run: filling{rate: 50_000}.run,
		variants: []variant{stintNone, asynqNone}}
	enqueueBulk = &trial{name: "enqueue bulk", run: filling{bulk: true, rate: 100_000}.run,
		variants: []variant{stintNone, asynqNone}}
)

var trials = []*trial{throughput, far3, enqueueOne, enqueueBulk}

// measures is the whole table, in its order: first the budgets, then what else is worth knowing.
var measures = []measure{
	{"jobs processed, nothing kept", "jobs/s", times(10), throughput, us, them, median("jobs/s")},
	{"jobs processed, default retention", "jobs/s", times(9), throughput, usKeep, them, median("jobs/s")},
	{"jobs processed, 3 ms farther away", "jobs/s", times(30), far3, us, them, median("jobs/s")},
	{"enqueue, 50 goroutines", "jobs/s", times(4), enqueueOne, us, them, median("jobs/s")},
	{"enqueue in bulk", "jobs/s", times(6), enqueueBulk, us, them, median("jobs/s")},
	{"Redis CPU a processed job", "µs", atMostTimes(0.2), throughput, us, them, median("redis µs")},

	{"jobs processed beside a bare list, a command a job", "jobs/s", times(0.6), throughput, us, bare, median("jobs/s")},
	{"jobs processed beside a bare list, a command for many", "jobs/s", budget{}, throughput, us, bareAll, median("jobs/s")},
	{"Redis CPU a processed job, default retention", "µs", budget{}, throughput, usKeep, them, median("redis µs")},
	{"Go CPU a processed job", "µs", budget{}, throughput, us, them, median("go µs")},
	{"allocations a processed job", "", budget{}, throughput, us, them, median("allocs")},
	{"bytes to and from Redis a processed job", "B", budget{}, throughput, us, them, median("bytes")},
	{"Redis CPU an enqueued job, 50 goroutines", "µs", budget{}, enqueueOne, us, them, median("redis µs")},
	{"Redis CPU an enqueued job, in bulk", "µs", budget{}, enqueueBulk, us, them, median("redis µs")},
}
