package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// snapshot is the job as the store shows it.
func (m *model) snapshot(j *modelJob) store.Job {
	s := store.Job{ID: j.id, Instance: m.name, State: j.state, Attempt: j.attempt, Crashes: j.crashes,
		StartedAt: timeOf(j.started), Worker: j.worker, LastError: j.lastError, Progress: raw(j.progress), Result: raw(j.result)}
	if j.record == recordIntact || j.record == recordLost {
		s.Priority, s.Payload, s.EnqueuedAt, s.Deadline = j.priority, raw(j.payload), timeOf(j.enqueued), timeOf(j.deadline)
	} else if s.LastError == "" {
		s.LastError = "the record can't be read"
	}
	if j.record == recordLost && s.LastError == "" {
		s.LastError = "the record was lost, and its payload with it"
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
		switch {
		case state == store.Todo:
			good, suspects := m.waiting()
			some = slices.Concat(suspects, good)
		case state.Terminal():
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
		{"lease", clockOf(j.LeaseUntil)}, {"finished", clockOf(j.FinishedAt)}, {"deadline", clockOf(j.Deadline)}, {"in", j.Instance},
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

func describeExchanged(ended, leases, expired []string, suspects bool, next int64, trimmed int) string {
	slices.Sort(leases)
	return fmt.Sprintf("ended %v, expired %v, suspects %v, next %d, trimmed %d, leases:\n%s",
		ended, expired, suspects, next, trimmed, strings.Join(leases, ""))
}

func describeBeats(verdicts, found []string) string {
	slices.Sort(found)
	return fmt.Sprintf("%v, found:\n%s", verdicts, strings.Join(found, ""))
}

func describeReaped(r store.Reaped) string {
	return fmt.Sprintf("%s of %s crashes %d now %s\n", short(r.Job), short(r.Worker), r.Crashes, r.State)
}

func describeMaintained(reaped, expired []string, trimmed map[store.State]int, next, missing int64) string {
	return fmt.Sprintf("next %d, missing %d, trimmed %v, expired %v, reaped:\n%s", next, missing, trimmed, expired, strings.Join(reaped, ""))
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

func shorts(ids []uuid.UUID) (names []string) {
	for _, id := range ids {
		names = append(names, short(id))
	}
	return names
}

// short names a job or a worker by the number that the machine put last.
func short(id uuid.UUID) string {
	if id == uuid.Nil {
		return "-"
	}
	return fmt.Sprintf("%c%d", id[14], id[15])
}
