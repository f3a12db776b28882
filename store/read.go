package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Stats counts an instance's jobs, in one atomic snapshot.
type Stats struct {
	Instance                                              string
	Total                                                 int64 // records; the sum of the states
	Todo, Scheduled, Doing, Parked, Done, Dead, Cancelled int64

	Paused     bool
	OldestTodo time.Duration // how long the oldest of the todo has been so
}

// Instances returns the names of all instances that jobs were enqueued for or that a process has served, sorted.
func (s *Store) Instances(ctx context.Context) ([]string, error) {
	var names []string
	err := s.do(ctx, "listing instances", func() (err error) {
		names, err = s.listed(ctx)
		return err
	})
	slices.Sort(names)
	return names, err
}

// listed reads the set of instances. What somebody else has put there and no instance can be called is none.
func (s *Store) listed(ctx context.Context) ([]string, error) {
	names, err := s.rdb.SMembers(ctx, s.keys.instances()).Result()
	if err != nil {
		return nil, s.named(ctx, err, s.keys.instances(), "set")
	}
	return slices.DeleteFunc(names, func(name string) bool { return ValidateInstance(name) != nil }), nil
}

// Stats returns one Stats an instance, by name. It takes a time that does not depend on the number of jobs, and a round trip for 100
// instances. Where foreign keys spoil instances, or nobody answers for them, as of a node of a Cluster that is away, the others are returned
// together with the error, in which the *KeyErrors are joined.
func (s *Store) Stats(ctx context.Context) ([]Stats, error) {
	names, err := s.Instances(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Stats, 0, len(names))
	var spoilt error
	for some := range slices.Chunk(names, maxAsks) {
		had := len(all)
		err := s.do(ctx, "counting", func() error {
			asks := make([]ask, len(some))
			for i, name := range some {
				asks[i].keys = s.instanceKeys(name)
			}
			return s.runAll(ctx, scriptStats, asks, func(i int, p reader) { all = append(all, statsOf(some[i], &p)) })
		})
		spoilt = errors.Join(spoilt, err)
		if err != nil && !foreign(err) && len(all) == had {
			break // nobody answers at all
		}
	}
	return all, spoilt
}

func statsOf(instance string, p *reader) Stats {
	st := Stats{Instance: instance}
	st.Total = p.int()
	counts := p.list()
	for _, n := range []*int64{&st.Scheduled, &st.Todo, &st.Doing, &st.Parked, &st.Done, &st.Dead, &st.Cancelled} {
		*n = counts.int()
	}
	st.Paused = p.int() == 1
	st.OldestTodo = millis(p.int())
	return st
}

// find returns the instance of a job, by its id alone: all instances are asked in one pipeline.
func (s *Store) find(ctx context.Context, id uuid.UUID) (string, error) {
	names, err := s.listed(ctx)
	if err != nil {
		return "", err
	}
	pipe := s.rdb.Pipeline()
	server := redis.Cmdable(pipe)
	if s.embedded != nil { // it is sent no long pipeline, see pipe
		server = s.rdb
	}
	asked := make([]*redis.BoolCmd, len(names))
	for i, name := range names {
		asked[i] = server.HExists(ctx, s.instanceKeys(name)[kJobs], string(id[:]))
	}
	_, failed := pipe.Exec(ctx)
	for i, name := range names {
		if ok, err := asked[i].Result(); err == nil && ok {
			return name, nil
		}
	}
	for i, name := range names { // it may be where we could not look
		if err := asked[i].Err(); err != nil {
			return "", s.named(ctx, err, s.instanceKeys(name)[kJobs], "hash")
		}
	}
	if failed != nil {
		return "", failed
	}
	return "", fmt.Errorf("%w: %s", ErrNotFound, id)
}

// at runs a script about one job in the instance that has it.
func (s *Store) at(ctx context.Context, op string, id uuid.UUID, f func(instance string, keys []string) error) error {
	return s.do(ctx, op, func() error {
		instance, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		return f(instance, s.instanceKeys(instance))
	})
}

// Get returns a snapshot of a job, or ErrNotFound.
func (s *Store) Get(ctx context.Context, id uuid.UUID) (Job, error) {
	var j Job
	err := s.at(ctx, "reading a job", id, func(instance string, keys []string) (err error) {
		j, err = s.read(ctx, instance, keys, id)
		return err
	})
	return j, err
}

func (s *Store) read(ctx context.Context, instance string, keys []string, id uuid.UUID) (Job, error) {
	p, err := s.run(ctx, scriptGet, keys, id[:])
	if err != nil {
		return Job{}, err
	}
	if !p.more() {
		return Job{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return snapshot(instance, id, stateAt(p.int()), p.str(), &p), nil
}

// suspectSet is the number of the set of suspects, which are todo, in the scripts; the other sets have their state's.
const suspectSet = 8

// listed are the numbers of the sets in the order in which they are listed.
var listed = []int{1, suspectSet, 2, 3, 4, 5, 6, 7}

// stateAt turns a script's number of a set into the state.
func stateAt(n int64) State {
	switch {
	case n == suspectSet:
		return Todo
	case n < 1 || int(n) > len(states):
		return ""
	}
	return states[n-1]
}

// numberOf is the number of a state's set in the scripts.
func numberOf(state State) int { return slices.Index(states, state) + 1 }
