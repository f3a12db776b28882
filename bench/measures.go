package main

import (
	"fmt"
	"time"
)

// measure is a row of the table.
type measure struct {
	name, unit string
	budget     budget
	from       *trial
	ours, peer string // variants; without a peer there is nothing to compare with
	value      value
}

// The variants, by name.
const (
	us        = "stint"
	usKeep    = "stint, default retention"
	usHeld    = "stint, 10,000 in flight"
	usInside  = "stint, embedded"
	usAOF     = "stint, everysec"
	usTen     = "stint, 10 instances"
	them      = "asynq"
	themTuned = "asynq, tuned"
	themKeep  = "asynq, retention 24 h"
	themAOF   = "asynq, everysec"
	themTen   = "asynq, 10 queues"
	bareMany  = "list, LPOP n"
	bareEach  = "list, LPOP each"
	bareSet   = "set and hash"
)

var (
	stint0     = variant{name: us, of: ours, perSecond: 80_000, open: stintWith(nil)}
	stintKeep  = variant{name: usKeep, of: ours, perSecond: 80_000, warm: 11_000, open: stintWith(func(s *stint) { s.keep = true })}
	stintHeld  = variant{name: usHeld, of: ours, perSecond: 80_000, open: stintWith(func(s *stint) { s.held = 10_000 })}
	stintIn    = variant{name: usInside, of: ours, perSecond: 8000, open: stintWith(func(s *stint) { s.embedded = true })}
	stintAOF   = variant{name: usAOF, of: ours, aof: true, perSecond: 60_000, open: stintWith(nil)}
	stintTen   = variant{name: usTen, of: ours, perSecond: 80_000, open: stintWith(func(s *stint) { s.idle = 9 })}
	asynq0     = variant{name: them, of: peers, perSecond: 8000, open: peerWith(nil)}
	asynqTuned = variant{name: themTuned, of: peers, perSecond: 8000, open: peerWith(func(p *peer) { p.interval = 10 * time.Millisecond })}
	asynqKeep  = variant{name: themKeep, of: peers, perSecond: 8000, open: peerWith(func(p *peer) { p.keep = 24 * time.Hour })}
	asynqAOF   = variant{name: themAOF, of: peers, aof: true, perSecond: 8000, open: peerWith(nil)}
	asynqTen   = variant{name: themTen, of: peers, perSecond: 6000, open: peerWith(func(p *peer) { p.idle = 9 })}
	floorMany  = variant{name: bareMany, of: floors, perSecond: 600_000, open: listFloor(popMany)}
	floorEach  = variant{name: bareEach, of: floors, perSecond: 500_000, open: listFloor(popEach)}
	floorSets  = variant{name: bareSet, of: floors, perSecond: 300_000, open: setFloor}

	both = []variant{stint0, asynq0}
	all3 = []variant{stint0, asynq0, asynqTuned}
)

// The trials. What each does is said where its run is.
var (
	throughput = &trial{name: "throughput", run: load{}.run,
		variants: []variant{stint0, asynq0, stintKeep, stintHeld, asynqKeep, floorMany, floorEach, floorSets, stintIn}}
	far3    = &trial{name: "3 ms farther", variants: both, run: load{delay: 3 * time.Millisecond, rate: rates{ours: 17_000, peers: 280}}.run}
	far1    = &trial{name: "1 ms farther", variants: both, run: load{delay: time.Millisecond, rate: rates{ours: 30_000, peers: 700}}.run}
	aof     = &trial{name: "append-only file", variants: []variant{stintAOF, asynqAOF, stint0}, run: load{}.run}
	ten     = &trial{name: "10 instances", variants: []variant{stintTen, asynqTen}, run: load{}.run}
	talk    = &trial{name: "traffic", variants: both, most: 2, run: load{counted: true}.run}
	one     = &trial{name: "enqueue", variants: both, run: filling{rate: 50_000}.run}
	bulk    = &trial{name: "enqueue in bulk", variants: both, run: filling{bulk: true, rate: 100_000}.run}
	prompt  = &trial{name: "latency", variants: all3, run: starts{lanes: map[string]int{them: 16}}.run}
	timely  = &trial{name: "scheduled", variants: all3, most: 2, run: starts{scheduled: true}.run}
	rss     = &trial{name: "resident", variants: both, most: 3, run: resident}
	million = &trial{name: "a million", variants: []variant{stintKeep}, most: 1, run: many}
	silence = &trial{name: "idle", variants: all3, most: 1, waits: true, run: idle}
	killed  = &trial{name: "recovery", variants: both, most: 1, waits: true, run: recovery}

	byWorkers = growth("%d workers", 1, 10_000, func(n int) load {
		return load{workers: n, rate: rates{ours: min(4000*n, 80_000), peers: 4000}}
	})
	byWaiting = growth("%d waiting", 1000, 1_000_000, func(n int) load { return load{waiting: n} })
)

// growth makes trials that differ in a number, which goes from least to most in powers of ten.
func growth(name string, least, most int, of func(n int) load) []*trial {
	var trials []*trial
	for n := least; n <= most; n *= 10 {
		rounds := 3
		if n > maxQuick { // filling takes a minute
			rounds = 1
		}
		trials = append(trials, &trial{name: fmt.Sprintf(name, n), number: float64(n), variants: both, most: rounds, run: of(n).run})
	}
	return trials
}

// measures is the whole table, in its order: the budgets, then what else is worth knowing.
var measures = append([]measure{
	{"jobs processed, nothing kept", "jobs/s", times(10), throughput, us, them, median("jobs/s")},
	{"jobs processed, default retention", "jobs/s", times(9), throughput, usKeep, them, median("jobs/s")},
	{"jobs processed, 3 ms added to each round trip", "jobs/s", times(30), far3, us, them, median("jobs/s")},
	{"jobs processed with 10,000 others in flight, against without", "jobs/s", times(0.9), throughput, usHeld, us, median("jobs/s")},
	{"enqueue, 50 goroutines calling one client", "jobs/s", times(4), one, us, them, median("jobs/s")},
	{"enqueue in bulk, against the peer's 50 goroutines", "jobs/s", times(6), bulk, us, them, median("jobs/s")},
	{"Redis CPU a processed job, claim and finish", "µs", atMostTimes(0.2), throughput, us, them, median("redis µs")},
	{"idle enqueue to start, p50", "ms", atMost(1), prompt, us, them, percentile("ms", 50)},
	{"idle enqueue to start, p99", "ms", atMost(5), prompt, us, them, percentile("ms", 99)},
	{"client commands when idle", "1/s", atMost(1), silence, us, them, worst("commands/s")},
	{"scheduled start after due, p99", "ms", atMost(10), timely, us, them, percentile("ms", 99)},
	{"scheduled starts before due", "", atMost(0), timely, us, them, worst("early")},
	{"run again after SIGKILL, worst of 20", "s", atMost(25), killed, us, them, worst("s")},
	{"jobs lost by SIGKILL", "", atMost(0), killed, us, them, total("lost")},
	{"memory in Redis a waiting job, 100,000 waiting", "B", atMostTimes(1), byWaiting[2], us, them, median("memory B")},
	{"growth of the live heap over many jobs", "B/job", atMost(1), million, usKeep, "", worst("heap growth")},
	{"growth of the number of goroutines over many jobs", "", atMost(5), million, usKeep, "", worst("goroutine growth")},
	{"jobs processed, against a bare list, a command for many", "jobs/s", times(0.6), throughput, us, bareMany, median("jobs/s")},

	{"jobs processed, against a bare list, a command a job", "jobs/s", budget{}, throughput, us, bareEach, median("jobs/s")},
	{"jobs processed, against a bare set with a hash", "jobs/s", budget{}, throughput, us, bareSet, median("jobs/s")},
	{"jobs processed, both keep what is done", "jobs/s", budget{}, throughput, usKeep, themKeep, median("jobs/s")},
	{"jobs processed, embedded engine, against the peer on Redis", "jobs/s", budget{}, throughput, usInside, them, median("jobs/s")},
	{"jobs processed, 1 ms added to each round trip", "jobs/s", budget{}, far1, us, them, median("jobs/s")},
	{"jobs processed, AOF everysec", "jobs/s", budget{}, aof, usAOF, themAOF, median("jobs/s")},
	{"jobs processed, AOF everysec, against without", "jobs/s", budget{}, aof, usAOF, us, median("jobs/s")},
	{"jobs processed, 10 instances, one of them busy", "jobs/s", budget{}, ten, usTen, themTen, median("jobs/s")},
	{"Redis CPU a processed job, default retention", "µs", budget{}, throughput, usKeep, them, median("redis µs")},
	{"Redis CPU a processed job, AOF everysec", "µs", budget{}, aof, usAOF, themAOF, median("redis µs")},
	{"Go CPU a processed job", "µs", budget{}, throughput, us, them, median("go µs")},
	{"allocations a processed job", "", budget{}, throughput, us, them, median("allocs")},
	{"bytes to and from Redis a processed job", "B", budget{}, throughput, us, them, median("bytes")},
	{"client commands a processed job", "", budget{}, talk, us, them, median("commands")},
	{"round trips a processed job", "", budget{}, talk, us, them, median("trips")},
	{"Redis CPU an enqueued job, 50 goroutines", "µs", budget{}, one, us, them, median("redis µs")},
	{"Redis CPU an enqueued job, in bulk", "µs", budget{}, bulk, us, them, median("redis µs")},
	{"Go CPU an enqueued job, 50 goroutines", "µs", budget{}, one, us, them, median("go µs")},
	{"resident memory with 1,000 jobs in flight", "MB", budget{}, rss, us, them, median("rss MB")},
	{"idle enqueue to start, p50, peer tuned", "ms", budget{}, prompt, us, themTuned, percentile("ms", 50)},
	{"idle enqueue to start, p99, peer tuned", "ms", budget{}, prompt, us, themTuned, percentile("ms", 99)},
	{"client commands when idle, peer tuned", "1/s", budget{}, silence, us, themTuned, worst("commands/s")},
	{"scheduled start after due, p99, peer tuned", "ms", budget{}, timely, us, themTuned, percentile("ms", 99)},
	{"run again after SIGKILL, median of 20", "s", budget{}, killed, us, them, percentile("s", 50)},
	{"live heap, most over many jobs", "MB", budget{}, million, usKeep, "", worst("heap MB")},
	{"goroutines, most over many jobs", "", budget{}, million, usKeep, "", worst("goroutines")},
}, append(
	grown(byWorkers, "jobs processed, %s", "jobs/s", median("jobs/s")),
	grown(byWaiting, "Redis CPU a processed job, %s", "µs", median("redis µs"))...,
)...)

// grown measures one thing in each of the trials of a growth.
func grown(trials []*trial, name, unit string, v value) (rows []measure) {
	for _, t := range trials {
		rows = append(rows, measure{fmt.Sprintf(name, t.name), unit, budget{}, t, us, them, v})
	}
	return rows
}

// trials are all of them, in the order in which they are run.
var trials = append([]*trial{throughput, far3, far1, aof, ten, talk, one, bulk, prompt, timely, rss, million, silence, killed},
	append(byWorkers, byWaiting...)...)
