package storetest

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

// modelNewJob is a job to be enqueued; bad is one that the store must refuse.
type modelNewJob struct {
	store.NewJob
	bad bool
}

// enqueue accepts jobs. An id that is there already changes nothing; a fresh one is there if the request came before.
func (m *model) enqueue(now int64, r request, jobs []modelNewJob) string {
	verdicts := make([]string, len(jobs))
	var sent []int
	for i := range jobs {
		if verdicts[i] = "invalid"; !jobs[i].bad {
			sent = append(sent, i)
		}
	}
	if len(sent) == 0 {
		return fmt.Sprint(verdicts)
	}
	answer, repeated, refused := m.said(now, r)
	if refused {
		return "refused"
	}
	if !repeated {
		for _, i := range sent {
			answer = append(answer, m.accept(now, jobs[i].NewJob))
		}
	}
	m.say(now, r, answer)
	for k, i := range sent {
		verdicts[i] = answer[k]
	}
	return fmt.Sprint(verdicts)
}

func (m *model) accept(now int64, n store.NewJob) string {
	if m.jobs[n.ID] != nil {
		if n.Fresh {
			return "ok"
		}
		return "exists"
	}
	if n.Unique.Mode != 0 {
		if other, taken := m.holder(now, n.Unique.Key, n.ID); taken {
			return "duplicate of " + short(other)
		}
	}
	m.lock(now, n.ID, n.Unique)
	j := &modelJob{id: n.ID, priority: n.Priority, payload: string(n.Payload), enqueued: now, at: now, unique: n.Unique}
	if j.priority == 0 {
		j.priority = 5
	}
	if !n.Deadline.IsZero() {
		j.deadline = n.Deadline.UnixMilli()
		j.due = j.deadline
	}
	j.place.rank = 10 - j.priority
	switch {
	case n.Delay > 0:
		j.at = now + upMS(n.Delay)
	case !n.At.IsZero():
		j.at = upMS(time.Duration(n.At.UnixNano()))
	}
	if j.state = store.Scheduled; j.at <= now {
		j.state, j.at, j.place.seq = store.Todo, 0, m.next(now)
	}
	m.jobs[n.ID] = j
	return "ok"
}

// promote makes due jobs todo, in the order in which they are due.
func (m *model) promote(now int64) {
	for _, j := range m.in(store.Scheduled) {
		if j.at <= now {
			j.state, j.at, j.place.seq = store.Todo, 0, m.next(now)
		}
	}
}

// upMS rounds up: nothing is early.
func upMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
