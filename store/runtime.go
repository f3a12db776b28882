package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Runtime is the part of the store that only package worker calls: producing, leasing and ending jobs. It hangs on
// the Store so that a reader of Store sees reading and administration alone.
type Runtime struct{ s *Store }

// Runtime returns what package worker drives the store with.
func (s *Store) Runtime() *Runtime { return &Runtime{s} }

// Client returns the client of the server, for tests and tools that look behind the store's back; the embedded server has no
// other way in. It is not the caller's to close.
func (r *Runtime) Client() redis.UniversalClient { return r.s.rdb }

// SetSole says that no other process uses the server: what a supervisor does for the sake of others, or in case that a message
// was lost, it then does rarely. For tests, where days of fake time would cost minutes otherwise. Before Run.
func (r *Runtime) SetSole() { r.s.sole.Store(true) }

// Sole reports whether SetSole was called.
func (r *Runtime) Sole() bool { return r.s.sole.Load() }

// Terms are what a process has agreed with an instance. They are the same in each of its calls.
type Terms struct {
	Instance   string
	Process    uuid.UUID     // the calling process
	Lease      time.Duration // how long a claim or a heartbeat holds, at least 1 s
	Done       Retention     // of done and cancelled jobs
	Dead       Retention     // of dead jobs
	MaxCrashes int           // at this many crashes in a row a job is dead
	Period     time.Duration // between two passes of Reap
	Limit      int           // how many jobs may be doing at once, in all processes; 0: any number
	Rate       Rate          // how often a job may be claimed, by all processes
}

// Rate is N claims in a time of Per, evenly spread; the zero Rate is none.
type Rate struct {
	N   int
	Per time.Duration
}

// Retention bounds what is kept of the jobs that ended. A zero bound is unset; both zero keep nothing.
type Retention struct {
	Age   time.Duration
	Count int
}

// NewJob is a job to be enqueued.
type NewJob struct {
	ID       uuid.UUID // never the zero UUID
	Fresh    bool      // ID was made at random for this job: nobody else can have it, so a job that has it is this one, accepted before
	Payload  json.RawMessage
	Priority int           // 1 to 10, 0 for the default
	Delay    time.Duration // from now by Redis' clock; or
	At       time.Time     // the time itself; one of the two

	MaxAttempts int               // 0: as the handler's retry policy says
	Metadata    map[string]string // at most MaxMetadata bytes
	Deadline    time.Time         // a job that was not claimed by then is dead; zero: none
	Unique      Unique
	Parent      Parent // of a child
}

// Unique keeps a second job with the same key out of an instance.
type Unique struct {
	Key    string        // 1 to MaxKey bytes; "" with no mode: not unique
	Mode   UniqueMode    // until when
	Window time.Duration // of UniqueWindow, at least 1 ms
}

// UniqueMode says when a key is free again. A job that is deleted, or trimmed by retention, gives its key up in any mode but UniqueWindow.
type UniqueMode byte

// The modes. Requeue takes the key of the first three again.
const (
	UniqueClaimed  UniqueMode = 'c' // with the first claim; it is not taken again when the job comes back
	UniqueDone     UniqueMode = 'd' // when the job is done; one that is dead or cancelled keeps it
	UniqueTerminal UniqueMode = 't' // when the job is done, dead or cancelled
	UniqueWindow   UniqueMode = 'w' // when the window is over, whatever becomes of the job
)

// Lease is a claim of one job by one worker. Only the store makes one.
type Lease struct {
	Job    Job   // as it stands with this claim: doing, the attempt counted
	Broken error // the record can't be read: the job is to be buried with this reason
	Steps  Steps // what has been kept of its steps

	token string // the worker's mapping as a whole: id, nonce, process
	run   run
}

// Verb is a way in which a lease ends.
type Verb byte

// The ways a lease ends. What each charges: Complete, Retry, Bury and Cancel keep the attempt, Snooze, Release and
// Park give it back. Each of them resets the crashes.
const (
	Complete Verb = 'c' // done
	Retry    Verb = 'r' // scheduled after Delay, with a new place
	Snooze   Verb = 'z' // scheduled after Delay, with a new place, the attempt given back
	Release  Verb = 'l' // todo at its old place, the attempt given back
	Park     Verb = 'p' // parked until Wait is over, or todo at its old place if it is; the attempt given back
	Bury     Verb = 'b' // dead
	Cancel   Verb = 'x' // cancelled
)

// Finish ends a lease.
type Finish struct {
	Lease    *Lease
	Verb     Verb
	Delay    time.Duration   // Retry, Snooze
	Error    string          // Retry, Snooze, Release, Bury, Cancel: becomes LastError unless empty; cut at MaxError bytes
	Result   json.RawMessage // Complete: becomes Result unless nil
	Progress json.RawMessage // the last progress, unless nil
	Wait     Wait            // Park
}

// Exchange is one call that hands in what is finished and takes what there is to do.
type Exchange struct {
	Finishes []Finish    // at most MaxCall
	Claims   []uuid.UUID // the workers that want a job, at most MaxCall; one whose job is among Finishes may be among them
	Wait     bool        // a claim that comes back short registers the process to be woken

	// NoSuspects leaves the jobs that are suspected of crashing their process, as one is run by it already.
	NoSuspects bool
}

// Exchanged answers an Exchange.
type Exchanged struct {
	// Ended has for each Finish the state that the job is in now: the one the verb asks for, or Cancelled where a
	// cancel was requested and the verb is not Complete. It is empty where the lease was lost: nothing was written.
	Ended []State
	// Leases are what was claimed, at most one for each of Claims. A worker that held a job already, because the
	// answer to its claim was lost, is given that one. They end when they have 1 MiB; then Next is 0.
	Leases []*Lease
	// Next says when to look again if no wake-up comes first: 0 at once, negative never.
	Next time.Duration
	// Trimmed counts the ended jobs that a bound of retention removed.
	Trimmed int
	// Suspects says that there are jobs that are suspected of crashing their process, and that it runs none of this instance.
	Suspects bool
	// Expired are jobs that were due to be claimed after their deadline: they are dead, no attempt charged.
	Expired []uuid.UUID
}

// Beat is one lease in a heartbeat.
type Beat struct {
	Lease    *Lease
	Progress json.RawMessage // the latest since the last heartbeat, or nil
}

// Verdict is what a heartbeat learns of a lease.
type Verdict int

// What a heartbeat learns of a lease.
const (
	Held            Verdict = iota // extended to now + lease
	Lost                           // no longer the caller's; nothing was written
	CancelRequested                // extended, and to be cancelled
)

// Reaped tells of a lease that ran out.
type Reaped struct {
	Job     uuid.UUID
	Worker  uuid.UUID // zero when neither the run's record nor the worker's own mapping told
	Crashes int       // in a row, this one included
	State   State     // where the job went: Todo, Dead or Cancelled
}

// Maintained answers Reap.
type Maintained struct {
	Reaped  []Reaped
	Trimmed map[State]int // what retention removed
	// Expired are jobs that waited past their deadline: they are dead, no attempt charged.
	Expired []uuid.UUID
	// Next says when the next lease runs out: 0 if there is more to do at once, negative if there is none.
	Next time.Duration
	// Missing is the number of records less the number of jobs in a state. Not zero: something was changed behind
	// our back.
	Missing int64
	// Sweep says when there is something for Sweep: 0 at once, negative nothing.
	Sweep time.Duration
}

// Process describes a process to whoever lists them.
type Process struct {
	ID        uuid.UUID `json:"id"`
	Node      string    `json:"node"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Instances []string  `json:"instances"`
	Pools     []Pool    `json:"pools"`
	Since     time.Time `json:"since"`
}

// Pool is a pool of a process: so many workers for these instances.
type Pool struct {
	Name        string   `json:"name,omitempty"` // "" for the pool of a single instance
	Concurrency int      `json:"concurrency"`
	Instances   []string `json:"instances"`
}

// Worker is a worker that holds a job.
type Worker struct {
	ID       uuid.UUID
	Instance string
	Job      uuid.UUID
	Process  uuid.UUID
	Since    time.Time // when it claimed the job
}
