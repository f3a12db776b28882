package worker

import (
	"time"

	"github.com/google/uuid"
)

// StepCommitted: a step has run, and its result, or a position, is kept.
type StepCommitted struct {
	Instance string
	Job      uuid.UUID
	Step     string
	Took     time.Duration // the step's function and the keeping
}

// StepReplayed: a step was not run, since its result is kept.
type StepReplayed struct {
	Instance string
	Job      uuid.UUID
	Step     string
}

// StepDropped: a step was run by a worker that had lost its job, and its result was refused.
type StepDropped struct {
	Instance string
	Job      uuid.UUID
	Worker   uuid.UUID
	Step     string
}

// ChildDispatched: an async step has become a job.
type ChildDispatched struct {
	Instance string
	Job      uuid.UUID // the parent
	Step     string
	Child    uuid.UUID
	To       string // the child's instance
}

// SweepOutcome is what the sweeper did about a child.
type SweepOutcome string

// What the sweeper does.
const (
	SweptAgain SweepOutcome = "dispatched" // it was nowhere, and was dispatched again
	SweptFound SweepOutcome = "found"      // it had ended, and its outcome had not arrived
	SweptLost  SweepOutcome = "lost"       // it was nowhere too often, or its record can't be read: the step failed
)

// ChildSwept: the sweeper found a child that a crash, or somebody else's writing, had cut off from its parent.
type ChildSwept struct {
	Instance string
	Job      uuid.UUID // the parent
	Step     string
	Child    uuid.UUID
	To       string
	Sweeps   int // how often it has been dispatched again
	Outcome  SweepOutcome
}

func (StepCommitted) event()   {}
func (StepReplayed) event()    {}
func (StepDropped) event()     {}
func (ChildDispatched) event() {}
func (ChildSwept) event()      {}
