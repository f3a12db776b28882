package worker

import (
	"context"
	"time"
)

// Trip keeps this process from claiming jobs of the instance whose handler was given ctx, for d, and after that lets it run one of
// them at a time, until it is called again: with another d that begins anew, with 0 or less all workers may claim again. It is what a
// circuit breaker is made of (see package middleware): jobs that would fail stay where they are, uncharged, for other processes or
// for later. What was claimed already is run. ErrNoJob where ctx is not that of a handler.
func Trip(ctx context.Context, d time.Duration) error {
	at, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return ErrNoJob
	}
	at.feed.trip(d)
	return nil
}

func (f *feed) trip(d time.Duration) {
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	f.tripped = d > 0
	if f.tripped {
		f.shut = f.run.now().Add(d)
		f.armLocked(d)
		return
	}
	f.stirLocked()
	p.lookLocked()
}

// admitsLocked says whether a worker may ask for a job of the instance now.
func (f *feed) admitsLocked() bool {
	switch {
	case !f.tripped:
		return true
	case f.asking > 0 || f.run.now().Before(f.shut):
		return false
	}
	for _, s := range f.pool.slots {
		if s.at != nil && s.at.feed == f && !s.at.isEnded() {
			return false
		}
	}
	return true
}
