package storetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The model is what the store promises of one instance, in plain maps: no Redis, no scripts, no tokens. Its operations
// (model_lease.go, model_admin.go) take the server's time and return their answer as text, in the words in which the machine
// (model_machine.go) also puts what the store answered.
type model struct {
	name       string
	done, dead store.Retention
	maxCrashes int

	jobs    map[uuid.UUID]*modelJob
	held    map[uuid.UUID]modelHold // by worker
	awaited map[uuid.UUID]int64     // by job, until when somebody waits for its end
	lanes   map[int]modelLane
	paused  bool
	seq     int64 // the last that was given out
	claims  int   // so far; each has its number, which stands for its token
}

// modelJob is all there is of a job.
type modelJob struct {
	id       uuid.UUID
	record   recordState
	state    store.State
	priority int
	payload  string
	enqueued int64

	attempt, crashes            int
	started                     int64
	worker                      uuid.UUID
	lastError, progress, result string

	place     modelPlace // todo: where it stands; doing: where it stood
	at        int64      // scheduled: due; doing: the lease's deadline; ended: when
	cancelled bool       // asked for while doing
}

// modelPlace orders the todo: by rank, which is 10 - priority, then by seq.
type modelPlace struct {
	rank int
	seq  int64
}

// seqPerMS makes a seq tell since when: see store/keys.go.
const seqPerMS = 256

type recordState byte

// What somebody did to a job's record behind the store's back.
const (
	recordIntact recordState = iota
	recordDeleted
	recordUnreadable
)

type modelHold struct {
	claim        int
	job, process uuid.UUID
}

// modelLane is the last request of a lane and its answer.
type modelLane struct {
	number  uint64
	answer  []string
	expires int64
}

func newModel(name string, done, dead store.Retention, maxCrashes int) *model {
	return &model{
		name: name, done: done, dead: dead, maxCrashes: maxCrashes,
		jobs: map[uuid.UUID]*modelJob{}, held: map[uuid.UUID]modelHold{}, awaited: map[uuid.UUID]int64{}, lanes: map[int]modelLane{},
	}
}

func (m *model) clone() *model {
	c := *m
	c.held, c.awaited, c.lanes = maps.Clone(m.held), maps.Clone(m.awaited), maps.Clone(m.lanes)
	c.jobs = make(map[uuid.UUID]*modelJob, len(m.jobs))
	for id, j := range m.jobs {
		k := *j
		c.jobs[id] = &k
	}
	return &c
}

// modelStates in the order of List.
var modelStates = []store.State{store.Scheduled, store.Todo, store.Doing, store.Parked, store.Done, store.Dead, store.Cancelled}

// in returns the jobs in a state: those that wait or run from the first to be served on, those that ended from the first
// that did.
func (m *model) in(state store.State) []*modelJob {
	var some []*modelJob
	for _, j := range m.jobs {
		if j.state == state {
			some = append(some, j)
		}
	}
	slices.SortFunc(some, func(a, b *modelJob) int {
		byID := bytes.Compare(a.id[:], b.id[:])
		switch state {
		case store.Todo:
			return cmp.Or(cmp.Compare(a.place.rank, b.place.rank), cmp.Compare(a.place.seq, b.place.seq))
		case store.Scheduled:
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.place.rank, b.place.rank), byID)
		default:
			return cmp.Or(cmp.Compare(a.at, b.at), byID)
		}
	})
	return some
}

// next gives out a seq.
func (m *model) next(now int64) int64 {
	m.seq = max(m.seq+1, now*seqPerMS)
	return m.seq
}

// known returns a job that has a record; without one it is nowhere to be found by its id.
func (m *model) known(id uuid.UUID) *modelJob {
	if j := m.jobs[id]; j != nil && j.record != recordDeleted {
		return j
	}
	return nil
}

// wanted reports whether somebody waits for the job's end.
func (m *model) wanted(id uuid.UUID, now int64) bool { return m.awaited[id] >= now }

// said answers a request as its lane remembers it. A lane is forgotten an hour after its last request.
func (m *model) said(now int64, r request) (answer []string, repeated, refused bool) {
	l, ok := m.lanes[r.lane]
	if !ok || l.expires <= now || r.number > l.number {
		return nil, false, false
	}
	return l.answer, r.number == l.number, r.number < l.number
}

func (m *model) say(now int64, r request, answer []string) {
	m.lanes[r.lane] = modelLane{r.number, slices.Clone(answer), now + time.Hour.Milliseconds()}
}

// request is a place in the order of a lane's requests.
type request struct {
	lane   int
	number uint64
}

// snapshot is the job as the store shows it.
func (m *model) snapshot(j *modelJob) store.Job {
	s := store.Job{ID: j.id, Instance: m.name, State: j.state, Attempt: j.attempt, Crashes: j.crashes,
		StartedAt: timeOf(j.started), Worker: j.worker, LastError: j.lastError, Progress: raw(j.progress), Result: raw(j.result)}
	if j.record == recordIntact {
		s.Priority, s.Payload, s.EnqueuedAt = j.priority, raw(j.payload), timeOf(j.enqueued)
	} else if s.LastError == "" {
		s.LastError = "the record can't be read"
	}
	switch {
	case j.state == store.Scheduled:
		s.RunAt = timeOf(j.at)
	case j.state == store.Todo:
		s.RunAt = timeOf(j.place.seq / seqPerMS)
	case j.state == store.Doing:
		s.LeaseUntil = timeOf(j.at)
	case j.state.Terminal():
		s.FinishedAt = timeOf(j.at)
	}
	return s
}

// list is what List returns of the instance.
func (m *model) list() []store.Job {
	var all []store.Job
	for _, state := range modelStates {
		some := m.in(state)
		if state.Terminal() {
			slices.Reverse(some)
		}
		for _, j := range some {
			all = append(all, m.snapshot(j))
		}
	}
	return all
}

// stats is what Stats returns of the instance, but for the age of the oldest, and since when that one is todo.
func (m *model) stats() (store.Stats, int64) {
	s, oldest := store.Stats{Instance: m.name, Paused: m.paused}, int64(0)
	for _, j := range m.jobs {
		if j.record != recordDeleted {
			s.Total++
		}
		*count(&s, j.state)++
		if since := j.place.seq / seqPerMS; j.state == store.Todo && (oldest == 0 || since < oldest) {
			oldest = since
		}
	}
	return s, oldest
}

// count is where s counts the jobs of a state.
func count(s *store.Stats, state store.State) *int64 {
	switch state {
	case store.Scheduled:
		return &s.Scheduled
	case store.Todo:
		return &s.Todo
	case store.Doing:
		return &s.Doing
	case store.Parked:
		return &s.Parked
	case store.Done:
		return &s.Done
	case store.Dead:
		return &s.Dead
	}
	return &s.Cancelled
}

// workers is what Workers returns of the instance.
func (m *model) workers() []store.Worker {
	var all []store.Worker
	for id, h := range m.held {
		all = append(all, store.Worker{ID: id, Instance: m.name, Job: h.job, Process: h.process, Since: timeOf(m.jobs[h.job].started)})
	}
	slices.SortFunc(all, func(a, b store.Worker) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return all
}

// The words of the comparison.

func describe(j store.Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s priority %d attempt %d crashes %d worker %s", short(j.ID), j.State, j.Priority, j.Attempt, j.Crashes, short(j.Worker))
	for _, f := range []struct {
		name string
		text string
	}{
		{"payload", string(j.Payload)}, {"progress", string(j.Progress)}, {"result", string(j.Result)}, {"error", j.LastError},
		{"enqueued", clockOf(j.EnqueuedAt)}, {"run", clockOf(j.RunAt)}, {"started", clockOf(j.StartedAt)},
		{"lease", clockOf(j.LeaseUntil)}, {"finished", clockOf(j.FinishedAt)}, {"in", j.Instance},
	} {
		if f.text != "" {
			fmt.Fprintf(&b, " %s %.40s(%d)", f.name, f.text, len(f.text))
		}
	}
	return b.String()
}

func describeAll(jobs []store.Job) string {
	var b strings.Builder
	for _, j := range jobs {
		b.WriteString(describe(j) + "\n")
	}
	return b.String()
}

func raw(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func clockOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000")
}

// short names a job or a worker by the number that the machine put last.
func short(id uuid.UUID) string {
	if id == uuid.Nil {
		return "-"
	}
	return fmt.Sprintf("%c%d", id[14], id[15])
}
