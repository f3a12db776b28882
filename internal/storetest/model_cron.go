package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// CheckCron does random sequences of all that happens to entries of cron: several processes that register, read and fire them, each by what
// it has read last, administration, and a clock that goes back. Each answer must be the model's. After each step the entries must stand as in the model,
// no record may have gone back, and no tick may have been dispatched twice.
func CheckCron(t *rapid.T, rig ModelRig) {
	c := &cronMachine{rig: rig, rt: rig.Store.Runtime(), ctx: context.Background(), every: 3 * time.Millisecond,
		model: cronModel{}, removed: map[string]bool{}, status: map[string]map[int64]string{}, fired: map[uuid.UUID]string{}}
	if rig.Fake {
		c.every = time.Minute
	}
	for range 3 {
		c.seen = append(c.seen, map[string]store.EntryState{})
	}
	t.Repeat(map[string]func(*rapid.T){
		"": c.check, "register": c.register, "read": c.read, "read more": c.read, "dispatch": c.dispatch, "dispatch more": c.dispatch,
		"dispatch again": c.dispatch, "fail": c.undispatched, "by hand": c.byHand, "enable": c.enable, "remove": c.remove, "job": c.job, "back": c.back,
		"time passes": func(t *rapid.T) {
			time.Sleep(c.every * time.Duration(rapid.IntRange(1, 8).Draw(t, "halves")) / 2)
		},
	})
}

// cronModel is what is promised of the entries of an instance, by their keys.
type cronModel map[string]cronEntry

type cronEntry struct {
	on         bool
	high, last int64 // the latest tick that is decided, the last that was dispatched
	def        store.Definition
	job        uuid.UUID // of the last that was dispatched
	skipped    []ticks   // each with a record
}

// ticks are those from one to another that a record stands for.
type ticks struct{ first, last int64 }

// ahead is how far ahead of the clock, in ms, no tick is decided unless the clock has gone back since.
const ahead = int64(time.Hour / time.Millisecond)

type cronMachine struct {
	rig     ModelRig
	rt      *store.Runtime
	ctx     context.Context
	every   time.Duration // between two ticks
	model   cronModel
	removed map[string]bool               // within a day, and not registered since
	seen    []map[string]store.EntryState // by process: what it has read of each entry last
	lanes   [2]store.Lane                 // the lane, and what it was before the last request
	asked   bool                          // over that lane
	status  map[string]map[int64]string   // of the records that were seen, by entry and tick
	fired   map[uuid.UUID]string          // the jobs of the ticks that were dispatched, with their entries
}

var cronKeys = []string{"a", "b"}

func drawKey(t *rapid.T) string { return rapid.SampledFrom(cronKeys).Draw(t, "entry") }

func (c *cronMachine) now(t *rapid.T) int64 {
	now, err := c.rig.Client.Time(c.ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMilli()
}

// step calls the store, and the model at each millisecond at which that may have been; see machine.step.
func (c *cronMachine) step(t *rapid.T, what string, call func() string, expect func(m cronModel, now int64) string) {
	from := c.now(t)
	got := call()
	to := c.now(t)
	t.Logf("%s: %s", what, got)
	var want string
	for now := from; now <= to; now++ {
		m := maps.Clone(c.model)
		if want = expect(m, now); want == got && c.stands(t, m) {
			c.model = m
			return
		}
	}
	t.Fatalf("%s is answered with %q, and the entries are %v; want %q, and before they were %v", what, got, c.entries(t), want, c.model)
}

// entries reads all that are registered, in the model's words.
func (c *cronMachine) entries(t *rapid.T) map[string]string {
	read, err := c.rt.Entries(c.ctx, instance, "", cronKeys)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range read.Entries {
		if !e.Missing {
			all[e.Key] = fmt.Sprint(e.Enabled, msOf(e.Decided), msOf(e.Last), e.Fingerprint)
		}
	}
	return all
}

func (c *cronMachine) stands(t *rapid.T, m cronModel) bool {
	want := map[string]string{}
	for key, e := range m {
		want[key] = fmt.Sprint(e.on, e.high, e.last, e.def.Fingerprint())
	}
	return maps.Equal(c.entries(t), want)
}

func msOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (c *cronMachine) register(t *rapid.T) {
	key, missing := drawKey(t), rapid.IntRange(0, 3).Draw(t, "missing") == 3
	def := store.Definition{Key: key, Spec: rapid.SampledFrom([]string{"* * * * *", "*/2 * * * *"}).Draw(t, "spec"),
		SkipOverlap: rapid.Bool().Draw(t, "alone"), Job: store.NewJob{Payload: []byte(rapid.SampledFrom([]string{`1`, `2`}).Draw(t, "payload"))}}
	c.step(t, "register "+key, func() string {
		got, _, err := c.rt.Register(c.ctx, instance, []store.Definition{def}, missing)
		if err != nil {
			t.Fatal(err)
		}
		return string(rune(got[0]))
	}, func(m cronModel, now int64) string {
		e, there := m[key]
		was, letter := e.def, store.Registered
		switch {
		case there && was.Fingerprint() == def.Fingerprint():
			return string(rune(store.Unchanged))
		case there && missing:
			return string(rune(store.Kept))
		case !there && missing && c.removed[key]:
			return string(rune(store.Removed))
		case there && was.Spec == def.Spec:
			letter = store.Changed
		case there:
			letter = store.Retimed
		default:
			e.on = true
		}
		if e.def = def; letter != store.Changed {
			e.high = nobodys(e.high, now)
		}
		m[key] = e
		return string(rune(letter))
	})
	if _, there := c.model[key]; there {
		delete(c.removed, key)
	}
}

// read is what a process does now and then.
func (c *cronMachine) read(t *rapid.T) {
	read, err := c.rt.Entries(c.ctx, instance, "", cronKeys)
	if err != nil {
		t.Fatal(err)
	}
	mine := rapid.SampledFrom(c.seen).Draw(t, "process")
	for _, e := range read.Entries {
		if delete(mine, e.Key); !e.Missing {
			mine[e.Key] = e
		}
	}
}

// dispatch decides ticks by what a process has read of an entry, however long ago.
func (c *cronMachine) dispatch(t *rapid.T) {
	key := drawKey(t)
	entry, ok := c.seen[rapid.IntRange(0, 2).Draw(t, "process")][key]
	if !ok {
		t.Skip("it knows of no such entry")
	}
	var decisions []store.Decision
	tick := c.decidedUntil(t, msOf(entry.Decided))
	for range rapid.IntRange(1, 3).Draw(t, "ticks") {
		tick = tick.Add(c.every)
		d := store.Decision{Tick: tick}
		if rapid.IntRange(0, 3).Draw(t, "skip") == 3 {
			d.Skip, d.First = "why", tick
			tick = tick.Add(c.every * time.Duration(rapid.IntRange(0, 2).Draw(t, "with it")))
			d.Tick = tick
		}
		decisions = append(decisions, d)
	}
	waits := false
	if e := c.model[key]; e.job != uuid.Nil {
		j, err := c.rig.Store.Get(c.ctx, e.job)
		waits = err == nil && !j.State.Terminal()
	}
	send := func(lane *store.Lane) string {
		got, _, err := c.rt.Dispatch(c.ctx, lane, instance, "node", []store.EntryTicks{{Entry: entry, Decisions: decisions}})
		if err != nil {
			t.Fatal(err)
		}
		return describeTicks(got[0].Verdict, msOf(got[0].Latest), msOf(got[0].Last), got[0].Outcomes)
	}
	c.lanes[1] = c.lanes[0]
	var answer string
	c.step(t, "dispatch "+key, func() string { answer = send(&c.lanes[0]); return answer },
		func(m cronModel, now int64) string { return m.dispatch(c, now, entry, decisions, waits) })
	if c.asked && rapid.IntRange(0, 3).Draw(t, "repeat") == 3 { // its reply was lost
		c.step(t, "dispatch "+key+", repeated", func() string { return send(&c.lanes[1]) }, func(cronModel, int64) string { return answer })
	}
	c.asked = true
}

func (m cronModel) dispatch(c *cronMachine, now int64, entry store.EntryState, decisions []store.Decision, waits bool) string {
	e, there := m[entry.Key]
	verdict := store.Decided
	switch {
	case !there:
		return describeTicks(store.Absent, 0, 0, nil)
	case e.def.Fingerprint() != entry.Fingerprint:
		verdict = store.Altered
	case !e.on:
		verdict = store.Disabled
	case e.high != msOf(entry.Decided):
		verdict = store.Behind
	}
	mark := e.high
	if mark > now+ahead {
		mark = 0
	}
	var outcomes []store.TickOutcome
	for _, d := range decisions {
		if verdict == store.Decided && msOf(d.Tick) > now {
			verdict = store.Early
		}
		if verdict != store.Decided {
			break
		}
		tick := msOf(d.Tick)
		switch {
		case tick <= mark || c.stood(entry.Key, e, tick):
			outcomes = append(outcomes, store.TickKnown)
		case d.Skip != "":
			outcomes = append(outcomes, store.TickSkipped)
			e.skipped = append(slices.Clip(e.skipped), ticks{msOf(d.First), tick})
		case e.def.SkipOverlap && waits:
			outcomes = append(outcomes, store.TickOverlap)
			e.skipped = append(slices.Clip(e.skipped), ticks{tick, tick})
		default:
			outcomes = append(outcomes, store.TickDispatched)
			e.last, e.job, waits = tick, c.rt.JobOfTick(instance, entry.Key, d.Tick), true
		}
		if tick > mark {
			mark, e.high = tick, tick
		}
	}
	m[entry.Key] = e
	return describeTicks(verdict, e.high, e.last, outcomes)
}

func describeTicks(v store.TickVerdict, latest, last int64, outcomes []store.TickOutcome) string {
	return fmt.Sprintf("%c, latest %d, last %d, outcomes %q", v, latest, last, outcomes)
}
