package worker

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/store"
)

// Requests to the store: how much goes in one, and how long one is tried.
const (
	callWeight = 1 << 20          // bytes of one request, about
	callItems  = 250              // jobs of one request, be it that they are new, end, commit steps or have outcomes: see below
	sendPause  = time.Second      // the longest between two tries
	patience   = 10 * time.Second // of a caller whose context has no deadline
)

// Why 250: Redis serves nobody else meanwhile. A thousand jobs in one script hold it for 5 ms, and for more than 15 while the
// tables of a large instance grow, when each entry costs a page of fresh memory and a move of old ones. It costs nothing: from
// 100 jobs on a request's own cost vanishes in that of its jobs, and on either lane the next one is ready. What else goes up to
// store.MaxCall is in docs/decisions.md.

// refused reports whether trying again can't help a caller, who hears of it: a server that refuses may do so for long.
func refused(err error) bool {
	if _, behind := errors.AsType[*store.ReplicasError](err); behind {
		return false // it may have been accepted
	}
	_, panicked := errors.AsType[*PanicError](err) // in a hook of the Redis client
	return panicked || errors.Is(err, ErrGoexit) || errors.Is(err, store.ErrServer) || errors.Is(err, store.ErrInvalid)
}

// hopeless reports whether trying again can't help, however long it is gone on with: neither time nor another server makes the request
// right.
func hopeless(err error) bool {
	_, foreign := errors.AsType[*store.KeyError](err)
	_, panicked := errors.AsType[*PanicError](err) // in a hook of the Redis client
	return foreign || panicked || errors.Is(err, ErrGoexit) || errors.Is(err, store.ErrInvalid)
}

// rest sleeps for d and reports true, or false as soon as ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
