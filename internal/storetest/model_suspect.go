package storetest

import (
	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// suspect reports whether a job waits, one crash short of being dead.
func (m *model) suspect(j *modelJob) bool {
	return j.state == store.Todo && j.crashes > 0 && j.crashes == m.maxCrashes-1
}

// waiting returns the jobs that are todo, those that are suspects apart; each from the first to be served on.
func (m *model) waiting() (good, suspects []*modelJob) {
	for _, j := range m.in(store.Todo) {
		if m.suspect(j) {
			suspects = append(suspects, j)
		} else {
			good = append(good, j)
		}
	}
	return good, suspects
}

// probing reports whether a process runs a suspect.
func (m *model) probing(process uuid.UUID) bool {
	for _, h := range m.held {
		if h.claim == m.probes[process] {
			return true
		}
	}
	return false
}

// late reports whether a job that waits has missed its deadline.
func (j *modelJob) late(now int64) bool { return j.due != 0 && j.due <= now }

// expire ends a job that was not claimed by its deadline.
func (m *model) expire(now int64, j *modelJob) {
	j.state, j.at, j.lastError = store.Dead, now, "its deadline has passed"
	m.close(j)
}
