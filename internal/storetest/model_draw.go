package storetest

import (
	"strings"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

func (m *machine) drawRetention(t *rapid.T, label string) store.Retention {
	r := store.Retention{}
	if rapid.Bool().Draw(t, label+" is bounded by count") {
		r.Count = rapid.SampledFrom([]int{1, 2, 4, 10_000}).Draw(t, label)
	}
	if rapid.Bool().Draw(t, label+" is bounded by age") {
		r.Age = rapid.SampledFrom(m.rig.Times.Ages).Draw(t, label)
	}
	return r
}

func (m *machine) drawJob(t *rapid.T, d *driven) modelNewJob {
	n := modelNewJob{NewJob: store.NewJob{
		ID:       rapid.SampledFrom(d.ids).Draw(t, "id"),
		Payload:  []byte(rapid.SampledFrom([]string{`null`, `{"to":"a b"}`, `"` + strings.Repeat("x", 300) + `"`}).Draw(t, "payload")),
		Priority: rapid.SampledFrom([]int{0, 0, 1, 5, 6, 10}).Draw(t, "priority"),
	}}
	if mode := rapid.SampledFrom(modelModes).Draw(t, "unique"); mode != 0 {
		n.Unique = store.Unique{Mode: mode, Key: rapid.SampledFrom([]string{"k", "a key"}).Draw(t, "key")}
		if mode == store.UniqueWindow {
			n.Unique.Window = rapid.SampledFrom(m.rig.Times.Ages).Draw(t, "window")
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "deadline") {
	case 8:
		n.Deadline = timeOf(m.now(t)).Add(rapid.SampledFrom(m.rig.Times.Delays).Draw(t, "deadline in"))
	case 9:
		n.Deadline = timeOf(m.now(t)).Add(rapid.SampledFrom(m.rig.Times.Ages).Draw(t, "deadline in"))
	}
	switch rapid.IntRange(0, 9).Draw(t, "when") {
	case 0, 1, 2:
		n.Delay = rapid.SampledFrom(m.rig.Times.Delays).Draw(t, "delay")
	case 3:
		n.At = timeOf(m.now(t)).Add(rapid.SampledFrom(m.rig.Times.Delays).Draw(t, "at"))
	case 4:
		n.At = timeOf(m.now(t)).Add(-rapid.SampledFrom(m.rig.Times.Delays).Draw(t, "at, before now"))
	case 5:
		if n.bad = rapid.Bool().Draw(t, "bad"); n.bad {
			n.Priority = 11
		}
	}
	return n
}

// modelModes are drawn from: half of the jobs have no key.
var modelModes = []store.UniqueMode{0, 0, 0, 0, store.UniqueClaimed, store.UniqueDone, store.UniqueTerminal, store.UniqueWindow}

// drawnExchange is a request in both languages.
type drawnExchange struct {
	terms store.Terms
	sent  store.Exchange
	model modelExchange
}

// drawLease draws one of the leases that were handed out, mostly one that is current.
func (d *driven) drawLease(t *rapid.T) (knownLease, bool) {
	var current, stale []knownLease
	for _, l := range d.leases {
		if d.model.held[l.Worker()].claim == l.claim {
			current = append(current, l)
		} else {
			stale = append(stale, l)
		}
	}
	some := current
	if len(some) == 0 || len(stale) > 0 && rapid.IntRange(0, 4).Draw(t, "stale") == 4 {
		some = stale
	}
	if len(some) == 0 {
		return knownLease{}, false
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "lease")], true
}

func (m *machine) drawFinish(t *rapid.T, l knownLease) (store.Finish, modelFinish) {
	f := store.Finish{Lease: l.Lease, Verb: rapid.SampledFrom([]store.Verb{store.Complete, store.Complete, store.Retry, store.Snooze,
		store.Release, store.Bury, store.Cancel}).Draw(t, "verb")}
	if l.Broken != nil {
		f.Verb = store.Bury
	}
	if f.Verb == store.Retry || f.Verb == store.Snooze {
		f.Delay = rapid.SampledFrom(m.rig.Times.Delays).Draw(t, "delay")
	}
	f.Error = rapid.SampledFrom([]string{"", "", "boom", strings.Repeat("e", store.MaxError+100)}).Draw(t, "error")
	if rapid.Bool().Draw(t, "has result") {
		f.Result = raw(`{"made":1}`)
	}
	f.Progress = raw(rapid.SampledFrom([]string{"", "", "1", "2"}).Draw(t, "progress"))
	return f, modelFinish{claim: l.claim, job: l.Job.ID, worker: l.Worker(), priority: l.Job.Priority,
		verb: f.Verb, delay: f.Delay, err: f.Error, progress: string(f.Progress), res: string(f.Result)}
}

// drawID draws a job, mostly one in the states where the operation has an effect.
func (d *driven) drawID(t *rapid.T, good func(*modelJob) bool) uuid.UUID {
	var some []uuid.UUID
	for _, id := range d.ids {
		if j := d.model.known(id); j != nil && good(j) {
			some = append(some, id)
		}
	}
	if len(some) == 0 || rapid.IntRange(0, 3).Draw(t, "any job") == 3 {
		some = d.ids
	}
	return rapid.SampledFrom(some).Draw(t, "job")
}

func doing(j *modelJob) bool  { return j.state == store.Doing }
func ended(j *modelJob) bool  { return j.state.Terminal() }
func living(j *modelJob) bool { return !j.state.Terminal() }
