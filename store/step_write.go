package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

// said is what step.lua is told of the write: a letter and a text.
func (w *StepWrite) said() (letter byte, text any) {
	switch w.Kind {
	case LocalStep:
		if w.Error != "" {
			return 'e', Cut(w.Error, MaxError)
		}
		return 'c', []byte(w.Value)
	case SleepStep:
		return 'z', min(ceilMS(w.Sleep), latest.UnixMilli())
	case CursorStep:
		return 'k', strconv.Itoa(w.Save) + " " + string(w.Value)
	case AsyncStep:
		return 'd', w.Instance + "\n" + string(w.Child.ID[:]) + again(&w.Child)
	default:
		panic(fmt.Sprintf("stint: unknown kind of step %q", w.Kind))
	}
}

// written is the step as it is kept of a LocalStep, whose record begins with this number and generation.
func (w *StepWrite) written(job uuid.UUID, opening string) Step {
	s := Step{Job: job, Name: w.Name, Kind: LocalStep, State: StepCompleted, Result: w.Value}
	if w.Error != "" {
		s.State, s.Result, s.Error = StepFailed, nil, Cut(w.Error, MaxError)
	}
	number, generation, _ := strings.Cut(opening, " ")
	s.Number, _ = strconv.Atoi(number)
	s.Generation, _ = strconv.Atoi(generation)
	return s
}

// Commit writes steps of the job that l holds, all of them or none, and returns what stands there now, in their order: the first
// value of a step stands, so it may be another than was to be written. To repeat a call does no harm. ErrLeaseLost if l is no longer
// current, a *StepLimitError if there would be too many; then nothing was written.
func (r *Runtime) Commit(ctx context.Context, l *Lease, limits StepLimits, writes ...StepWrite) (Steps, error) {
	got, err := r.CommitMany(ctx, l.Job.Instance, limits, []Commit{{l, writes}})
	if err != nil {
		return Steps{}, err
	}
	return got[0].Steps, got[0].Err
}

// Commit is what CommitMany writes for one job.
type Commit struct {
	Lease  *Lease
	Writes []StepWrite
}

// Committed is what became of a Commit: what stands there now, and the time, or why nothing was written.
type Committed struct {
	Steps Steps
	Err   error
}

// CommitMany is Commit for several jobs of one instance in one script, each by itself. No job may be among them twice; the
// caller keeps them to about a MiB.
func (r *Runtime) CommitMany(ctx context.Context, instance string, limits StepLimits, commits []Commit) ([]Committed, error) {
	out := make([]Committed, len(commits))
	keys, args := slices.Grow(r.s.instanceKeys(instance), len(commits)), commitArgs(limits, commits)
	for i := range commits {
		keys = append(keys, r.s.keys.recordsOf(instance, commits[i].Lease.Job.ID))
	}
	err := r.s.do(ctx, "committing steps", func() error {
		p, err := r.s.run(ctx, scriptStep, keys, args...)
		if err != nil {
			return err
		}
		now := parseMS(p.str())
		letters, values := p.str(), p.list()
		if len(letters) != len(commits) || len(values.v) != len(commits) {
			return fmt.Errorf("answered for %d jobs of %d", len(letters), len(commits))
		}
		for i := range commits {
			out[i].Steps.Now = now
			out[i].read(&commits[i], limits, letters[i], &values)
		}
		return nil
	})
	return out, err
}

// commitArgs are the arguments of step.lua.
func commitArgs(limits StepLimits, commits []Commit) []any {
	n := len(commits)
	for i := range commits {
		n += len(commits[i].Writes) - 1
	}
	args := make([]any, 4+2*len(commits), 4+2*len(commits)+2*n+6)
	letters := make([]byte, 0, n)
	texts := make([]any, 0, n)
	var details []any
	for i := range commits {
		c := &commits[i]
		args[4+i], args[4+len(commits)+i] = c.Lease.Job.Worker[:], c.Lease.token
		if len(c.Writes) != 1 {
			details = append(details, i+1, "N", len(c.Writes))
		}
		if c.Lease.run.crashes > 0 {
			details = append(details, i+1, "C", "")
		}
		for k := range c.Writes {
			w := &c.Writes[k]
			letter, text := w.said()
			letters, texts = append(letters, letter), append(texts, text)
			args = append(args, w.Name)
			if w.Replace > 0 && w.Kind == LocalStep {
				details = append(details, len(letters), "R", w.Replace)
			}
		}
	}
	args[0], args[1], args[2], args[3] = limits.Count, limits.Bytes, len(commits), letters
	return append(append(args, texts...), details...)
}

// read reads what step.lua answers for one job.
func (out *Committed) read(c *Commit, limits StepLimits, letter byte, p *reader) {
	got := p.next()
	n, _ := got.(int64)
	switch letter {
	case 'w':
		opening, _ := got.(string)
		out.Steps.Known = []Step{c.Writes[0].written(c.Lease.Job.ID, opening)}
	case 's':
		list, _ := got.([]any)
		records := reader{v: list}
		for i := range c.Writes {
			s := readStep(c.Writes[i].Name, records.str())
			s.Job = c.Lease.Job.ID
			out.Steps.Known = append(out.Steps.Known, s)
		}
	case 'n':
		out.Err = &StepLimitError{What: "steps", Max: limits.Count, Got: int(n)}
	case 'b':
		out.Err = &StepLimitError{What: "bytes of steps", Max: limits.Bytes, Got: int(n)}
	case 'f':
		list, _ := got.([]any)
		about := reader{v: list}
		out.Err = &KeyError{Key: about.str(), Type: about.str(), Want: "hash"}
	default:
		out.Err = ErrLeaseLost
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
