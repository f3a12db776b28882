package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// StepLimits bound the steps of one job.
type StepLimits struct {
	Count int
	Bytes int
}

// StepLimitError is the ErrInvalid of steps that are more than a job may have. Nothing of them was written.
type StepLimitError struct {
	What     string // "steps" or "bytes of steps"
	Max, Got int
}

func (e *StepLimitError) Error() string {
	return fmt.Sprintf("%v: %d %s; a job may have %d", ErrInvalid, e.Got, e.What, e.Max)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *StepLimitError) Is(target error) bool { return target == ErrInvalid }

// StepWrite is a step to be written, of one kind.
type StepWrite struct {
	Name    string
	Kind    StepKind
	Value   json.RawMessage // LocalStep: the result; CursorStep: the position
	Error   string          // LocalStep: why it failed for good, instead of a result
	Replace int             // LocalStep: the number of the record whose place it may take; 0: none's
	Save    int             // CursorStep: the number of this save, which only a lower one gives way to
	Sleep   time.Duration   // SleepStep: from now, by Redis' clock

	Instance string // AsyncStep: where the child goes
	Child    NewJob // AsyncStep
}

// append adds the write to the arguments of step.lua.
func (w *StepWrite) append(args []any) []any {
	letter, text := "c", string(w.Value)
	switch w.Kind {
	case LocalStep:
		if w.Error != "" {
			letter, text = "e", Cut(w.Error, MaxError)
		}
		if w.Replace > 0 {
			letter = "R" + strconv.Itoa(w.Replace) + letter
		}
	case SleepStep:
		letter, text = "z", strconv.FormatInt(min(ceilMS(w.Sleep), latest.UnixMilli()), 10)
	case CursorStep:
		letter, text = "k", strconv.Itoa(w.Save)+" "+text
	case AsyncStep:
		letter, text = "d", w.Instance+"\n"+string(w.Child.ID[:])+again(&w.Child)
	default:
		panic(fmt.Sprintf("stint: unknown kind of step %q", w.Kind))
	}
	return append(args, letter, w.Name, text)
}

// Commit writes steps of the job that l holds, all of them or none, and returns what stands there now, in their order: the first
// value of a step stands, so it may be another than was to be written. To repeat a call does no harm. ErrLeaseLost if l is no longer
// current, a *StepLimitError if there would be too many; then nothing was written.
func (r *Runtime) Commit(ctx context.Context, l *Lease, limits StepLimits, writes ...StepWrite) (Steps, error) {
	got, err := r.CommitMany(ctx, l.Job.Instance, []Commit{{l, limits, writes}})
	if err != nil {
		return Steps{}, err
	}
	return got[0].Steps, got[0].Err
}

// Commit is what CommitMany writes for one job.
type Commit struct {
	Lease  *Lease
	Limits StepLimits
	Writes []StepWrite
}

// Committed is what became of a Commit: what stands there now, or why nothing was written.
type Committed struct {
	Steps Steps
	Err   error
}

// CommitMany is Commit for several jobs of one instance in one script, each by itself. No job may be among them twice; the
// caller keeps them to about a MiB.
func (r *Runtime) CommitMany(ctx context.Context, instance string, commits []Commit) ([]Committed, error) {
	out := make([]Committed, len(commits))
	args := make([]any, 1, 1+8*len(commits))
	args[0] = len(commits)
	for i := range commits {
		c := &commits[i]
		args = append(args, c.Lease.Job.Worker[:], c.Lease.token, c.Limits.Count, c.Limits.Bytes, len(c.Writes))
		for k := range c.Writes {
			args = c.Writes[k].append(args)
		}
	}
	err := r.s.do(ctx, "committing steps", func() error {
		reply, err := r.s.run(ctx, scriptStep, r.s.instanceKeys(instance), args...)
		if err != nil {
			return err
		}
		p := reader{v: reply}
		ms, _ := strconv.ParseInt(p.str(), 10, 64)
		l := p.list()
		if len(l.v) != 4*len(commits) {
			return fmt.Errorf("answered %d values for %d jobs", len(l.v), len(commits))
		}
		for i := range commits {
			out[i].read(&commits[i], fromMS(ms), &l)
		}
		return nil
	})
	return out, err
}

// read reads what step.lua answers for one job.
func (out *Committed) read(c *Commit, now time.Time, p *reader) {
	letter, about, records, got := p.str(), p.str(), p.list(), p.next()
	n, _ := got.(int64)
	switch letter {
	case "w":
	case "n":
		out.Err = &StepLimitError{What: "steps", Max: c.Limits.Count, Got: int(n)}
		return
	case "b":
		out.Err = &StepLimitError{What: "bytes of steps", Max: c.Limits.Bytes, Got: int(n)}
		return
	case "f":
		kind, _ := got.(string)
		out.Err = &KeyError{Key: about, Type: kind, Want: "hash"}
		return
	default:
		out.Err = ErrLeaseLost
		return
	}
	out.Steps.Now = now
	out.Steps.head(about)
	for i := range c.Writes {
		s := readStep(c.Writes[i].Name, records.str())
		s.Job = c.Lease.Job.ID
		out.Steps.Known = append(out.Steps.Known, s)
	}
}

// Wait is what a parked job waits for: a time, or steps.
type Wait struct {
	Until time.Time // by Redis' clock; Steps has the name of the step that sleeps
	Steps []string  // all of them, or the first that fails
	Any   bool      // any of them instead
}

func (w Wait) words() string {
	mode := "a"
	switch {
	case !w.Until.IsZero():
		mode = "z" + strconv.FormatInt(w.Until.UnixMilli(), 10)
	case w.Any:
		mode = "y"
	}
	return mode + "\n" + strings.Join(w.Steps, "\n")
}

// again is what it takes to enqueue a child once more: when to run, and its record less the head.
func again(n *NewJob) string {
	return n.due() + "\n" + string(encodeRecord(n))
}

// reborn makes a child of what again has kept.
func (s *Step) reborn() (NewJob, error) {
	due, record, ok := strings.Cut(s.again, "\n")
	ms, err := strconv.ParseInt(due, 10, 64)
	var j Job
	if !ok || err != nil || decodeRecord(string(recordVersion)+strings.Repeat("0", recordHead-1)+record, &j) != nil {
		return NewJob{}, errStep
	}
	n := NewJob{ID: s.Child, Payload: j.Payload, Priority: j.Priority, MaxAttempts: j.MaxAttempts, Metadata: j.Metadata,
		Deadline: j.Deadline, Parent: j.Parent}
	switch {
	case ms < 0:
		n.At = s.Dispatched.Add(time.Duration(-ms) * time.Millisecond)
	case ms > 0:
		n.At = fromMS(ms)
	}
	if n.ID == uuid.Nil || n.Parent.ID == uuid.Nil {
		return NewJob{}, errStep
	}
	return n, nil
}
