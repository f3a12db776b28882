package worker

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/store"
)

// write commits steps and remembers what stands there now.
func (a *attempt) write(writes ...store.StepWrite) ([]store.Step, error) {
	m := a.remember()
	out, err := m.send(a, writes)
	job := &a.lease.Job
	if errors.Is(err, ErrLeaseLost) {
		a.feed.run.lose(a)
		for _, w := range writes {
			a.feed.run.events.emit(StepDropped{Instance: job.Instance, Job: job.ID, Worker: job.Worker, Step: w.Name})
		}
	}
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(out.Known)
	m.clock, m.since = out.Now, time.Now()
	return out.Known, nil
}

// send has the attempt's next commit sent, and waits for its answer.
func (m *memory) send(a *attempt, writes []store.StepWrite) (store.Steps, error) {
	m.committing.Lock()
	defer m.committing.Unlock()
	c := &m.commit
	c.Lease, c.Writes = a.lease, append(c.Writes[:0], writes...)
	err := a.persist(func(context.Context) error {
		a.feed.commits.Add(c)
		<-c.done
		return c.err
	})
	out := c.out
	c.out = store.Steps{}
	clear(c.Writes)
	if len(writes) > 1 {
		c.Writes = nil // they may be many
	}
	return out, err
}

// commit is a Commit on its way.
type commit struct {
	store.Commit
	out  store.Steps
	err  error
	done chan struct{} // is told when out and err are there
}

const (
	commitLanes  = 2       // requests with steps of an instance in flight
	recordWeight = 1 << 10 // of a step that is written or waited for: what takes Redis' time is not its bytes
)

// weight is about how many bytes the commit adds to a request.
func (c *commit) weight() int {
	n := 128
	for i := range c.Writes {
		w := &c.Writes[i]
		n += recordWeight + len(w.Name) + len(w.Value) + len(w.Error) + len(w.Child.Payload)
	}
	return n
}

// newCommits makes the group in which steps of an instance's jobs travel: those that are ready together in one request.
func (f *feed) newCommits() *batch.Group[*commit] {
	return batch.New(commitLanes, f.atOnce(), callWeight, (*commit).weight, func(_ int, some []*commit) {
		all := make([]store.Commit, len(some))
		for i := range some {
			all[i] = some[i].Commit
		}
		var got []store.Committed
		err := guard(func() (err error) {
			got, err = f.run.rt.CommitMany(f.run.io, f.terms.Instance, f.reg.steps, all)
			return err
		})
		for i, c := range some {
			if c.err = err; err == nil {
				c.out, c.err = got[i].Steps, got[i].Err
			}
			c.done <- struct{}{}
		}
	})
}

// commit writes the step.
func (s *step) commit(w store.StepWrite) (store.Step, error) {
	w.Name = s.name
	kept, err := s.at.write(w)
	if limit, ok := errors.AsType[*store.StepLimitError](err); ok {
		return store.Step{}, refuse(s.name, limit)
	}
	if err != nil {
		return store.Step{}, err
	}
	return kept[0], nil
}
