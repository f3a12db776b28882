package worker

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// Request is a job to be enqueued together with others: what Enqueue takes.
type Request struct {
	Instance string
	Payload  any
	Options  []EnqueueOption
}

// Result is what became of a Request: what Enqueue returns.
type Result struct {
	ID  uuid.UUID
	Err error
}

// EnqueueMany gives many jobs to their instances, as [Client.Enqueue] does with one, at the cost of a request for every
// 250 of an instance, or for every MiB. There may be any number; they are encoded and sent by and by, and a single
// Enqueue beside them does not wait for all of them.
//
// The results are in the order of reqs. Each job is accepted or not by itself, so that one that is invalid or exists already
// leaves the others alone. The error is nil only if all were accepted; otherwise it says how many were not, and errors.Is and
// errors.As find the errors of the jobs in it. Once ctx ends, or 10 seconds pass without an answer where it has no
// deadline, the rest is not sent; their results say so.
//
// Jobs of an instance and a priority get their places about in the order of reqs: in that order within a request, but two
// requests are in flight at a time, so that neighbouring requests may swap.
func (c *Client) EnqueueMany(ctx context.Context, reqs []Request) ([]Result, error) {
	if c.st == nil {
		return nil, errNoStore
	}
	b := bulk{client: c, ctx: ctx, reqs: reqs, results: make([]Result, len(reqs))}
	next := 0
	for next < len(reqs) && b.stopped == nil {
		next = b.send(next)
		if len(b.ahead) == bulkAhead {
			b.receive()
		}
	}
	for len(b.ahead) > 0 {
		b.receive()
	}
	for ; next < len(reqs); next++ {
		b.results[next].Err = fmt.Errorf("enqueuing into %s: not sent: %w", reqs[next].Instance, b.stopped)
	}
	return b.results, b.verdict()
}

// bulkAhead is how many parts of a bulk are under way: enough to keep both lanes of a queue busy, and so few that others
// who enqueue need not wait long.
const bulkAhead = 3

// bulk is an EnqueueMany under way. It goes through the requests in parts, each of which would make one request to Redis
// if all were for one instance.
type bulk struct {
	client  *Client
	ctx     context.Context
	reqs    []Request
	results []Result
	ahead   []part // sent, and not received
	stopped error  // why nothing more is sent
}

type part struct {
	*call
	of []int // for each entry, the index of its request
}

// send encodes and sends the next part and returns where the one after that starts.
func (b *bulk) send(next int) int {
	if b.stopped = b.ctx.Err(); b.stopped != nil {
		return next
	}
	room := min(callItems, len(b.reqs)-next)
	p := part{newCall(room), make([]int, 0, room)}
	p.ctx = b.ctx
	for weight := 0; next < len(b.reqs) && len(p.of) < room && weight < callWeight; next++ {
		r := &b.reqs[next]
		instance, job, err := b.client.prepare(b.ctx, *r)
		if err != nil {
			b.results[next].Err = err
			continue
		}
		b.results[next].ID = job.ID
		p.add(b.client.queues.of(instance), job)
		p.of = append(p.of, next)
		weight += jobSize(&job)
	}
	if len(p.of) > 0 {
		p.call.send()
		b.ahead = append(b.ahead, p)
	}
	return next
}

// receive waits for the part that was sent first.
func (b *bulk) receive() {
	p := b.ahead[0]
	b.ahead = b.ahead[1:]
	if err := p.wait(); err != nil {
		b.stopped = err
	}
	for k, i := range p.of {
		if b.results[i].Err = p.entries[k].err; b.results[i].Err == nil {
			b.client.accepted(p.entries[k].queue.instance, b.results[i].ID)
		}
	}
}

// verdict sums up.
func (b *bulk) verdict() error {
	e := &bulkError{all: len(b.reqs)}
	for i := range b.results {
		if err := b.results[i].Err; err != nil {
			e.errs = append(e.errs, err)
		}
	}
	if len(e.errs) == 0 {
		return nil
	}
	return e
}

// bulkError is the errors of the jobs that were not accepted.
type bulkError struct {
	all  int
	errs []error
}

func (e *bulkError) Error() string {
	return fmt.Sprintf("%d of %d jobs were not accepted, the first for: %v", len(e.errs), e.all, e.errs[0])
}

func (e *bulkError) Unwrap() []error { return e.errs }
