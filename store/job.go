package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// State says where a job stands.
type State string

// A job is in exactly one of these. Done, Dead and Cancelled are terminal: only Requeue leads out of them.
const (
	Scheduled State = "scheduled" // waits for its time
	Todo      State = "todo"      // waits for a worker
	Doing     State = "doing"     // held by a worker under a lease
	Parked    State = "parked"    // waits for a step, held by nobody
	Done      State = "done"      // completed
	Dead      State = "dead"      // given up; LastError says why
	Cancelled State = "cancelled" // ended by Cancel
)

// states in the order of a job's life, which is also the order of List.
var states = []State{Scheduled, Todo, Doing, Parked, Done, Dead, Cancelled}

// Terminal reports whether s is an end.
func (s State) Terminal() bool { return s == Done || s == Dead || s == Cancelled }

// Bounds of what a job may carry.
const (
	MaxPayload  = 1 << 20  // bytes of JSON a payload or a result may have
	MaxProgress = 64 << 10 // bytes of JSON a progress report may have
	MaxMetadata = 16 << 10 // bytes of metadata, keys and values together
	MaxKey      = 1 << 10  // bytes of a key of uniqueness
	MaxError    = 4 << 10  // bytes of an error text kept; the rest is cut
	MaxCall     = 1000     // items in one call of the store
	MinPriority = 1        // last to run
	MaxPriority = 10       // first to run
	DefPriority = 5        // when none is given
)

// Job is a snapshot of one job. Times are Redis' clock, in milliseconds; a zero time means that it has not happened.
type Job struct {
	ID       uuid.UUID
	Instance string
	State    State
	Priority int // 1 (low) to 10 (high)
	Attempt  int // attempts charged so far; the running one counts
	Crashes  int // leases in a row that ran out instead of being given back

	Payload   json.RawMessage
	Result    json.RawMessage // what HandleResult returned
	Progress  json.RawMessage // the last that a handler reported
	LastError string          // of the last failed attempt, or why the job is dead

	Metadata    map[string]string
	MaxAttempts int       // 0: as the handler's retry policy says
	Deadline    time.Time // zero: none
	Tick        Tick      // of a job that a tick of cron made
	Parent      Parent    // of a child: whose step it is; else zero

	EnqueuedAt time.Time
	RunAt      time.Time // scheduled: when due; parked: when it wakes by itself, if ever; todo, and in a handler: since when it could run
	StartedAt  time.Time // of the last attempt
	FinishedAt time.Time // when it became terminal
	LeaseUntil time.Time // doing: when the lease runs out unless it is extended

	Worker uuid.UUID // doing: who holds it; later: who held it last
}

// Tick is one fire time of an entry of cron.
type Tick struct {
	Entry    string
	Zone     string    // the entry's, by its IANA name; "" is UTC
	At       time.Time // when it was to fire
	Previous time.Time // the last that was dispatched before; zero: it is the first
}
