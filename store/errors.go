package store

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// The conditions a caller can act on. Errors of the network and of contexts are returned as they are, wrapped.
var (
	// ErrNotFound: no job with that id in any instance, no entry with that key, no record of that tick.
	ErrNotFound = errors.New("not found")
	// ErrExists: a job with that id is already there; nothing was changed.
	ErrExists = errors.New("job exists")
	// ErrDuplicate: another job of the instance has the same key of uniqueness; a *DuplicateError names it.
	ErrDuplicate = errors.New("duplicate")
	// ErrInvalid: the request can never succeed as it stands; the text says what is wrong with it.
	ErrInvalid = errors.New("invalid")
	// ErrTerminal: the job is done, dead or cancelled, and stays so.
	ErrTerminal = errors.New("job has ended")
	// ErrState: the job's present state does not allow the operation; the text names the state.
	ErrState = errors.New("not in this state")
	// ErrServer: the server can't serve: too old, read-only, out of memory, another format, a foreign key in our
	// namespace. A *KeyError is one of these and names the key.
	ErrServer = errors.New("redis server")
	// ErrUntold: the job was changed as asked, and its end could not be told to its parent, or to all of its children. The processes that serve its
	// instance see to that. To call again is of no use.
	ErrUntold = errors.New("the family has not been told")
	// ErrLeaseLost: the lease was reaped, cancelled or never was the caller's; nothing was written.
	ErrLeaseLost = errors.New("lease lost")
)

// KeyError is the ErrServer of a key in our namespace that holds something else than it should. The operation that
// met it changed nothing.
type KeyError struct {
	Key, Type, Want string // Redis' names of types: hash, zset, string, ...
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("%v: key %q is a %s, not a %s", ErrServer, e.Key, e.Type, e.Want)
}

// Is makes errors.Is(err, ErrServer) true.
func (e *KeyError) Is(target error) bool { return target == ErrServer }

// Instance is the instance that the key belongs to, or would if it were ours; empty for a key that is none's alone.
func (e *KeyError) Instance() string { return instanceOf(e.Key) }

// foreign reports whether an error is that of a foreign key, which spoils one instance and no other.
func foreign(err error) bool {
	_, ok := errors.AsType[*KeyError](err)
	return ok
}

// DuplicateError is the ErrDuplicate of a job whose key another one has.
type DuplicateError struct{ Holder uuid.UUID }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%v: job %s has the key", ErrDuplicate, e.Holder)
}

// Is makes errors.Is(err, ErrDuplicate) true.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

func invalid(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, a...))
}
