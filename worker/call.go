package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/store"
)

// call is what one caller waits for: entries for one queue or for several.
type call struct {
	ctx     context.Context
	entries []entry // has its room from the start: their addresses are in use
	open    atomic.Int64
	done    chan struct{} // has one when none is open
	patient *time.Timer   // of a caller without a deadline
}

func newCall(room int) *call {
	return &call{entries: make([]entry, 0, room), done: make(chan struct{}, 1)}
}

// reset makes a call that was waited for to its end as good as new.
func (c *call) reset() {
	clear(c.entries)
	c.ctx, c.entries = nil, c.entries[:0]
}

func (c *call) add(q *queue, job store.NewJob) {
	c.entries = append(c.entries, entry{job: job, queue: q, call: c})
}

// send puts the entries into their queues, those for one queue next to each other.
func (c *call) send() {
	c.open.Store(int64(len(c.entries)))
	if len(c.entries) == 1 {
		c.entries[0].queue.group.Add(&c.entries[0])
		return
	}
	split := map[*queue][]*entry{}
	for i := range c.entries {
		e := &c.entries[i]
		split[e.queue] = append(split[e.queue], e)
	}
	for q, entries := range split {
		q.group.AddAll(entries)
	}
}

func (c *call) answered() {
	if c.open.Add(-1) == 0 {
		c.done <- struct{}{}
	}
}

// wait returns nil when every entry has its outcome. When the context ends before that or, where it has no deadline, the
// caller's patience does, the entries without one are left, and wait returns why.
func (c *call) wait() (reason error) {
	if len(c.entries) == 0 {
		return nil
	}
	var impatient <-chan time.Time
	if _, ok := c.ctx.Deadline(); !ok {
		if c.patient == nil {
			c.patient = time.NewTimer(patience)
		} else {
			c.patient.Reset(patience)
		}
		defer c.patient.Stop()
		impatient = c.patient.C
	}
	select {
	case <-c.done:
		return nil
	case <-c.ctx.Done():
		reason = c.ctx.Err()
	case <-impatient:
		reason = fmt.Errorf("no answer within %v: %w", patience, context.DeadlineExceeded)
	}
	for i := range c.entries {
		c.entries[i].leave(reason)
	}
	return reason
}
