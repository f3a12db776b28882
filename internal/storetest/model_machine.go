package storetest

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// ModelRig is what CheckModel and CheckFamilies drive: a store over an empty prefix, and the server behind it.
type ModelRig struct {
	Store  *store.Store
	Client redis.UniversalClient
	Prefix string
	Fake   bool // time is that of a bubble
	// Times are the durations that the operations are drawn from: long where time is a bubble's, a few ms where it is real.
	Times ModelTimes
}

// ModelTimes are durations to draw from.
type ModelTimes struct {
	Leases, Delays, Sleeps, Ages []time.Duration
}

// FakeTimes are for a synctest bubble. No few of the sleeps add up to the hour after which a lane is forgotten.
var FakeTimes = ModelTimes{
	Leases: []time.Duration{time.Second, 20 * time.Second},
	Delays: []time.Duration{0, 0, time.Millisecond, 1500 * time.Microsecond, time.Second, 30 * time.Second, time.Hour},
	Sleeps: []time.Duration{time.Millisecond, 999 * time.Millisecond, time.Second, time.Second, 5 * time.Second, 20 * time.Second,
		20 * time.Second, 61 * time.Second, 61 * time.Minute, 25 * time.Hour},
	Ages: []time.Duration{time.Second, time.Minute, 24 * time.Hour},
}

// RealTimes are for a real server. Nothing depends on how long a sleep really takes: see machine.step.
var RealTimes = ModelTimes{
	Leases: []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, time.Hour},
	Delays: []time.Duration{0, 0, time.Millisecond, 1500 * time.Microsecond, 4 * time.Millisecond, time.Hour},
	Sleeps: []time.Duration{time.Millisecond, 3 * time.Millisecond, 12 * time.Millisecond},
	Ages:   []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Hour},
}

// CheckModel does a random sequence of operations on two instances, and on the model of each; after each operation
// everything that can be seen of the store must be as the model has it.
func CheckModel(t *rapid.T, rig ModelRig) {
	m := &machine{rig: rig, rt: rig.Store.Runtime(), ctx: context.Background()}
	for i, name := range []string{"mail", "img/resize"} {
		m.all = append(m.all, m.newDriven(t, i, name))
	}
	t.Repeat(m.actions())
	for _, d := range m.all {
		m.step(t, d, "at the end", func() string { return "" }, func(*model, int64) string { return "" })
	}
}

// machine drives the store and its model.
type machine struct {
	rig ModelRig
	rt  *store.Runtime
	ctx context.Context
	all []*driven
}

// driven is one instance as its callers know it.
type driven struct {
	model   *model
	ids     []uuid.UUID // jobs there may be
	workers []uuid.UUID
	leases  []knownLease // those handed out and heard of, stale ones included
	lanes   []*drivenLane
}

type knownLease struct {
	*store.Lease
	claim int // its number in the model
}

// drivenLane is a lane together with copies of it from before its last two requests. A request over such a copy is what a
// client sends that has not heard the answer.
type drivenLane struct {
	now, last, older store.Lane
	number           uint64 // of the next request over now
	exchange         *drawnExchange
	jobs             []modelNewJob
}

const modelLanes = 2 // for each of exchange and enqueue

func (m *machine) newDriven(t *rapid.T, n int, name string) *driven {
	d := &driven{model: newModel(name,
		m.drawRetention(t, "keep of the done"), m.drawRetention(t, "keep of the dead"), rapid.SampledFrom([]int{1, 2, 2, 3, 1000}).Draw(t, "max crashes"))}
	d.model.limit = rapid.SampledFrom([]int{0, 0, 2, 3}).Draw(t, "limit")
	for i := range 14 {
		d.ids = append(d.ids, numbered('j', n, i))
	}
	for i := range 5 {
		d.workers = append(d.workers, numbered('w', n, i))
	}
	for i := range 2 * modelLanes { // a first request gives the lane its id, so that copies of it are of the same lane
		l := &drivenLane{number: 2}
		if _, err := m.rt.Exchange(m.ctx, &l.now, m.terms(d, time.Minute, 0), store.Exchange{}); err != nil {
			t.Fatalf("the first request of a lane: %v", err)
		}
		d.model.say(m.now(t), request{i, 1}, nil)
		l.last, l.older = l.now, l.now
		d.lanes = append(d.lanes, l)
	}
	return d
}

// numbered makes an id that short reads. The first bytes are scattered, so that the order of ids is not that of numbers.
func numbered(kind byte, instance, i int) uuid.UUID {
	return uuid.UUID{0: byte(i * 0x9d), 1: byte(i), 13: kind, 14: kind + byte(instance), 15: byte(i)}
}

// processes are what claims are made for.
var processes = []uuid.UUID{numbered('p', 0, 0), numbered('p', 0, 1)}

func (m *machine) terms(d *driven, lease time.Duration, process int) store.Terms {
	return store.Terms{Instance: d.model.name, Process: processes[process], Lease: lease, Done: d.model.done, Dead: d.model.dead,
		MaxCrashes: d.model.maxCrashes, Limit: d.model.limit}
}

// now is the server's clock.
func (m *machine) now(t *rapid.T) int64 {
	now, err := m.rig.Client.Time(m.ctx).Result()
	if err != nil {
		t.Fatalf("reading the server's clock: %v", err)
	}
	return now.UnixMilli()
}

// step calls the store and the model, and compares their answers and what can be seen afterwards. The call took place at some
// millisecond between two readings of the server's clock, and must have answered and done what the model does at
// one of these. So it does not matter how long anything takes.
func (m *machine) step(t *rapid.T, d *driven, what string, call func() string, expect func(md *model, now int64) string) {
	from := m.now(t)
	got := call()
	to := m.now(t)
	t.Logf("%s: %s: %s", d.model.name, what, got)
	var matching []*model
	var want string
	for now := from; now <= to; now++ {
		md := d.model.clone()
		if want = expect(md, now); want == got {
			matching = append(matching, md)
		}
	}
	if len(matching) == 0 {
		t.Logf("at %s, before:\n%s", clockOf(timeOf(to)), describeAll(d.model.list()))
		differ(t, "answer to "+what, got, want)
	}
	seen := m.list(t, d)
	m.invariants(t, d, matching[0], seen)
	text := describeAll(seen)
	for _, md := range matching {
		if want = describeAll(md.list()); want == text {
			d.model = md
			m.compare(t, d)
			return
		}
	}
	t.Logf("at %s, before:\n%s", clockOf(timeOf(to)), describeAll(d.model.list()))
	differ(t, "jobs after "+what, "\n"+text, "\n"+want)
}
