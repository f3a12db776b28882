package storetest

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The model is what the store promises of one instance, in plain maps: no Redis, no scripts, no tokens. Its operations
// (model_enqueue.go, model_unique.go, model_exchange.go, model_lease.go, model_admin.go) take the server's time and return their answer as
// text, in the words (model_view.go) in which the machine that drives both (model_machine.go) also puts the store's.
type model struct {
	name       string
	done, dead store.Retention
	maxCrashes int
	limit      int // on jobs doing at once; 0: none

	jobs    map[uuid.UUID]*modelJob
	held    map[uuid.UUID]modelHold // by worker
	probes  map[uuid.UUID]int       // by process, the claim of the suspect that it took last
	awaited map[uuid.UUID]int64     // by job, until when somebody waits for its end
	lanes   map[int]modelLane
	locks   map[string]modelLock // by key
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
	deadline int64 // as its record has it; 0: none
	unique   store.Unique

	attempt, crashes            int
	started                     int64
	worker                      uuid.UUID
	lastError, progress, result string

	place     modelPlace // todo: where it stands; doing: where it stood
	at        int64      // scheduled: due; doing: the lease's deadline; ended: when
	cancelled bool       // asked for while doing
	due       int64      // the deadline, unless a requeue has dropped it
}

// modelPlace orders the todo: by rank, which is 10 - priority, then by seq.
type modelPlace struct {
	rank int
	seq  int64
}

func (p modelPlace) before(q modelPlace) bool {
	return p.rank < q.rank || p.rank == q.rank && p.seq < q.seq
}

// seqPerMS makes a seq tell since when: see store/keys.go.
const seqPerMS = 256

type recordState byte

// What somebody did to a job's record behind the store's back.
const (
	recordIntact recordState = iota
	recordDeleted
	recordUnreadable
	recordLost // deleted, and replaced by a stand-in when that was found out
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
		jobs: map[uuid.UUID]*modelJob{}, held: map[uuid.UUID]modelHold{}, probes: map[uuid.UUID]int{}, awaited: map[uuid.UUID]int64{}, lanes: map[int]modelLane{},
		locks: map[string]modelLock{},
	}
}

func (m *model) clone() *model {
	c := *m
	c.held, c.probes, c.awaited, c.lanes, c.locks =
		maps.Clone(m.held), maps.Clone(m.probes), maps.Clone(m.awaited), maps.Clone(m.lanes), maps.Clone(m.locks)
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
		case store.Doing: // it is found by its worker
			return cmp.Or(cmp.Compare(a.at, b.at), slices.Compare(m.leasee(a), m.leasee(b)))
		default:
			return cmp.Or(cmp.Compare(a.at, b.at), byID)
		}
	})
	return some
}

// leasee is the worker whose lease a doing job is under: another than that of its run where that one went on without it.
func (m *model) leasee(j *modelJob) []byte {
	if m.held[j.id].job == j.id {
		return j.id[:]
	}
	return j.worker[:]
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
