package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// latest is the last moment that a job can be scheduled for: the year 9999.
var latest = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// validate says what is wrong with a job, before anything of it is sent.
func (n NewJob) validate() error {
	switch {
	case n.ID == uuid.Nil:
		return invalid("the job's id is zero")
	case len(n.Payload) > MaxPayload:
		return invalid("the payload has %d bytes; at most %d are allowed", len(n.Payload), MaxPayload)
	case !validJSON(n.Payload):
		return invalid("the payload is not JSON: %.40q", n.Payload)
	case n.Priority != 0 && (n.Priority < MinPriority || n.Priority > MaxPriority):
		return invalid("priority %d is outside %d to %d", n.Priority, MinPriority, MaxPriority)
	case n.Delay < 0:
		return invalid("the delay %v is negative", n.Delay)
	case n.Delay > 0 && !n.At.IsZero():
		return invalid("both a delay and a time are given")
	case n.At.After(latest) || n.Deadline.After(latest):
		return invalid("a time after the year 9999")
	case !n.Deadline.IsZero() && n.Deadline.UnixMilli() <= 0:
		return invalid("the deadline %v is before 1970", n.Deadline)
	case n.MaxAttempts < 0:
		return invalid("%d attempts at most; 1 or more are allowed", n.MaxAttempts)
	}
	size := 0
	for k, v := range n.Metadata {
		size += len(k) + len(v)
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("the metadata is not UTF-8: %.40q: %.40q", k, v)
		}
	}
	if size > MaxMetadata {
		return invalid("the metadata has %d bytes; at most %d are allowed", size, MaxMetadata)
	}
	return n.Unique.validate()
}

func (u Unique) validate() error {
	if u == (Unique{}) {
		return nil
	}
	switch u.Mode {
	case UniqueClaimed, UniqueDone, UniqueTerminal:
	case UniqueWindow:
		if u.Window < time.Millisecond {
			return invalid("the window %v of uniqueness is shorter than 1 ms", u.Window)
		}
	default:
		return invalid("there is no mode of uniqueness %q", u.Mode)
	}
	if len(u.Key) < 1 || len(u.Key) > MaxKey {
		return invalid("the key of uniqueness has %d bytes; 1 to %d are allowed", len(u.Key), MaxKey)
	}
	return nil
}

// words are the mode and the key in the words of enqueue.lua.
func (u Unique) words() string {
	switch u.Mode {
	case 0:
		return ""
	case UniqueWindow:
		return fmt.Sprintf("w%d %s", ceilMS(u.Window), u.Key)
	}
	return string(u.Mode) + u.Key
}

// due is the job's time in the words of enqueue.lua: up to a whole millisecond, so that it never runs early.
func (n NewJob) due() string {
	const ms = time.Millisecond
	switch {
	case n.Delay > 0:
		return "-" + strconv.FormatInt(int64((n.Delay-1)/ms)+1, 10)
	case !n.At.IsZero() && n.At.UnixMilli() > 0:
		at := n.At.UnixMilli()
		if n.At.Nanosecond()%int(ms) > 0 {
			at++
		}
		return strconv.FormatInt(at, 10)
	}
	return "0"
}

// Enqueue accepts jobs of one instance, in one script: at most MaxCall of them, and the caller keeps their payloads to about a
// MiB. The slice has an error for each job, in their order: nil if it was accepted, ErrExists if there is one with its id (which
// nothing is changed of; of a Fresh job it is that job, and accepted), a *DuplicateError, ErrInvalid. A second error that is not
// nil speaks of all of them: nothing was accepted (ErrServer, ErrInvalid) or the outcome is unknown (anything else), which
// repeating the call with the same lane and jobs settles.
func (r *Runtime) Enqueue(ctx context.Context, lane *Lane, instance string, jobs []NewJob) ([]error, error) {
	if err := ValidateInstance(instance); err != nil {
		return nil, err
	}
	if len(jobs) > MaxCall {
		return nil, invalid("%d jobs in one call; at most %d are allowed", len(jobs), MaxCall)
	}
	outcome := make([]error, len(jobs))
	laneID, number := lane.request()
	sent := make([]int, 0, len(jobs))
	for i := range jobs {
		if outcome[i] = jobs[i].validate(); outcome[i] == nil {
			sent = append(sent, i)
		}
	}
	if len(sent) == 0 {
		return outcome, nil
	}
	args := requested(number, jobs, sent)
	err := r.s.do(ctx, "enqueuing", func() error {
		if err := r.s.announce(ctx, instance, false); err != nil {
			return err
		}
		keys := append(r.s.instanceKeys(instance), r.s.keys.lane(instance, laneID))
		p, err := r.s.run(ctx, scriptEnqueue, keys, args...)
		if err != nil {
			return err
		}
		letters, fresh := p.str(), p.int() == 1
		if len(letters) < len(sent) {
			return fmt.Errorf("answered for %d jobs of %d", len(letters), len(sent))
		}
		others := letters[len(sent):]
		for k, i := range sent {
			switch letters[k] {
			case 'e':
				if !jobs[i].Fresh { // else this very request came before, and its lane was forgotten since
					outcome[i] = fmt.Errorf("%w: %s in %s", ErrExists, jobs[i].ID, instance)
				}
			case 'u':
				d := &DuplicateError{}
				others = others[copy(d.Holder[:], others):]
				outcome[i] = d
			}
		}
		if fresh { // it may have been deleted since we announced it
			return r.s.announce(ctx, instance, true)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	lane.settled()
	return outcome, nil
}

// requested is what enqueue.lua is told of the jobs.
func requested(number string, jobs []NewJob, sent []int) []any {
	rank := MaxPriority - jobs[sent[0]].priority()
	args := append(make([]any, 0, 4+2*len(sent)), number, len(sent), rank, known(jobs, sent))
	// All ids and records are parts of one text: to allocate each of them costs as much as to send it.
	size := 0
	for _, i := range sent {
		size += len(jobs[i].ID) + 16 + len(jobs[i].Payload)
	}
	text, ends := make([]byte, 0, size), make([]int, len(sent))
	for k, i := range sent {
		text = appendRecord(append(text, jobs[i].ID[:]...), &jobs[i])
		ends[k] = len(text)
	}
	rest, from := string(text), 0
	parts := make([]string, 2*len(sent))
	for k, end := range ends {
		record := from + len(uuid.UUID{})
		parts[2*k], parts[2*k+1] = rest[from:record], rest[record:end]
		args = append(args, &parts[2*k], &parts[2*k+1])
		from = end
	}
	for k, i := range sent {
		j := &jobs[i]
		add := func(letter string, v any) { args = append(args, k+1, letter, v) }
		if r := MaxPriority - j.priority(); r != rank {
			add("P", r)
		}
		if due := j.due(); due != "0" {
			add("T", due)
		}
		if !j.Deadline.IsZero() {
			add("D", j.Deadline.UnixMilli())
		}
		if j.Unique != (Unique{}) {
			add("U", j.Unique.words())
		}
		if j.Parent.ID != uuid.Nil {
			add("K", j.Parent.ref())
		}
	}
	return args
}

// known says what enqueue.lua has to know of the ids: 0 if all are fresh, 1 if not, 2 if one stands among them twice.
func known(jobs []NewJob, sent []int) int {
	if !slices.ContainsFunc(sent, func(i int) bool { return !jobs[i].Fresh }) {
		return 0
	}
	ids := make(map[uuid.UUID]struct{}, len(sent))
	for _, i := range sent {
		ids[jobs[i].ID] = struct{}{}
	}
	if len(ids) < len(sent) {
		return 2
	}
	return 1
}

func (n *NewJob) priority() int { return cmp.Or(n.Priority, DefPriority) }
