package worker

import (
	"time"

	"github.com/stint-go/stint/store"
)

// Unique keeps a second job with the same key, 1 to 1,024 bytes, out of the instance until then: enqueuing it is an ErrDuplicate,
// a *store.DuplicateError, which names the job that has the key. Keys of different instances have nothing to do with each
// other; within an instance a key is one and the same for all values of Until. A job that is deleted, or no longer kept,
// gives its key up, unless it has it For a time. To requeue a job takes its key again, or fails if another has it.
func Unique(key string, until Until) EnqueueOption {
	return func(e *enqueuing) {
		u := store.Unique{Key: key, Mode: until.mode, Window: until.window}
		switch {
		case len(key) < 1 || len(key) > store.MaxKey:
			e.refuse("the key of uniqueness has %d bytes; 1 to %d are allowed", len(key), store.MaxKey)
		case until == Until{}:
			e.refuse("it is not said until when the job is unique")
		case u.Mode == store.UniqueWindow && u.Window < time.Millisecond:
			e.refuse("the window %v of uniqueness is shorter than a millisecond", u.Window)
		}
		e.job.Unique = u
	}
}

// Until is the end of a job's uniqueness. The zero Until is refused.
type Until struct {
	mode   store.UniqueMode
	window time.Duration
}

// UntilClaimed frees the key when the job is claimed for the first time: at most one waits, while others may run. It is
// not taken again when the job comes back, to be retried for example.
func UntilClaimed() Until { return Until{mode: store.UniqueClaimed} }

// UntilDone frees the key when the job is done. One that is dead or cancelled keeps it, until it is requeued and done, deleted
// or no longer kept.
func UntilDone() Until { return Until{mode: store.UniqueDone} }

// UntilTerminal frees the key when the job is done, dead or cancelled.
func UntilTerminal() Until { return Until{mode: store.UniqueTerminal} }

// For frees the key d after Redis has accepted the job, by Redis' clock, whatever becomes of the job: at least a
// millisecond, and rounded up to one.
func For(d time.Duration) Until { return Until{mode: store.UniqueWindow, window: d} }
