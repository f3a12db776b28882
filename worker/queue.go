package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/batch"
	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// How enqueuing behaves.
const (
	sendLanes = 2                // requests in flight for an instance
	sendTime  = 50 * time.Minute // of a request with its repetitions: for an hour a repetition is known by its lane (see store.Lane)
)

// queue brings the jobs for one instance to the store. Those that are ready at the same time travel together, in one
// request, whoever enqueued them; so a request belongs to nobody, and ends early only when nobody waits for it any more.
type queue struct {
	rt       *store.Runtime
	instance string
	group    *batch.Group[*entry]
	lanes    [sendLanes]sendLane // each is used by one flush at a time

	mu      sync.Mutex // guards what is below, and the fields of entries that say so
	trouble error      // how the last request failed; nil once one was answered
}

// sendLane is what a flush needs.
type sendLane struct {
	store.Lane
	jobs []store.NewJob // room for those of a request
}

// entry is a job on its way.
type entry struct {
	job   store.NewJob
	queue *queue
	call  *call

	flight *flight // guarded by queue.mu: the request that it travels with; nil before and after
	sent   bool    // guarded by queue.mu: it has travelled
	left   bool    // guarded by queue.mu: its caller has gone
	err    error   // its outcome: written under queue.mu unless left is set, read by the caller once it is final
	done   bool    // guarded by queue.mu: err is final
}

// flight is a request with all its repetitions.
type flight struct {
	cancel     context.CancelFunc
	passengers int // guarded by queue.mu: entries whose callers wait
}

func newQueue(rt *store.Runtime, instance string) *queue {
	q := &queue{rt: rt, instance: instance}
	weigh := func(e *entry) int { return jobSize(&e.job) }
	q.group = batch.New(sendLanes, callItems, callWeight, weigh, q.flush)
	q.group.Fill()
	return q
}

// queues are those of the instances that somebody enqueues into.
type queues struct {
	rt *store.Runtime

	mu         sync.Mutex
	byInstance map[string]*queue
}

func newQueues(rt *store.Runtime) *queues {
	return &queues{rt: rt, byInstance: map[string]*queue{}}
}

// of returns the queue of an instance, whose name is valid.
func (s *queues) of(instance string) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byInstance[instance]
	if q == nil {
		q = newQueue(s.rt, instance)
		s.byInstance[instance] = q
	}
	return q
}

// wait returns when no request is in flight. Nobody adds anything any more.
func (s *queues) wait() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.byInstance))
	s.mu.Unlock()
	for _, q := range all {
		q.group.Wait()
	}
}

// flush sends entries and gives each its outcome.
func (q *queue) flush(lane int, entries []*entry) {
	// Whoever traces requests finds this one in the trace of its first caller; the caller's end is not that of the request.
	ctx, cancel := context.WithCancel(context.WithoutCancel(entries[0].call.ctx))
	defer cancel()
	l := &q.lanes[lane]
	aboard, jobs := q.board(&flight{cancel: cancel}, entries, l.jobs)
	if len(aboard) == 0 {
		return
	}
	outcome, err := q.request(ctx, &l.Lane, jobs)
	q.land(aboard, outcome, err)
	clear(jobs)
	l.jobs = jobs[:0]
}

// board puts the entries aboard that somebody still waits for, and adds their jobs to some. The others are never sent.
func (q *queue) board(f *flight, entries []*entry, jobs []store.NewJob) ([]*entry, []store.NewJob) {
	q.mu.Lock()
	defer q.mu.Unlock()
	aboard := entries[:0]
	for _, e := range entries {
		if e.left {
			continue
		}
		e.flight, e.sent = f, true
		f.passengers++
		aboard, jobs = append(aboard, e), append(jobs, e.job)
	}
	return aboard, jobs
}

// request makes a request and repeats it until the store has answered, has refused it for good, or nobody waits for the
// outcome any more; for at most sendTime, as a repetition that comes after the lane was forgotten could be accepted a second time.
func (q *queue) request(ctx context.Context, lane *store.Lane, jobs []store.NewJob) (outcome []error, err error) {
	start := time.Now()
	unknown := false // whether a try before may have been accepted
	for try := 1; ; try++ {
		err = guard(func() (err error) {
			outcome, err = q.rt.Enqueue(ctx, lane, q.instance, jobs)
			return err
		})
		if ctx.Err() == nil {
			q.note(err)
		}
		switch {
		case err == nil:
			return outcome, nil
		case refused(err), !rest(ctx, loop.Pause(try, sendPause)):
			// A try before may have been accepted all the same, so the lane's number is not free for other jobs.
			lane.Abandon()
			if unknown && refused(err) {
				err = fmt.Errorf("sent, but whether it was accepted is not known; then refused: %w", err)
			}
			return nil, err
		case passed(start) >= sendTime:
			lane.Abandon()
			return nil, q.unsettled(true, fmt.Errorf("no answer within %v: %w", sendTime, context.DeadlineExceeded), err)
		}
		unknown = true
	}
}

// passed is the time since t, also by the wall clock: the other one stands still while the machine sleeps.
func passed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t))
}

// unsettled is the error of a job that has no outcome, for a reason; trouble is what was wrong with the last try, if there was one.
func (q *queue) unsettled(sent bool, reason, trouble error) error {
	what := "not sent"
	if sent {
		what = "sent, but whether it was accepted is not known"
	}
	err := fmt.Errorf("enqueuing into %s: %s: %w", q.instance, what, reason)
	if trouble != nil {
		err = fmt.Errorf("%w; the last try: %w", err, trouble)
	}
	return err
}

func (q *queue) note(err error) {
	q.mu.Lock()
	q.trouble = err
	q.mu.Unlock()
}

// land gives the entries of an answered request their outcomes, all the same one where err is not nil.
func (q *queue) land(entries []*entry, outcome []error, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, e := range entries {
		e.flight = nil
		if e.left {
			continue
		}
		e.done, e.err = true, err
		if err == nil {
			e.err = outcome[i]
		}
		e.call.answered()
	}
}

// leave gives up an entry that has no outcome yet, for a reason, which becomes its error.
func (e *entry) leave(reason error) {
	q := e.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.done {
		return
	}
	e.done, e.left = true, true
	e.err = q.unsettled(e.sent, reason, q.trouble)
	if e.flight != nil {
		if e.flight.passengers--; e.flight.passengers == 0 {
			e.flight.cancel()
		}
	}
}
