package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// bulkStep is how many jobs one script changes at most: it keeps Redis busy for a few milliseconds.
const bulkStep = 200

// RequeueAll requeues the jobs that f selects, in batches, and returns how many. f.State must be one of the ends, or empty for
// dead ones. Those whose key of uniqueness another job has stay as they are. What ends while it goes on is left, so that none is
// requeued twice. An error ends it, but for a *KeyError and an ErrUntold, which are returned when all the rest is through; what was done until
// then stays done.
func (s *Store) RequeueAll(ctx context.Context, f Filter) (int, error) {
	if f.State == "" {
		f.State = Dead
	}
	if !f.State.Terminal() {
		return 0, invalid("jobs that are %s can't be requeued", f.State)
	}
	return s.all(ctx, "requeuing many", f, requeue(Resume))
}

// CancelAll cancels the jobs that f selects, in batches, and returns how many; of the doing ones those that it was requested for.
// With an empty f.State: all that have not ended.
func (s *Store) CancelAll(ctx context.Context, f Filter) (int, error) {
	if f.State.Terminal() {
		return 0, invalid("jobs that are %s can't be cancelled", f.State)
	}
	return s.all(ctx, "cancelling many", f, cancel)
}

// Purge removes the jobs that f selects, in batches, and returns how many. Those that are doing stay. With an empty f.State: all
// that have ended.
func (s *Store) Purge(ctx context.Context, f Filter) (int, error) {
	if f.State == Doing {
		return 0, invalid("jobs that are doing can't be removed; cancel them first")
	}
	return s.all(ctx, "purging", f, remove)
}

// all makes a change to all jobs that a filter selects. An instance that a foreign key spoils is left out, and named in the error.
func (s *Store) all(ctx context.Context, op string, f Filter, c change) (int, error) {
	if f.Cursor != "" || f.Limit != 0 {
		return 0, invalid("a change of many jobs takes no cursor and no limit")
	}
	instances, err := s.selected(ctx, f)
	if err != nil {
		return 0, err
	}
	n := 0
	var spoilt []error
	for _, instance := range instances {
		for _, set := range setsOf(f.State, c) {
			m, err := s.sweep(ctx, op, instance, set, f, c)
			n += m
			if errors.Is(err, ErrUntold) {
				spoilt = append(spoilt, err)
				continue // what was to be done is
			}
			if foreign(err) {
				spoilt = append(spoilt, err)
				break // it is the same with all of the instance's
			}
			if err != nil {
				return n, err
			}
		}
	}
	return n, errors.Join(spoilt...)
}

// setsOf returns the numbers of the sets that a change goes through.
func setsOf(state State, c change) []int {
	switch {
	case state == Todo:
		return []int{2, suspectSet}
	case state != "":
		return []int{numberOf(state)}
	case c.script.op == remove.script.op:
		return []int{5, 6, 7}
	}
	return []int{1, 2, suspectSet, 4, 3}
}

// sweep makes a change to the jobs of one set: a page of ids is picked, and changed by another script that looks at each again. What
// has ended since it began is left.
func (s *Store) sweep(ctx context.Context, op, instance string, set int, f Filter, c change) (int, error) {
	var t tally
	for more, last, score, began := true, "", "", ""; more; {
		err := s.do(ctx, op, func() error {
			p, err := s.run(ctx, scriptSelect, s.instanceKeys(instance), set, bulkStep, last, score, f.age(), f.Error, began)
			if err != nil {
				return err
			}
			more, last, score = p.int() == 1, p.str(), p.str()
			ids, now := p.ids(), p.str()
			began = cmp.Or(began, now)
			return s.changePage(ctx, instance, ids, c, &t)
		})
		if err != nil {
			return t.changed, err
		}
	}
	return t.changed, errors.Join(append(t.spoilt, t.untold)...)
}

// tally is what has become of a change of many jobs.
type tally struct {
	changed int
	spoilt  []error // of single jobs
	untold  error
}

func (s *Store) changePage(ctx context.Context, instance string, ids []uuid.UUID, c change, t *tally) error {
	for len(ids) > 0 { // a script may not get through all of them
		p, err := s.run(ctx, c.script, s.instanceKeys(instance), raw(slices.Clone(c.args), ids)...)
		if err != nil {
			return err
		}
		through := 0
		for l := p.list(); l.more() && through < len(ids); through++ {
			switch err := c.read(&l); {
			case err == nil:
				t.changed++
			case foreign(err):
				t.spoilt = append(t.spoilt, fmt.Errorf("%w: job %s", err, ids[through]))
			}
		}
		if err := s.chase(ctx, instance, p.int(), ids[:through]); err != nil {
			t.untold = err
		}
		ids = ids[max(through, 1):]
	}
	return nil
}

// selected checks a filter and returns the instances that it speaks of.
func (s *Store) selected(ctx context.Context, f Filter) ([]string, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	if f.Instance == "" {
		return s.Instances(ctx)
	}
	return []string{f.Instance}, nil
}

// DeleteInstance removes an instance with all its jobs. ErrState if jobs are doing, if entries of cron target it, if jobs in it are children that
// have not ended, or whose outcome has not reached the parent, or if jobs in it have open children, unless force is set. Then the leases are lost,
// and the entries removed with their records; processes that declare these and still run register them again. Parents elsewhere are not told:
// their sweeper dispatches such children anew, which brings the instance back. Children elsewhere are not cancelled: those that are doing run to
// their end, the others are cancelled when they are claimed. A later enqueue makes the instance anew.
func (s *Store) DeleteInstance(ctx context.Context, instance string, force bool) error {
	if err := ValidateInstance(instance); err != nil {
		return err
	}
	forced := 0
	if force {
		forced = 1
	}
	return s.do(ctx, "deleting an instance", func() error {
		entries, err := s.entriesOf(ctx, instance)
		if err != nil {
			return err
		}
		keys := append(s.instanceKeys(instance), s.keys.cron(instance)...)
		for _, e := range entries {
			keys = append(keys, s.keys.dispatches(instance, e))
		}
		for mode, cursor := forced, "0"; ; { // a look at the children, all but the steps, these: of a thousand jobs at a time
			p, err := s.run(ctx, scriptRemove, keys, mode, cursor)
			if err != nil {
				return err
			}
			if n := p.int(); n > 0 {
				return fmt.Errorf("%w: %d jobs of %s are doing", ErrState, n, instance)
			}
			if n := p.int(); n > 0 {
				return fmt.Errorf("%w: %d entries of cron target %s", ErrState, n, instance)
			}
			if n := p.int(); n > 0 {
				return fmt.Errorf("%w: the outcomes of %d children in %s have not reached their parents", ErrState, n, instance)
			}
			if n := p.int(); n > 0 {
				return fmt.Errorf("%w: jobs of %s have %d open children", ErrState, instance, n)
			}
			if n := p.int(); n > 0 {
				return fmt.Errorf("%w: %d jobs of %s are children that have not ended", ErrState, n, instance)
			}
			if cursor = p.str(); cursor == "0" {
				break
			}
			if p.int() == 2 {
				mode = 2
			}
		}
		if _, err := s.agree(ctx, instance, entries); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.known, instance)
		s.mu.Unlock()
		if err := s.rdb.SRem(ctx, s.keys.instances(), instance).Err(); err != nil {
			return s.named(ctx, err, s.keys.instances(), "set")
		}
		// A job may have come in between: it has made itself known before we took the name away.
		if there, err := s.rdb.Exists(ctx, s.instanceKeys(instance)[kJobs]).Result(); err != nil || there == 0 {
			return err
		}
		return s.announce(ctx, instance, true)
	})
}
