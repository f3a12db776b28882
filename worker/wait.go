package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// How often a Wait looks by itself.
const (
	renewInterest = 20 * time.Second // an interest lapses after a minute
	pollDeaf      = 10 * time.Second // at most, while notifications may be missed: it begins with one, and doubles
)

// Wait returns the job once it is done, dead or cancelled: see its State, and [ResultOf]. It is notified of the end, over one
// connection for all Waits of the client; where a notification is missed it looks by itself, every 20 seconds. A job whose
// instance keeps no ended jobs is kept for a minute when somebody waits for it, but must be there when the Wait begins.
//
// When ctx ends first, Wait returns the last that it has seen of the job, with the error of ctx. Outages of Redis are waited
// out. Only at the beginning, when there is nothing to wait for yet, a server that refuses is an error at once, and one that
// can't be reached is one after about 10 seconds if ctx has no deadline. ErrNotFound if there is no such job, or, with the
// last that was seen of it, if it was deleted meanwhile.
func (c *Client) Wait(ctx context.Context, id uuid.UUID) (store.Job, error) {
	if c.st == nil {
		return store.Job{}, errNoStore
	}
	w := wait{client: c, ctx: ctx, id: id}
	if err := w.find(); err != nil || w.job.State.Terminal() {
		return w.job, err
	}
	wake := c.endings.join(id)
	defer c.endings.leave(id, wake)
	for failures, deaf := 0, 0; ; {
		ended, err := w.look()
		if ended {
			return w.job, err
		}
		pause := renewInterest
		switch {
		case err != nil:
			failures++
			pause = loop.Pause(failures, loop.MaxPause)
		case !c.endings.heard(id):
			failures, deaf = 0, deaf+1
			pause = loop.Pause(deaf+4, pollDeaf)
		default:
			failures, deaf = 0, 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-wake: // heard from now on, or deaf, or it has ended
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return w.job, w.interrupted(err)
		}
	}
}

// wait is a Wait under way.
type wait struct {
	client *Client
	ctx    context.Context
	id     uuid.UUID
	job    store.Job // as it was last seen
}

// find reads the job for the first time.
func (w *wait) find() (err error) {
	start := time.Now()
	_, bounded := w.ctx.Deadline()
	for try := 1; ; try++ {
		if w.job, err = w.get(); err == nil {
			return nil
		}
		switch {
		case errors.Is(err, store.ErrNotFound), refused(err), !bounded && time.Since(start) >= patience:
			return fmt.Errorf("waiting for a job: %w", err)
		case !rest(w.ctx, loop.Pause(try, sendPause)):
			return w.interrupted(err)
		}
	}
}

func (w *wait) get() (store.Job, error) {
	return within(w.ctx, func() (store.Job, error) { return w.client.st.Get(w.ctx, w.id) })
}

// look renews the interest in the job's end and reads the job where it has moved. It reports whether the Wait is over.
func (w *wait) look() (ended bool, err error) {
	instance := w.job.Instance
	state, err := within(w.ctx, func() (store.State, error) { return w.client.st.Runtime().Await(w.ctx, instance, w.id) })
	if err == nil && state != w.job.State {
		var job store.Job
		if job, err = w.get(); err == nil {
			w.job = job
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		return true, fmt.Errorf("waiting for a job that was %s: it was deleted, or has ended unnoticed: %w", w.job.State, err)
	}
	return err == nil && w.job.State.Terminal(), err
}

// interrupted is the error of the context and, where there is one of the last look, of that.
func (w *wait) interrupted(last error) error {
	err := fmt.Errorf("waiting for job %s: %w", w.id, w.ctx.Err())
	if last != nil && !errors.Is(last, w.ctx.Err()) {
		err = fmt.Errorf("%w; the last try: %w", err, last)
	}
	return err
}
