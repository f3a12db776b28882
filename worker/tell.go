package worker

import (
	"time"

	"github.com/stint-go/stint/store"
)

// tellStarted emits that attempts begin: of a request's together, which costs less than one by one. A child's begins when it is known to be
// wanted.
func (f *feed) tellStarted(attempts ...*attempt) {
	ev := f.run.events
	if !ev.wanted() {
		return
	}
	var room [64]Event
	events := room[:0]
	for _, at := range attempts {
		if at.uncalled {
			continue
		}
		job := &at.lease.Job
		events = append(events, JobStarted{
			Instance: job.Instance, Job: job.ID, Worker: job.Worker, Attempt: job.Attempt,
			Waited: max(job.StartedAt.Sub(job.RunAt), 0),
		})
	}
	ev.emit(events...)
}

// tellFinished emits what became of the turns' attempts. got.Ended is in the order of the finishes, which is that of the turns.
func (f *feed) tellFinished(turns []turn, got store.Exchanged) {
	ev := f.run.events
	if !ev.wanted() {
		return
	}
	var room [64]Event
	now, events, ended := time.Now(), room[:0], got.Ended
	for _, t := range turns {
		if t.at == nil {
			continue
		}
		at, job, state := t.at, &t.at.lease.Job, ended[0]
		ended = ended[1:]
		if state == "" {
			events = append(events, StaleWrite{Instance: job.Instance, Job: job.ID, Worker: job.Worker, Outcome: at.outcome})
			continue
		}
		events = append(events, JobFinished{
			Instance: job.Instance, Job: job.ID, Worker: job.Worker, Attempt: job.Attempt,
			Outcome: at.outcome, State: state, Err: at.err, Took: at.took, Age: at.age(now),
		})
	}
	if got.Trimmed > 0 {
		events = append(events, Trimmed{Instance: f.terms.Instance, Count: got.Trimmed})
	}
	for _, id := range got.Expired {
		events = append(events, JobExpired{Instance: f.terms.Instance, Job: id})
	}
	ev.emit(events...)
}
