package worker

import (
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Event is something that happened: one of the types in this file, and no other.
//
// A supervisor's events come in order, one at a time, from one goroutine: a listener needs no lock of its own, and holds
// nothing up but the events after it. In a busy process they come some milliseconds late, many together. Up to 8,192 wait for
// it; what comes on top is counted (see [EventsDropped]). All are delivered before Run returns. A client's come from the
// goroutine that called it.
type Event interface{ event() }

// JobEnqueued: a job was accepted. It comes from a [Client].
type JobEnqueued struct {
	Instance string
	Job      uuid.UUID
}

// RunStarted: a supervisor runs. It is the first event of a Run.
type RunStarted struct{ Supervisor *Supervisor }

// RunStopped: everything that the supervisor ran has ended, or was given up. It is the last event of a Run, and never dropped.
type RunStopped struct{ Supervisor *Supervisor }

// JobStarted: a handler is about to be called, unless Run gives it up in that very moment.
type JobStarted struct {
	Instance string
	Job      uuid.UUID
	Worker   uuid.UUID
	Attempt  int           // this one included
	Waited   time.Duration // since it could run: since it was due, and for a later attempt since it was todo again; by Redis' clock
}

// Outcome is the way in which an attempt ended.
type Outcome string

// The outcomes of attempts.
const (
	Completed Outcome = "completed"
	Retried   Outcome = "retried"
	Snoozed   Outcome = "snoozed"
	Released  Outcome = "released" // given back without charging the attempt
	Buried    Outcome = "buried"   // given up
	Aborted   Outcome = "aborted"  // because the job was cancelled
	Parked    Outcome = "parked"   // it waits for a step; the attempt is not charged
)

// JobFinished: a lease was ended by the worker that held it, and the store knows. A lease that was not, because it was lost, has
// a StaleWrite instead.
type JobFinished struct {
	Instance string
	Job      uuid.UUID
	Worker   uuid.UUID
	Attempt  int
	Outcome  Outcome       // what the handler's return meant
	State    store.State   // where that led; Cancelled, too, when a cancel came first
	Err      error         // what the handler returned; of a Buried job without an attempt, the reason
	Took     time.Duration // the handler; 0 if it was not called
	Age      time.Duration // since the job was enqueued
}

// LeasesExtended: a heartbeat has been answered, or has failed: an instance's leases are extended every quarter of one.
type LeasesExtended struct {
	Instance string
	Leases   int
	Late     time.Duration // how much more than that quarter has gone by since the last that was answered
	Err      error
}

// JobReaped: a lease ran out, because its process died or could not reach Redis, and this process' reaper ended it.
type JobReaped struct {
	Instance string
	Job      uuid.UUID
	Worker   uuid.UUID // who held it; zero if that is not known
	Crashes  int       // in a row, this one included
	State    store.State
}

// JobExpired: a job was not claimed before its [Deadline]: it is dead, no attempt was charged. It comes from whichever process
// noticed.
type JobExpired struct {
	Instance string
	Job      uuid.UUID
}

// LeaseLost: a handler that runs was told that the job is no longer its own, or can't be known to be.
type LeaseLost struct {
	Instance string
	Job      uuid.UUID
	Worker   uuid.UUID
}

// StaleWrite: the end of a lease came too late, the store refused it.
type StaleWrite struct {
	Instance string
	Job      uuid.UUID
	Worker   uuid.UUID
	Outcome  Outcome // what would have been
}

// TickDispatched: this process has put a tick of an entry on record: its job is enqueued, or the tick is skipped, or Redis has refused
// the job. A failure comes once for a tick, or once from each process where there can't be a record of it; the tick is tried again for as
// long as the entry's window says, and comes again as what became of it. The event may be missing where the reply was lost.
type TickDispatched struct {
	Entry, Instance string
	At              time.Time     // the tick, in the entry's zone
	First           time.Time     // the first of the ticks that it stands for: At, unless many were skipped together
	DispatchedAt    time.Time     // when that was decided, by Redis' clock
	Late            time.Duration // from At to DispatchedAt
	Status          string        // store.StatusDispatched, StatusSkipped or StatusFailed
	Reason          string        // of a tick that was skipped or has failed
	Node            string        // this process'
	Job             uuid.UUID     // of a tick that was dispatched
}

// EntryReplaced: what this process has declared of an entry is not what stands: another process has registered another definition
// later. This one fires by that from now on.
type EntryReplaced struct {
	Entry, Instance string
	Spec, Zone      string // that stand
}

// EntryRefused: an entry that this process has declared can't be fired by it: its key belongs to another instance, what stands can't be
// read here, or a foreign key is in the way of its registration. It is tried again.
type EntryRefused struct {
	Entry, Instance string
	Err             error
}

// Trimmed: a bound of retention removed ended jobs.
type Trimmed struct {
	Instance string
	State    store.State // Done, Dead or Cancelled; empty where it may have been any of them
	Count    int
}

// Inconsistent: the records of an instance and its jobs by state don't add up, because something was changed behind the
// store's back. It starts an audit of the whole instance, of some 100 jobs every 50 ms; it comes again if it is still true
// after that.
type Inconsistent struct {
	Instance string
	Missing  int64 // records less jobs in a state
}

// Audited: an audit came upon jobs without a record, in no state or in several, and put them right. They are dead, with the
// reason, unless one of their states could be trusted.
type Audited struct {
	Instance string
	Jobs     []uuid.UUID
}

// LoopFailed: something that this process does again and again has begun to fail. It goes on trying. When Redis can't be
// reached many loops fail for one reason; that is one event, of the first.
type LoopFailed struct {
	Loop     string // "exchange", "heartbeat", "reap", "sweep", "steps", "announce", "subscription", "cron", "lease watch"
	Instance string // empty where it is the process'; of "sweep" also that of children or parents which does not answer
	Err      error
}

// LoopRecovered: all that failed since a LoopFailed works again.
type LoopRecovered struct {
	Loop     string // as in LoopFailed
	Instance string
	After    time.Duration
	Failures int
}

// EventsDropped: the listener was too slow; this many events are missing in this place.
type EventsDropped struct{ Count int }

func (JobEnqueued) event()    {}
func (RunStarted) event()     {}
func (RunStopped) event()     {}
func (JobStarted) event()     {}
func (JobFinished) event()    {}
func (LeasesExtended) event() {}
func (JobReaped) event()      {}
func (JobExpired) event()     {}
func (LeaseLost) event()      {}
func (StaleWrite) event()     {}
func (TickDispatched) event() {}
func (EntryReplaced) event()  {}
func (EntryRefused) event()   {}
func (Trimmed) event()        {}
func (Inconsistent) event()   {}
func (Audited) event()        {}
func (LoopFailed) event()     {}
func (LoopRecovered) event()  {}
func (EventsDropped) event()  {}
