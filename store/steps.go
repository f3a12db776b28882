package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// A record of a step is one line, and what follows it:
//
//	c number generation                  the result, JSON
//	e number generation                  why it failed for good
//	z number generation ms               until when it sleeps
//	k number generation saves            a position, JSON
//	d number generation sweeps ms instance   a child, dispatched at ms: its id, 16 bytes, and what it takes to enqueue it
//	r number generation instance         of a child that is done: its id, its result
//	f number generation instance         of a child that is not: its id, its fate, the reason
//
// The number counts the records of a job in the order in which they were begun; a cursor keeps its number.

// Bounds of steps.
const (
	MaxStepName  = 256      // bytes of a step's name
	MaxSteps     = 10_000   // steps of a job, unless its handler says otherwise
	MaxStepBytes = 16 << 20 // bytes of their records, names included, unless its handler says otherwise
	MaxSweeps    = 10       // how often a lost child is dispatched again
)

// StepKind is what made a step.
type StepKind string

// The kinds of steps.
const (
	LocalStep  StepKind = "step"   // a function of the handler's
	AsyncStep  StepKind = "async"  // a job of its own
	SleepStep  StepKind = "sleep"  // a time
	CursorStep StepKind = "cursor" // a position in a long loop
)

// StepState is how far a step has come; it never goes back.
type StepState string

// The states of steps.
const (
	StepDispatched StepState = "dispatched" // its child has not ended, as far as is known
	StepCompleted  StepState = "completed"
	StepFailed     StepState = "failed"
)

// Fate is how a child ended.
type Fate byte

// The fates of children.
const (
	FateDone      Fate = 'd'
	FateDead      Fate = 'x'
	FateCancelled Fate = 'c'
	FateGone      Fate = 'g' // it was deleted before it ended
	FateLost      Fate = 'l' // it vanished again and again
	FateTooBig    Fate = 'b' // it is done, and its result is more than the steps of the parent may have
)

// Step is what is kept of a step.
type Step struct {
	Job        uuid.UUID // whose it is
	Name       string
	Kind       StepKind
	State      StepState
	Number     int             // in the order in which the steps of a job were begun
	Generation int             // how often the job had been requeued by then
	Result     json.RawMessage // completed: the result, or the position
	Error      string          // failed: why

	Until time.Time // sleep

	Saves int // cursor: how often it was saved

	Child      uuid.UUID // async
	Instance   string    // async: where the child is
	Fate       Fate      // async, completed or failed
	Dispatched time.Time // async, dispatched
	Sweeps     int       // async: how often it has been dispatched again

	again string // async, dispatched: what it takes to enqueue it
}

// Parent says whose step a job is. The zero Parent: nobody's.
type Parent struct {
	ID         uuid.UUID
	Instance   string
	Step       string
	Generation int
}

// ref is where the outcome of a child goes.
func (p Parent) ref() string {
	if p.ID == uuid.Nil {
		return ""
	}
	return string(p.ID[:]) + p.Instance + "\n" + p.Step
}

func parentOf(ref string) (p Parent) {
	if len(ref) < idLen {
		return p
	}
	instance, step, ok := strings.Cut(ref[idLen:], "\n")
	if ok {
		copy(p.ID[:], ref)
		p.Instance, p.Step = instance, step
	}
	return p
}

// ChildID is the id of the child that a step of a job has in a generation. A job that was removed and is enqueued again under its id has other
// children than before, whose records may still be there.
func ChildID(parent *Job, step string, generation int) uuid.UUID {
	return uuid.NewSHA1(parent.ID, fmt.Appendf(nil, "%d %d\n%s", parent.EnqueuedAt.UnixMilli(), generation, step))
}

// ValidateStep returns nil for a name of 1 to 256 bytes of UTF-8 without control characters, and an ErrInvalid for any other.
func ValidateStep(name string) error {
	if len(name) < 1 || len(name) > MaxStepName {
		return invalid("step name %.300q is of %d bytes; 1 to %d are allowed", name, len(name), MaxStepName)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return invalid("step name %q: only UTF-8 without control characters is allowed", name)
	}
	return nil
}

// Steps is what a lease knows of the steps of its job.
type Steps struct {
	Known      []Step
	Complete   bool // Known are all; else Load has them
	Generation int
	Epoch      int // how often a requeue made it run afresh, or from some step on
	Count      int
	Now        time.Time // Redis' clock when that was read
}

// read takes apart what exchange.lua returns of a job with steps.
func (s *Steps) read(j Job, p *reader) {
	s.head(p.str())
	s.Now = parseMS(p.str())
	records, ok := p.next().([]any)
	s.Complete = ok
	s.Known = readSteps(j.ID, records)
}

// head reads the entry in stepped.
func (s *Steps) head(text string) {
	f := strings.Fields(text)
	if len(f) < 4 {
		return
	}
	s.Generation, _ = strconv.Atoi(f[0])
	s.Epoch, _ = strconv.Atoi(f[1])
	s.Count, _ = strconv.Atoi(f[3])
}

// Load reads all steps of the job that is held, if Steps is not complete.
func (r *Runtime) Load(ctx context.Context, l *Lease) (Steps, error) {
	all := Steps{Complete: true}
	seen := map[string]bool{}
	err := r.s.do(ctx, "loading steps", func() error {
		for cursor := "0"; ; {
			page, next, err := r.s.loadSteps(ctx, l.Job.Instance, l.Job.ID, cursor, "", &all)
			if err != nil {
				return err
			}
			for _, s := range page {
				if !seen[s.Name] {
					seen[s.Name] = true
					all.Known = append(all.Known, s)
				}
			}
			if cursor = next; cursor == "0" {
				return nil
			}
		}
	})
	return all, err
}

// loadSteps reads a page of a job's steps, or the one with this name.
func (s *Store) loadSteps(ctx context.Context, instance string, id uuid.UUID, cursor, name string, about *Steps) ([]Step, string, error) {
	p, err := s.run(ctx, scriptLoad, s.instanceKeys(instance), id[:], cursor, name)
	if err != nil {
		return nil, "", err
	}
	if p.int() == 0 {
		return nil, "", fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	about.Now = parseMS(p.str())
	about.head(p.str())
	next := p.str()
	return readSteps(id, p.list().v), next, nil
}
