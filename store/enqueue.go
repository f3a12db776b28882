package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

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
	case n.At.After(latest):
		return invalid("the time %v is after the year 9999", n.At)
	}
	return nil
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

// Enqueue accepts jobs of one instance, in one script: at most MaxCall of them, and the caller keeps their payloads to
// about a MiB. The slice has an error for each job, in their order: nil if it was accepted, ErrExists if there is one
// with its id (which nothing is changed of), ErrInvalid. A second error that is not nil speaks of all of them: nothing was
// accepted (ErrServer, ErrInvalid) or the outcome is unknown (anything else), which repeating the call with the same
// lane and jobs settles.
func (r *Runtime) Enqueue(ctx context.Context, lane *Lane, instance string, jobs []NewJob) ([]error, error) {
	if err := ValidateInstance(instance); err != nil {
		return nil, err
	}
	if len(jobs) > MaxCall {
		return nil, invalid("%d jobs in one call; at most %d are allowed", len(jobs), MaxCall)
	}
	outcome := make([]error, len(jobs))
	laneID, number := lane.request()
	args := make([]any, 2, 2+4*len(jobs))
	sent := make([]int, 0, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		if outcome[i] = j.validate(); outcome[i] != nil {
			continue
		}
		priority := j.Priority
		if priority == 0 {
			priority = DefPriority
		}
		sent = append(sent, i)
		args = append(args, j.ID[:], encodeRecord(priority, j.Payload), MaxPriority-priority, j.due())
	}
	if len(sent) == 0 {
		return outcome, nil
	}
	args[0], args[1] = number, len(sent)
	err := r.s.do(ctx, "enqueuing", func() error {
		if err := r.s.announce(ctx, instance, false); err != nil {
			return err
		}
		keys := append(r.s.instanceKeys(instance), r.s.keys.lane(instance, laneID))
		reply, err := r.s.run(ctx, scriptEnqueue, keys, args...)
		if err != nil {
			return err
		}
		p := reader{v: reply}
		letters, fresh := p.str(), p.int() == 1
		if len(letters) != len(sent) {
			return fmt.Errorf("answered for %d jobs of %d", len(letters), len(sent))
		}
		for k, i := range sent {
			if letters[k] == 'e' {
				outcome[i] = fmt.Errorf("%w: %s in %s", ErrExists, jobs[i].ID, instance)
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
