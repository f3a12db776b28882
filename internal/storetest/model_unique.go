package storetest

import (
	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// modelLock is who has a key of uniqueness, and until when, in a window.
type modelLock struct {
	mode store.UniqueMode
	id   uuid.UUID
	ends int64
}

// holder is the other job that keeps a job from taking a key. One without a record keeps nobody from anything.
func (m *model) holder(now int64, key string, id uuid.UUID) (uuid.UUID, bool) {
	l, taken := m.locks[key]
	switch {
	case !taken || l.id == id:
		return uuid.Nil, false
	case l.mode == store.UniqueWindow:
		return l.id, l.ends > now
	}
	return l.id, m.known(l.id) != nil
}

// lock takes a key for a job.
func (m *model) lock(now int64, id uuid.UUID, u store.Unique) {
	if u.Mode == 0 {
		return
	}
	l := modelLock{mode: u.Mode, id: id}
	if u.Mode == store.UniqueWindow {
		l.ends = now + upMS(u.Window)
	}
	m.locks[u.Key] = l
}

// unlock gives a job's key up if it has one in one of the modes.
func (m *model) unlock(j *modelJob, modes ...store.UniqueMode) {
	for _, mode := range modes {
		if l := m.locks[j.unique.Key]; j.unique.Mode == mode && l.mode == mode && l.id == j.id {
			delete(m.locks, j.unique.Key)
		}
	}
}

// close is what the end of a job means for its key.
func (m *model) close(j *modelJob) {
	m.unlock(j, store.UniqueClaimed, store.UniqueTerminal)
	if j.state == store.Done {
		m.unlock(j, store.UniqueDone)
	}
}

// erase removes a job.
func (m *model) erase(j *modelJob) {
	m.unlock(j, store.UniqueClaimed, store.UniqueTerminal, store.UniqueDone)
	delete(m.jobs, j.id)
}
