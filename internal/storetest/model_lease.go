package storetest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// heartbeat extends the leases that are current, and tells what the others hold without knowing.
func (m *model) heartbeat(now int64, lease time.Duration, beats []modelFinish, others []uuid.UUID) string {
	var verdicts, found []string
	for _, b := range beats {
		h, busy := m.held[b.worker]
		if !busy || h.claim != b.claim {
			verdicts = append(verdicts, "lost")
			continue
		}
		j := m.jobs[h.job]
		j.at = now + lease.Milliseconds()
		if b.progress != "" {
			j.progress = b.progress
		}
		if j.cancelled {
			verdicts = append(verdicts, "cancel")
		} else {
			verdicts = append(verdicts, "held")
		}
	}
	for _, w := range others {
		if h, busy := m.held[w]; busy && m.known(h.job) != nil {
			found = append(found, m.describeFound(w))
		}
	}
	return describeBeats(verdicts, found)
}

// reap ends the leases that ran out, and the jobs that wait past their deadline, and removes what retention no longer keeps.
func (m *model) reap(now int64) string {
	var reaped, expired []string
	next := int64(-1)
	var late []*modelJob
	for _, j := range slices.Concat(m.in(store.Scheduled), m.in(store.Todo)) {
		if j.late(now) {
			late = append(late, j)
		}
	}
	slices.SortFunc(late, func(a, b *modelJob) int { return cmp.Or(cmp.Compare(a.due, b.due), bytes.Compare(a.id[:], b.id[:])) })
	for _, j := range m.in(store.Doing) {
		if j.at >= now {
			next = j.at - now + 1
			break
		}
		j.worker = uuid.UUID(m.leasee(j))
		delete(m.held, j.worker)
		j.crashes++
		j.attempt--
		switch {
		case j.cancelled:
			j.state, j.at = store.Cancelled, now
		case j.crashes >= m.maxCrashes:
			j.state, j.at = store.Dead, now
			j.lastError = fmt.Sprintf("crashed %d times in a row: its lease ran out each time", j.crashes)
		default:
			j.state, j.at = store.Todo, 0
		}
		j.cancelled = false
		if j.state.Terminal() {
			m.close(j)
		}
		reaped = append(reaped, describeReaped(store.Reaped{Job: j.id, Worker: j.worker, Crashes: j.crashes, State: j.state}))
	}
	for _, j := range late {
		m.expire(now, j)
		expired = append(expired, short(j.id))
	}
	missing := int64(0)
	for _, j := range m.jobs {
		if j.record == recordDeleted {
			missing--
		}
	}
	trimmed := map[store.State]int{}
	for _, s := range []store.State{store.Done, store.Dead, store.Cancelled} {
		if n := m.trim(now, s, m.bound(s), m.bound(s) == store.Retention{}); n > 0 {
			trimmed[s] = n
		}
	}
	return describeMaintained(reaped, expired, trimmed, next, missing)
}

// bound is the retention of an ending state.
func (m *model) bound(s store.State) store.Retention {
	if s == store.Dead {
		return m.dead
	}
	return m.done
}

// trim removes what a retention does not keep: the oldest of those that ended, but a job that somebody waits for stays
// a minute.
func (m *model) trim(now int64, s store.State, keep store.Retention, nothing bool) int {
	all := m.in(s)
	over := 0
	if keep.Count > 0 {
		over = max(0, len(all)-keep.Count)
	}
	for keep.Age > 0 && over < len(all) && all[over].at <= now-keep.Age.Milliseconds() {
		over++
	}
	if nothing {
		over = len(all)
	}
	trimmed := 0
	for _, j := range all[:over] {
		if !(m.wanted(j.id, now) && j.at > now-time.Minute.Milliseconds()) {
			m.erase(j)
			trimmed++
		}
	}
	return trimmed
}
