package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

const (
	lanes   = 2                // requests of a feed in flight
	minLook = 8                // workers that ask for a job at a wake-up; more when all of them got one
	poll    = 5 * time.Second  // between looks when nobody wakes us
	deafTo  = time.Second      // the same while wake-ups may be missed
	hurry   = time.Millisecond // before a look that should come at once, after one in vain
)

// feed is what connects a pool to one of its instances. Turns that come together make one request, which hands in their
// ends and brings the slots their next jobs. The instance's terms, heartbeat and reaper are here.
type feed struct {
	pool    *pool
	run     *process
	reg     *registration
	terms   store.Terms
	commits *batch.Group[*commit]
	turns   *batch.Group[turn]
	lanes   [lanes]lane
	timer   *time.Timer // for the next look
	beats   *loop.Loop
	reaper  *loop.Loop
	sweeper *loop.Loop
	sweepAt atomic.Int64         // when the sweeper looks next, since the process started
	ailing  map[string]time.Time // instances that sweeps could not do with what they had to, and when last; the sweeper's goroutine only
	audit   audit
	waiting struct {
		sync.Mutex
		n int // attempts that repeat a request about their steps
	}
	beaten time.Time // when the last heartbeat was answered, or had nothing to do; the heartbeat's goroutine only

	// All under pool.mu.
	due     bool      // there may be jobs that no request asked for yet
	empty   bool      // the last answer said that there is nothing, and nobody has said otherwise since
	failing int       // requests that have failed and are to be repeated: nobody else joins them
	looks   int       // turns without an end that are on their way to a request
	ask     int       // how many slots take part in the next look
	armed   time.Time // what the timer is set to; zero: it isn't
	passing bool      // a turn that passes a wake-up on is on its way to a request
	look    []turn    // of the look that is being made

	vain    bool // its last request with leave for suspects brought none of those there are; under suspicion.mu
	asking  int  // claims that are unanswered
	tripped bool // see Trip: no claim until shut, one job at a time afterwards
	shut    time.Time
}

// turn is what a slot has for the store: the end of an attempt, or only the wish for a job. One without a slot passes a
// wake-up on.
type turn struct {
	slot *slot
	at   *attempt // nil: it holds nothing
}

func newFeed(p *pool, reg *registration) *feed {
	f := &feed{pool: p, run: p.run, reg: reg, terms: reg.terms, ailing: map[string]time.Time{}}
	f.terms.Process = p.run.about.ID
	f.terms.Period = f.run.rarely(f.every())
	f.sweepAt.Store(int64(sweepIdle))
	for i := range f.lanes {
		f.lanes[i].hope = make(chan struct{}, 1)
	}
	f.turns = batch.New(lanes, f.atOnce(), callWeight, turn.weight, f.flush)
	f.commits = f.newCommits()
	f.timer = time.AfterFunc(time.Hour, f.expire)
	f.timer.Stop()
	return f
}

// atOnce is how many turns, or commits, a request takes at most: half of the slots, so that one half works while the other one's
// request is on its way.
func (f *feed) atOnce() int { return max(min((len(f.pool.slots)+1)/2, callItems), minLook) }

// every is the time between two heartbeats, and the most between two passes of the reaper.
func (f *feed) every() time.Duration { return f.terms.Lease / beatsPerLease }

// weight is about how many bytes the turn adds to a request.
func (t turn) weight() int {
	if t.at == nil {
		return 64
	}
	f := &t.at.finish
	return 256 + len(f.Wait.Steps)*recordWeight + len(f.Result) + len(f.Progress) + min(len(f.Error), store.MaxError)
}
