package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Reason is why a job is not running.
type Reason string

// The reasons, by the state of the job.
const (
	ReasonScheduled  Reason = "scheduled"  // its time has not come: Until
	ReasonPaused     Reason = "paused"     // its instance is paused
	ReasonUnserved   Reason = "unserved"   // no live process serves its instance
	ReasonSuspect    Reason = "suspect"    // it is one crash short of being dead: a process runs one of these at a time
	ReasonLimit      Reason = "limit"      // as many jobs of the instance are doing as its GlobalLimit allows
	ReasonRate       Reason = "rate"       // the Rate of its instance allows none until Until
	ReasonQueued     Reason = "queued"     // it waits for a worker, behind others
	ReasonRunning    Reason = "running"    // it runs; its lease holds until Until
	ReasonCancelling Reason = "cancelling" // it runs, and is told to end
	ReasonParked     Reason = "parked"     // it waits for a step
	ReasonEnded      Reason = "ended"      // it is done, dead or cancelled
	ReasonLost       Reason = "lost"       // it is in no state: the next audit puts that right
)

// Explanation says why a job is not running, or that it is.
type Explanation struct {
	Reason Reason
	Detail string    // for people
	Until  time.Time // when that will change by itself, if that is known
}

// Explain says why a job is not running. Of several reasons it names the one that would have to go first.
func (s *Store) Explain(ctx context.Context, id uuid.UUID) (Explanation, error) {
	var facts facts
	err := s.at(ctx, "explaining", id, func(instance string, keys []string) error {
		p, err := s.run(ctx, scriptExplain, keys, id[:])
		if err != nil {
			return err
		}
		if !p.more() {
			return fmt.Errorf("%w: %s", ErrNotFound, id)
		}
		facts.instance = instance
		facts.read(&p)
		return nil
	})
	if err != nil {
		return Explanation{}, err
	}
	if facts.state == Todo {
		processes, err := s.Processes(ctx)
		if err != nil {
			return Explanation{}, err
		}
		facts.served = slices.ContainsFunc(processes, func(p Process) bool { return slices.Contains(p.Instances, facts.instance) })
	}
	return facts.explain(), nil
}

// facts are what explain.lua tells of a job.
type facts struct {
	instance                            string
	state                               State
	score                               float64
	paused, suspect, cancelling, served bool
	ahead, doing, limit, wait           int64
	now                                 time.Time
	lastError                           string
	waitsFor, record                    string // parked: and the record of the first step of that
}

func (f *facts) read(p *reader) {
	f.state = stateAt(p.int())
	f.score, _ = strconv.ParseFloat(p.str(), 64)
	f.paused = p.int() == 1
	f.ahead = p.int()
	f.suspect = p.int() == 1
	f.doing, f.limit, f.wait = p.int(), p.int(), p.int()
	f.cancelling = p.int() == 1
	f.now = parseMS(p.str())
	f.lastError, f.waitsFor, f.record = p.str(), p.str(), p.str()
}

func (f *facts) explain() Explanation {
	switch f.state {
	case Scheduled:
		at := fromMS(int64(f.score / 16))
		return Explanation{ReasonScheduled, "it is due at " + at.Format(time.RFC3339Nano), at}
	case Todo:
		return f.waiting()
	case Doing:
		until := fromMS(int64(f.score))
		if f.cancelling {
			return Explanation{ReasonCancelling, "it runs, and is told to end", until}
		}
		return Explanation{ReasonRunning, "it runs", until}
	case Parked:
		return f.parked()
	case "":
		return Explanation{ReasonLost, "it is in no state", time.Time{}}
	}
	detail := "it is " + string(f.state)
	if f.lastError != "" {
		detail += ": " + f.lastError
	}
	return Explanation{ReasonEnded, detail, time.Time{}}
}

// parked explains a job that waits for steps.
func (f *facts) parked() Explanation {
	count, rest, _ := strings.Cut(f.waitsFor, " ")
	mode, name, _ := strings.Cut(rest, " ")
	var until time.Time
	if f.score < never {
		until = fromMS(int64(f.score))
	}
	switch step := readStep(name, f.record); {
	case mode == "z":
		return Explanation{ReasonParked, fmt.Sprintf("it sleeps in step %q", name), until}
	case count == "1" && step.Child != uuid.Nil:
		return Explanation{ReasonParked, fmt.Sprintf("it waits for step %q: job %s of %s", name, step.Child, step.Instance), until}
	case step.Child != uuid.Nil:
		what := "all"
		if mode == "y" {
			what = "any"
		}
		return Explanation{ReasonParked, fmt.Sprintf("it waits for %s of %s steps, among them %q: job %s of %s", what, count, name, step.Child, step.Instance), until}
	}
	return Explanation{ReasonParked, "it waits for a step", until}
}

// waiting explains a todo job.
func (f *facts) waiting() Explanation {
	switch {
	case f.paused:
		return Explanation{ReasonPaused, f.instance + " is paused", time.Time{}}
	case !f.served:
		return Explanation{ReasonUnserved, "no live process serves " + f.instance, time.Time{}}
	case f.limit > 0 && f.doing >= f.limit:
		return Explanation{ReasonLimit, fmt.Sprintf("%d jobs are doing, and the limit is %d", f.doing, f.limit), time.Time{}}
	case f.wait > 0:
		until := f.now.Add(time.Duration(f.wait) * time.Millisecond)
		return Explanation{ReasonRate, fmt.Sprintf("the rate allows the next job in %d ms; %d are ahead", f.wait, f.ahead), until}
	case f.suspect:
		return Explanation{ReasonSuspect, fmt.Sprintf("it is suspected of crashing its process; %d such jobs are ahead", f.ahead), time.Time{}}
	}
	return Explanation{ReasonQueued, fmt.Sprintf("%d jobs are ahead", f.ahead), time.Time{}}
}
