package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// modelFinish ends the claim of that number. Its job's priority is the one that the claimer was told.
type modelFinish struct {
	claim         int
	job, worker   uuid.UUID
	priority      int
	verb          store.Verb
	delay         time.Duration
	err           string
	progress, res string
}

type modelExchange struct {
	process  uuid.UUID
	lease    time.Duration
	finishes []modelFinish
	claims   []uuid.UUID
	calm     bool // wants no suspects
}

// exchange ends leases and claims jobs. Which of the free workers gets which of the jobs is not promised: that, and when to look
// again if none of them was free, is taken from the answer.
func (m *model) exchange(now int64, r request, x modelExchange, got store.Exchanged) string {
	answer, repeated, refused := m.said(now, r)
	if refused {
		return "refused"
	}
	added := map[store.State]bool{}
	if !repeated {
		for _, f := range x.finishes {
			answer = append(answer, m.finish(now, f, added))
		}
	}
	var leases, expired []string
	var free []uuid.UUID
	busy := m.probing(x.process)
	for _, w := range x.claims {
		h, busy := m.held[w]
		switch {
		case busy && m.known(h.job) != nil:
			leases = append(leases, m.describeLease(w))
		case !repeated:
			if busy { // what it holds has lost its record: the reaper will see to it, under the name of a worker that there isn't
				delete(m.held, w)
				m.held[h.job] = h
				m.jobs[h.job].at = 1
			}
			free = append(free, w)
		}
	}
	next := int64(-1)
	if repeated {
		next = 0
	} else if len(x.claims) > 0 && !m.paused {
		m.promote(now)
		if later := m.in(store.Scheduled); len(later) > 0 {
			next = max(0, later[0].at-now)
		}
		claimed, late, err := m.claim(now, x, free, &busy, got, added)
		if err != "" {
			return err
		}
		leases, expired = append(leases, claimed...), late
		good, suspects := m.waiting()
		if len(free) == 0 {
			next = got.Next.Milliseconds()
		} else if (len(good) > 0 || len(suspects) > 0 && !busy && !x.calm) && m.room() > 0 {
			next = 0
		}
	}
	_, suspects := m.waiting()
	others := len(suspects) > 0 && !busy && !m.paused
	trimmed := 0
	for _, s := range []store.State{store.Done, store.Cancelled, store.Dead} {
		if added[s] && !(s != store.Dead && m.done == store.Retention{}) {
			trimmed += m.trim(now, s, store.Retention{Count: m.bound(s).Count}, m.bound(s) == store.Retention{})
		}
	}
	m.say(now, r, answer)
	return describeExchanged(answer, leases, expired, others, next, trimmed)
}

// finish ends a lease if it is the worker's own and current.
func (m *model) finish(now int64, f modelFinish, added map[store.State]bool) string {
	if h, busy := m.held[f.worker]; !busy || h.claim != f.claim {
		return "lost"
	}
	delete(m.held, f.worker)
	j := m.jobs[f.job]
	target := map[store.Verb]store.State{store.Complete: store.Done, store.Retry: store.Scheduled, store.Snooze: store.Scheduled,
		store.Release: store.Todo, store.Bury: store.Dead, store.Cancel: store.Cancelled}[f.verb]
	if j.cancelled && f.verb != store.Complete {
		target = store.Cancelled
	}
	j.crashes, j.cancelled = 0, false
	if f.verb == store.Snooze || f.verb == store.Release {
		j.attempt--
	}
	if f.err != "" && f.verb != store.Complete {
		j.lastError = f.err[:min(len(f.err), store.MaxError)]
	}
	if f.progress != "" {
		j.progress = f.progress
	}
	if f.res != "" && f.verb == store.Complete {
		j.result = f.res
	}
	j.state, j.at = target, now
	switch target {
	case store.Todo: // at its old place
		j.at = 0
	case store.Scheduled:
		j.at = now + upMS(f.delay)
		j.place = modelPlace{rank: 10 - f.priority}
	case store.Done, store.Cancelled:
		if (m.done == store.Retention{}) && !m.wanted(j.id, now) {
			m.erase(j)
		}
	}
	if target.Terminal() {
		m.close(j)
	}
	added[target] = true
	return string(target)
}

// claim gives the first of the todo to the free workers, among them one suspect if the process runs none, which is to say when it is busy.
// A job that is late, or whose record can't be read, dies and takes the turn of one.
func (m *model) claim(now int64, x modelExchange, free []uuid.UUID, busy *bool, got store.Exchanged, added map[store.State]bool) (
	leases, expired []string, err string) {
	taker := map[uuid.UUID]uuid.UUID{}
	for _, l := range got.Leases {
		if _, busy := m.held[l.Worker()]; slices.Contains(free, l.Worker()) && !busy {
			taker[l.Job.ID] = l.Worker()
		}
	}
	waits, suspects := m.waiting()
	room := min(len(free), m.room())
	waits = waits[:min(len(waits), room)]
	if n := len(waits); room > 0 && len(suspects) > 0 && !*busy && !x.calm && (n < room || suspects[0].place.before(waits[n-1].place)) {
		waits = append(slices.Clone(waits[:min(n, room-1)]), suspects[0])
	}
	for _, j := range waits {
		if j.late(now) {
			if j.record == recordDeleted {
				m.quarantine(now, j)
			}
			m.expire(now, j)
			expired = append(expired, short(j.id))
			added[store.Dead] = true
			continue
		}
		if j.record == recordDeleted || j.record == recordUnreadable {
			m.quarantine(now, j)
			added[store.Dead] = true
			continue
		}
		w, ok := taker[j.id]
		if _, busy := m.held[w]; !ok || busy {
			return nil, nil, "no free worker got " + short(j.id)
		}
		m.claims++
		if m.suspect(j) {
			m.probes[x.process], *busy = m.claims, true
		}
		m.held[w] = modelHold{m.claims, j.id, x.process}
		j.state, j.at, j.started, j.worker = store.Doing, now+x.lease.Milliseconds(), now, w
		j.attempt++
		m.unlock(j, store.UniqueClaimed)
		leases = append(leases, m.describeLease(w))
	}
	return leases, expired, ""
}

// room is how many more jobs may be doing.
func (m *model) room() int {
	if m.limit == 0 {
		return math.MaxInt
	}
	return max(0, m.limit-len(m.in(store.Doing)))
}

func (m *model) quarantine(now int64, j *modelJob) {
	j.state, j.at, j.lastError = store.Dead, now, "the record is of an unknown version"
	if j.record == recordDeleted {
		j.record, j.priority, j.payload, j.enqueued, j.deadline, j.lastError = recordLost, 5, "", now, 0, "the record is missing"
	}
	m.close(j)
}
