package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// modelNewJob is a job to be enqueued; bad is one that the store must refuse.
type modelNewJob struct {
	store.NewJob
	bad bool
}

// enqueue accepts jobs. An id that is there already changes nothing.
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
		return "exists"
	}
	j := &modelJob{id: n.ID, priority: n.Priority, payload: string(n.Payload), enqueued: now, at: now}
	if j.priority == 0 {
		j.priority = 5
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

// upMS rounds up: nothing is early.
func upMS(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

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
	var leases []string
	var free []uuid.UUID
	for _, w := range x.claims {
		h, busy := m.held[w]
		switch {
		case busy && m.known(h.job) != nil:
			leases = append(leases, m.describeLease(w))
		case !repeated:
			delete(m.held, w) // what it holds has lost its record: the reaper will see to it
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
		claimed, err := m.claim(now, x, free, got, added)
		if err != "" {
			return err
		}
		leases = append(leases, claimed...)
		if len(free) == 0 {
			next = got.Next.Milliseconds()
		} else if len(m.in(store.Todo)) > 0 {
			next = 0
		}
	}
	trimmed := 0
	for _, s := range []store.State{store.Done, store.Cancelled, store.Dead} {
		if added[s] && !(s != store.Dead && m.done == store.Retention{}) {
			trimmed += m.trim(now, s, store.Retention{Count: m.bound(s).Count}, m.bound(s) == store.Retention{})
		}
	}
	m.say(now, r, answer)
	return describeExchanged(answer, leases, next, trimmed)
}

func describeExchanged(ended, leases []string, next int64, trimmed int) string {
	slices.Sort(leases)
	return fmt.Sprintf("ended %v, next %d, trimmed %d, leases:\n%s", ended, next, trimmed, strings.Join(leases, ""))
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
			delete(m.jobs, j.id)
		}
	}
	added[target] = true
	return string(target)
}

// promote makes due jobs todo, in the order in which they are due.
func (m *model) promote(now int64) {
	for _, j := range m.in(store.Scheduled) {
		if j.at <= now {
			j.state, j.at, j.place.seq = store.Todo, 0, m.next(now)
		}
	}
}

// claim gives the first of the todo to the free workers. A job whose record can't be read dies and takes the turn of one.
func (m *model) claim(now int64, x modelExchange, free []uuid.UUID, got store.Exchanged, added map[store.State]bool) ([]string, string) {
	taker := map[uuid.UUID]uuid.UUID{}
	for _, l := range got.Leases {
		if _, busy := m.held[l.Worker()]; slices.Contains(free, l.Worker()) && !busy {
			taker[l.Job.ID] = l.Worker()
		}
	}
	var leases []string
	waits := m.in(store.Todo)
	for _, j := range waits[:min(len(waits), len(free))] {
		if j.record != recordIntact {
			m.quarantine(now, j)
			added[store.Dead] = true
			continue
		}
		w, ok := taker[j.id]
		if _, busy := m.held[w]; !ok || busy {
			return nil, "no free worker got " + short(j.id)
		}
		m.claims++
		m.held[w] = modelHold{m.claims, j.id, x.process}
		j.state, j.at, j.started, j.worker = store.Doing, now+x.lease.Milliseconds(), now, w
		j.attempt++
		leases = append(leases, m.describeLease(w))
	}
	return leases, ""
}

func (m *model) quarantine(now int64, j *modelJob) {
	j.state, j.at, j.lastError = store.Dead, now, "the record is of an unknown version"
	if j.record == recordDeleted {
		j.record, j.priority, j.payload, j.enqueued, j.lastError = recordIntact, 5, "null", now, "the record is missing"
	}
}

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

func describeBeats(verdicts, found []string) string {
	slices.Sort(found)
	return fmt.Sprintf("%v, found:\n%s", verdicts, strings.Join(found, ""))
}

// reap ends the leases that ran out and removes what retention no longer keeps.
func (m *model) reap(now int64) string {
	var reaped []string
	next := int64(-1)
	for _, j := range m.in(store.Doing) {
		if j.at >= now {
			next = j.at - now + 1
			break
		}
		if m.held[j.worker].job == j.id {
			delete(m.held, j.worker)
		}
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
		reaped = append(reaped, describeReaped(store.Reaped{Job: j.id, Worker: j.worker, Crashes: j.crashes, State: j.state}))
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
	return describeMaintained(reaped, trimmed, next, missing)
}

func describeReaped(r store.Reaped) string {
	return fmt.Sprintf("%s of %s crashes %d now %s\n", short(r.Job), short(r.Worker), r.Crashes, r.State)
}

func describeMaintained(reaped []string, trimmed map[store.State]int, next, missing int64) string {
	return fmt.Sprintf("next %d, missing %d, trimmed %v, reaped:\n%s", next, missing, trimmed, strings.Join(reaped, ""))
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
			delete(m.jobs, j.id)
			trimmed++
		}
	}
	return trimmed
}

// describeLease is the lease that a worker holds, as a claim hands it out.
func (m *model) describeLease(w uuid.UUID) string {
	h := m.held[w]
	return describeLease(m.snapshot(m.jobs[h.job]), m.jobs[h.job].record != recordIntact)
}

// describeFound is the same as a heartbeat tells it: without what earlier attempts left.
func (m *model) describeFound(w uuid.UUID) string {
	h := m.held[w]
	s := m.snapshot(m.jobs[h.job])
	s.Progress, s.LastError = nil, ""
	return describeLease(s, m.jobs[h.job].record != recordIntact)
}

func describeLease(j store.Job, broken bool) string {
	j.LeaseUntil, j.RunAt, j.FinishedAt, j.Result = time.Time{}, time.Time{}, time.Time{}, nil // a lease does not tell
	if broken {
		j.LastError = ""
	}
	return fmt.Sprintf("%s broken %v\n", describe(j), broken)
}
