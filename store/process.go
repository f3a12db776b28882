package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Announce lists a process as alive for ttl. It is called again and again, with the same Process, for as long as it lives.
func (r *Runtime) Announce(ctx context.Context, p Process, ttl time.Duration) error {
	for _, instance := range p.Instances {
		if err := ValidateInstance(instance); err != nil {
			return err
		}
	}
	about, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("announcing the process: %w", err)
	}
	return r.s.do(ctx, "announcing the process", func() error {
		for _, instance := range p.Instances {
			if err := r.s.announce(ctx, instance, false); err != nil {
				return err
			}
		}
		_, err := r.s.run(ctx, scriptAnnounce, []string{r.s.keys.processes()}, about, ttl.Milliseconds())
		return err
	})
}

// Leave takes back what Announce said, and passes on to other processes what this one may have been woken for.
func (r *Runtime) Leave(ctx context.Context, p Process) error {
	about, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	return r.s.do(ctx, "leaving", func() error {
		var errs []error
		for _, instance := range p.Instances {
			_, err := r.s.run(ctx, scriptLeave, r.s.instanceKeys(instance), r.s.keys.process(p.ID))
			errs = append(errs, err)
		}
		err := r.s.rdb.ZRem(ctx, r.s.keys.processes(), about).Err()
		errs = append(errs, r.s.named(ctx, err, r.s.keys.processes(), "zset"))
		return errors.Join(errs...)
	})
}

// Processes returns the processes that are alive, the oldest first.
func (s *Store) Processes(ctx context.Context) ([]Process, error) {
	var all []Process
	err := s.do(ctx, "listing processes", func() error {
		r, err := s.run(ctx, scriptProcesses, []string{s.keys.processes()})
		if err != nil {
			return err
		}
		for l := r.list(); l.more(); {
			var p Process
			if json.Unmarshal(l.raw(), &p) == nil {
				all = append(all, p)
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b Process) int { return a.Since.Compare(b.Since) })
	return all, err
}

// Workers returns the workers that hold a job, of one instance, or of all where instance is empty: then also those beside an instance
// that a foreign key spoils, together with its *KeyError.
func (s *Store) Workers(ctx context.Context, instance string) ([]Worker, error) {
	instances := []string{instance}
	if instance == "" {
		var err error
		if instances, err = s.Instances(ctx); err != nil {
			return nil, err
		}
	} else if err := ValidateInstance(instance); err != nil {
		return nil, err
	}
	var all []Worker
	err := s.do(ctx, "listing workers", func() error {
		var spoilt []error
		for _, name := range instances {
			some, err := s.workers(ctx, name)
			if foreign(err) {
				spoilt = append(spoilt, err)
				continue
			}
			if err != nil {
				return err
			}
			all = append(all, some...)
		}
		return errors.Join(spoilt...)
	})
	return all, err
}

func (s *Store) workers(ctx context.Context, instance string) ([]Worker, error) {
	keys := s.instanceKeys(instance)
	seen := map[uuid.UUID]Worker{}
	for next := uint64(0); ; {
		pairs, after, err := s.rdb.HScan(ctx, keys[kWorkers], next, "", MaxCall).Result()
		if err != nil {
			return nil, s.named(ctx, err, keys[kWorkers], "hash")
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if token := pairs[i+1]; len(token) == tokenLen && len(pairs[i]) == idLen {
				w := Worker{Instance: instance}
				copy(w.ID[:], pairs[i])
				copy(w.Job[:], token)
				copy(w.Process[:], token[idLen+nonceLen:])
				seen[w.ID] = w
			}
		}
		if next = after; next == 0 {
			break
		}
	}
	all := make([]Worker, 0, len(seen))
	for _, w := range seen {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b Worker) int { return strings.Compare(string(a.ID[:]), string(b.ID[:])) })
	return all, s.since(ctx, instance, all)
}

// since fills in when each worker claimed its job.
func (s *Store) since(ctx context.Context, instance string, all []Worker) error {
	for some := range slices.Chunk(all, MaxCall) {
		ids := make([]any, len(some))
		for i := range some {
			ids[i] = some[i].Job[:]
		}
		p, err := s.run(ctx, scriptRan, s.instanceKeys(instance), ids...)
		if err != nil {
			return err
		}
		runs := p.list()
		for i := range some {
			if r, err := parseRun(runs.str()); err == nil {
				some[i].Since = fromMS(r.started)
			}
		}
	}
	return nil
}

// Await notes for a minute that somebody waits for the job's end: it is announced on EndedChannel, and the job is kept for a
// minute whatever the retention. It returns the state that the job is in now, or ErrNotFound.
func (r *Runtime) Await(ctx context.Context, instance string, id uuid.UUID) (State, error) {
	if err := ValidateInstance(instance); err != nil {
		return "", err
	}
	var state State
	err := r.s.do(ctx, "awaiting", func() error {
		p, err := r.s.run(ctx, scriptAwait, r.s.instanceKeys(instance), id[:])
		if err != nil {
			return err
		}
		n := p.int()
		if n == 0 {
			return fmt.Errorf("%w: %s", ErrNotFound, id)
		}
		state = stateAt(n)
		return nil
	})
	return state, err
}
