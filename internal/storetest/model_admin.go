package storetest

import (
	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// What administration does to a job, and what it answers: ok, or the name of the error.

func (m *model) cancel(now int64, id uuid.UUID) string {
	j := m.known(id)
	switch {
	case j == nil:
		return "not found"
	case j.state.Terminal():
		return "terminal"
	case j.state == store.Doing:
		j.cancelled = true
	default:
		j.state, j.at = store.Cancelled, now
		m.close(j)
	}
	return "ok"
}

func (m *model) requeue(now int64, id uuid.UUID) string {
	j := m.known(id)
	switch {
	case j == nil:
		return "not found"
	case !j.state.Terminal():
		return "state"
	}
	if j.unique.Mode != 0 && j.unique.Mode != store.UniqueWindow {
		if other, taken := m.holder(now, j.unique.Key, id); taken {
			return "duplicate of " + short(other)
		}
		m.lock(now, id, j.unique)
	}
	rank := 10 - j.priority
	if j.record != recordIntact {
		rank = 5
	}
	j.state, j.at, j.place = store.Todo, 0, modelPlace{rank, m.next(now)}
	j.attempt, j.crashes, j.started, j.worker, j.due = 0, 0, 0, uuid.Nil, 0
	j.lastError, j.result = "", "" // the progress stays
	return "ok"
}

func (m *model) delete(id uuid.UUID) string {
	j := m.known(id)
	switch {
	case j == nil:
		return "not found"
	case j.state == store.Doing:
		return "state"
	}
	m.erase(j)
	return "ok"
}

// await keeps the job a minute after its end, whatever the retention, if the end is still to come.
func (m *model) await(now int64, id uuid.UUID) string {
	j := m.known(id)
	if j == nil {
		return "not found"
	}
	if !j.state.Terminal() {
		m.awaited[id] = now + 60_000
	}
	return string(j.state)
}
