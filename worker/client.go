package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// ClientConfig configures a Client; the zero value is ready for use.
type ClientConfig struct {
	// OnEvent, when set, hears of each job that was accepted, as JobEnqueued, on the goroutine that enqueued it and before
	// Enqueue returns: from several at once. Its panic is logged and does no other harm; its runtime.Goexit ends that goroutine, as
	// t.FailNow should. It does not hear of a job whose outcome is not known.
	OnEvent func(Event)
	// Hooks see each job before it is encoded, one after the other; nil ones are left out.
	Hooks []EnqueueHook
	// Logger is told of what has nobody to be returned to: a panic of OnEvent. By default slog.Default().
	Logger *slog.Logger
}

// Client enqueues jobs, waits for them and cancels them. It is safe for concurrent use; one is enough for a process, and the more
// goroutines share it the less each job costs: what is enqueued at the same time travels together. It needs no closing. A call
// returns when its context ends; a request to a server that does not answer then goes on in the background, for as long as the Redis client's
// ReadTimeout lets it.
type Client struct {
	st      *store.Store
	cfg     ClientConfig
	endings endings
	queues  *queues   // nil without a store
	spare   sync.Pool // of *call with room for one
}

// NewClient returns a Client that works on a store, which stays the caller's to close.
func NewClient(st *store.Store, cfg ClientConfig) *Client {
	cfg.Logger = harmless(cmp.Or(cfg.Logger, slog.Default()))
	cfg.Hooks = ownHooks(cfg.Hooks)
	c := &Client{st: st, cfg: cfg}
	if st != nil {
		c.queues = newQueues(st.Runtime())
		c.endings.init(st.Runtime())
	}
	return c
}

var errNoStore = fmt.Errorf("%w: the client's store is nil", store.ErrInvalid)

// Enqueue gives a job to an instance and returns its id when Redis has accepted it. The payload is anything that
// encoding/json can write, at most 1 MiB as JSON; a json.RawMessage is taken as it is and must be JSON, any other []byte
// becomes base64 text.
//
// What can never succeed is refused before anything is sent, with ErrInvalid: a bad name, payload or option. A server that
// refuses is ErrServer, a job that is there already is ErrExists, and one whose key another has is ErrDuplicate (see [Unique]);
// none of them is tried again.
//
// When Redis can't be reached, Enqueue tries again until ctx ends, and through the Redis client's own timeouts and lost
// replies the job is accepted once. It returns as soon as ctx ends, with its error and that of the last try. A ctx without
// a deadline is taken as one of 10 seconds: nobody waits for ever for a server that is not there. What was sent is not tried for longer
// than 50 minutes, whatever the deadline: Redis tells a request that comes again from a new one for an hour. The text says whether the
// job was sent; if it was, it may have been accepted, or be within moments. Then the id is returned all the same: enqueuing
// again with [ID] settles it, nil and ErrExists both meaning that the job is there.
//
// The context of one caller has no effect on the jobs of others. What is enqueued into an instance while a request for it is under way waits
// for 5 ms at most, to be more; and for as long as two are under way.
func (c *Client) Enqueue(ctx context.Context, instance string, payload any, opts ...EnqueueOption) (uuid.UUID, error) {
	if c.st == nil {
		return uuid.Nil, errNoStore
	}
	instance, job, err := c.prepare(ctx, Request{instance, payload, opts})
	if err != nil {
		return uuid.Nil, err
	}
	if err := ctx.Err(); err != nil {
		return uuid.Nil, fmt.Errorf("enqueuing into %s: not sent: %w", instance, err)
	}
	if err := c.sendOne(ctx, instance, job); err != nil {
		return job.ID, err
	}
	c.accepted(instance, job.ID)
	return job.ID, nil
}

// sendOne sends a job and returns what became of it.
func (c *Client) sendOne(ctx context.Context, instance string, job store.NewJob) error {
	one, ok := c.spare.Get().(*call)
	if !ok {
		one = newCall(1)
	}
	one.ctx = ctx
	one.add(c.queues.of(instance), job)
	one.send()
	left := one.wait()
	err := one.entries[0].err
	if left == nil { // nobody else has it any more
		one.reset()
		c.spare.Put(one)
	}
	return err
}

// accepted tells the listener of a job.
func (c *Client) accepted(instance string, job uuid.UUID) {
	if c.cfg.OnEvent == nil {
		return
	}
	e := JobEnqueued{Instance: instance, Job: job}
	err := catch(func() error { c.cfg.OnEvent(e); return nil })
	if p, ok := errors.AsType[*PanicError](err); ok {
		c.cfg.Logger.Error("the client's listener panicked", "event", fmt.Sprintf("%T", e), "panic", p.Value, "stack", string(p.Stack))
	}
}

// Cancel ends a job: at once when it waits, and by cancelling the context of its handler, with the cause ErrCancelled,
// while it runs. That job is cancelled when the handler returns an error, or when its lease runs out, and done if the
// handler returns nil all the same. ErrNotFound and ErrTerminal where there is nothing to cancel. It returns as soon as ctx ends; then
// the job may be cancelled all the same.
func (c *Client) Cancel(ctx context.Context, id uuid.UUID) error {
	if c.st == nil {
		return errNoStore
	}
	_, err := within(ctx, func() (struct{}, error) { return struct{}{}, c.st.Cancel(ctx, id) })
	return err
}
