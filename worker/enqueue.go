package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/ids"
	"github.com/stint-go/stint/store"
)

// EnqueueOption is an option of one job, for [Client.Enqueue] and [Request]. Of two that say the same thing the last
// counts. What an option refuses makes the enqueuing an ErrInvalid.
type EnqueueOption func(*enqueuing)

// enqueuing is a job in the making.
type enqueuing struct {
	job     store.NewJob
	delayed bool // Delay was given
	timed   bool // At was given
	err     error
}

func (e *enqueuing) refuse(format string, a ...any) {
	if e.err == nil {
		e.err = invalid(format, a...)
	}
}

// Priority says who goes first among the jobs of an instance: 1 is the last to run, 10 the first, 5 the default. Jobs of one
// priority run in the order in which they became todo.
func Priority(n int) EnqueueOption {
	return func(e *enqueuing) {
		if n < store.MinPriority || n > store.MaxPriority {
			e.refuse("priority %d is outside %d to %d", n, store.MinPriority, store.MaxPriority)
		}
		e.job.Priority = n
	}
}

// Delay holds the job back for d from the moment when Redis accepts it, by Redis' clock, rounded up to a millisecond: it never
// starts early. Zero is no delay, negative is refused. Not together with At.
func Delay(d time.Duration) EnqueueOption {
	return func(e *enqueuing) {
		if d < 0 {
			e.refuse("the delay %v is negative", d)
		}
		e.job.Delay, e.delayed = d, true
	}
}

// At holds the job back until t by Redis' clock, rounded up to a millisecond. A time that is past is no delay. A zero t is
// refused, as it is a time that was forgotten, and so is one after the year 9999. Not together with Delay.
func At(t time.Time) EnqueueOption {
	return func(e *enqueuing) {
		if t.IsZero() || t.UTC().Year() > 9999 {
			e.refuse("the time %v is not one to run a job at", t)
		}
		e.job.At, e.timed = t, true
	}
}

// ID gives the job an id that the application has chosen, which makes enqueuing it repeatable: while a job with this id is
// kept, in this instance, it changes nothing and returns ErrExists. The zero UUID is refused.
func ID(id uuid.UUID) EnqueueOption {
	return func(e *enqueuing) {
		if id == uuid.Nil {
			e.refuse("the job's id is zero")
		}
		e.job.ID = id
	}
}

// MaxAttempts bounds the attempts of this job: at least 1. When the policy of its handler gives up earlier, that counts.
func MaxAttempts(n int) EnqueueOption {
	return func(e *enqueuing) {
		if n < 1 {
			e.refuse("%d attempts at most: less than 1", n)
		}
		e.job.MaxAttempts = n
	}
}

// Metadata adds a key and its value, both UTF-8, to what the job carries beside its payload: at most 16 KiB, keys and
// values together. Of two values for a key the last counts.
func Metadata(k, v string) EnqueueOption {
	return func(e *enqueuing) {
		switch {
		case k == "":
			e.refuse("a key of the metadata is empty")
		case !utf8.ValidString(k) || !utf8.ValidString(v):
			e.refuse("the metadata %.40q: %.40q is not UTF-8", k, v)
		}
		if e.job.Metadata == nil {
			e.job.Metadata = map[string]string{}
		}
		e.job.Metadata[k] = v
	}
}

// Deadline makes the job dead, without charging an attempt, if it has not been claimed by t, by Redis' clock: while it waits for
// its first attempt, or for another one. It does not end an attempt that runs. A t that is past is a deadline that is over.
// A zero t is refused, as it is a time that was forgotten, and so is one before 1970 or after the year 9999.
func Deadline(t time.Time) EnqueueOption {
	return func(e *enqueuing) {
		if t.IsZero() || t.UnixMilli() <= 0 || t.UTC().Year() > 9999 {
			e.refuse("the time %v is not one for a deadline", t)
		}
		e.job.Deadline = t
	}
}

// newJob makes a job of what the caller has given. All that can be wrong with it is found here, before anything is sent.
func newJob(instance string, payload any, opts []EnqueueOption) (store.NewJob, error) {
	if err := store.ValidateInstance(instance); err != nil {
		return store.NewJob{}, err
	}
	job, err := optioned(opts)
	if err != nil {
		return store.NewJob{}, err
	}
	if job.Payload, err = encode(payload); err != nil {
		return store.NewJob{}, err
	}
	if job.ID == uuid.Nil {
		// Random, not ordered by time: the order of jobs is Redis' to make, their ids carry no clock, and the first digits
		// of an id are enough to find it in a log again.
		job.ID, job.Fresh = ids.New(), true
	}
	return job, nil
}

// optioned returns a job of which only the options are known.
func optioned(opts []EnqueueOption) (store.NewJob, error) {
	if len(opts) == 0 {
		return store.NewJob{}, nil
	}
	var e enqueuing
	for _, o := range opts {
		if o != nil {
			o(&e)
		}
	}
	if e.delayed && e.timed {
		e.refuse("both a delay and a time are given")
	}
	if n := metadataSize(&e.job); n > store.MaxMetadata {
		e.refuse("the metadata has %d bytes; at most %d are allowed", n, store.MaxMetadata)
	}
	return e.job, e.err
}

func metadataSize(job *store.NewJob) (n int) {
	for k, v := range job.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// jobSize is about how many bytes the job adds to a request.
func jobSize(job *store.NewJob) int {
	return 128 + len(job.Payload) + len(job.Unique.Key) + metadataSize(job)
}

// encode makes JSON of a payload. A json.RawMessage is taken as it is, but as a copy: the caller may have its bytes back
// before they are sent.
func encode(payload any) (json.RawMessage, error) {
	raw, ok := payload.(json.RawMessage)
	switch {
	case !ok || raw == nil:
		b, err := json.Marshal(payload)
		if err != nil {
			return nil, fmt.Errorf("%w: the payload: %w", store.ErrInvalid, err)
		}
		raw = b
	case !json.Valid(raw):
		return nil, invalid("the payload is not JSON: %.40q", []byte(raw))
	default:
		raw = bytes.Clone(raw)
	}
	if len(raw) > store.MaxPayload {
		return nil, invalid("the payload has %d bytes; at most %d are allowed", len(raw), store.MaxPayload)
	}
	return raw, nil
}
