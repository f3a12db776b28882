package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/crash"
	"github.com/stint-go/stint/store"
)

// Async runs a step as a job of its own, the child, which another instance may serve. Its record, with all it takes to dispatch the child, is
// written before the child can run; so a later attempt that comes to the name again dispatches nothing, but gets the same child's Future.
// A child that is lost is dispatched again by the sweeper. Nothing waits here: see [Future.Wait].
//
// The child's id follows from the job, the name, and how often the job has been requeued. It runs by the rules of its instance's handler. It is
// cancelled when this job is dead, cancelled or deleted before it, and runs on when this job is done. Of the options ID and Unique are refused.
// An instance that nobody serves is as good as any: the child waits. One whose server does not answer holds Async up for 10 s at most: the sweeper
// dispatches the child when it does.
//
// The Hooks of the supervisor's [Config] see the child, once, before its record is written; those of a [Client] do not. An error of theirs is
// returned in a *StepError, which is permanent if the error is.
func Async[T any](ctx context.Context, name, instance string, payload any, opts ...EnqueueOption) (*Future[T], error) {
	s, err := enter(ctx, name)
	if err != nil {
		return nil, err
	}
	fs, err := dispatch[T](ctx, []*step{&s}, instance, []any{payload}, opts)
	if err != nil {
		return nil, err
	}
	return fs[0], nil
}

// AsyncEach is [Async] for many payloads: the children's steps are name/0, name/1 and so on. They are dispatched together: their
// records are written in a request for every 1,000, or for every MiB, and the children enqueued in one for every 250. A later
// attempt must come with as many payloads, or more.
func AsyncEach[T, P any](ctx context.Context, name, instance string, payloads []P, opts ...EnqueueOption) ([]*Future[T], error) {
	steps, all := make([]*step, len(payloads)), make([]any, len(payloads))
	for i := range payloads {
		s, err := enter(ctx, name+"/"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		steps[i], all[i] = &s, payloads[i]
	}
	return dispatch[T](ctx, steps, instance, all, opts)
}

// dispatch makes the children that are not there yet, and Futures of all.
func dispatch[T any](ctx context.Context, steps []*step, instance string, payloads []any, opts []EnqueueOption) ([]*Future[T], error) {
	fs := make([]*Future[T], len(steps))
	var fresh []*step
	var writes []store.StepWrite
	for i, s := range steps {
		fs[i] = &Future[T]{s, instance, s.kept.Child}
		if s.found {
			if s.kept.Kind != store.AsyncStep {
				return nil, refuse(s.name, fmt.Errorf("%w: it was of the kind %q", ErrStepChanged, s.kept.Kind))
			}
			fs[i].instance = s.kept.Instance
			continue
		}
		w, err := s.child(ctx, Request{instance, payloads[i], opts})
		if err != nil {
			return nil, err
		}
		fs[i].instance, fs[i].child = w.Instance, w.Child.ID
		fresh, writes = append(fresh, s), append(writes, w)
	}
	if len(fresh) > 1 {
		if err := fresh[0].room(writes); err != nil {
			return nil, err
		}
	}
	for len(fresh) > 0 {
		n := fitting(writes)
		if err := send(ctx, fresh[:n], writes[:n]); err != nil {
			return nil, err
		}
		fresh, writes = fresh[n:], writes[n:]
	}
	return fs, nil
}

// fitting is how many of the writes, of one instance, make one request.
func fitting(writes []store.StepWrite) int {
	n, size := 0, 0
	for ; n < len(writes) && n < store.MaxCall; n++ {
		size += jobSize(&writes[n].Child)
		if n > 0 && (size > callWeight || writes[n].Instance != writes[0].Instance) {
			break
		}
	}
	return n
}

// room refuses what can't fit into the limits of the job, before the first of it is dispatched. What may fit is the store's to decide.
func (s *step) room(writes []store.StepWrite) error {
	limits, size := s.at.feed.reg.steps, 0
	for i := range writes {
		size += len(writes[i].Name) + len(writes[i].Child.Payload)
	}
	if n := s.at.remember().count() + len(writes); n > limits.Count {
		return refuse(s.name, &store.StepLimitError{What: "steps", Max: limits.Count, Got: n})
	}
	if size > limits.Bytes {
		return refuse(s.name, &store.StepLimitError{What: "bytes of steps", Max: limits.Bytes, Got: size})
	}
	return nil
}

// child is the record of the step. A hook's error is the hook's to call permanent; any other is.
func (s *step) child(ctx context.Context, r Request) (store.StepWrite, error) {
	r, err := hooked(context.WithValue(ctx, stepKey{}, s.name), s.at.feed.run.cfg.Hooks, r)
	if err != nil {
		return store.StepWrite{}, &StepError{s.name, err}
	}
	var own enqueuing
	for _, o := range r.Options {
		if o != nil {
			o(&own)
		}
	}
	if own.job.ID != uuid.Nil || own.job.Unique != (store.Unique{}) {
		return store.StepWrite{}, refuse(s.name, invalid("a child can have no ID and no Unique of its own"))
	}
	job, err := newJob(r.Instance, r.Payload, r.Options)
	if err != nil {
		return store.StepWrite{}, refuse(s.name, err)
	}
	parent := &s.at.lease.Job
	gen := s.at.remember().generation()
	job.ID, job.Fresh = store.ChildID(parent, s.name, gen), false
	job.Parent = store.Parent{ID: parent.ID, Instance: parent.Instance, Step: s.name, Generation: gen}
	return store.StepWrite{Name: s.name, Kind: store.AsyncStep, Instance: r.Instance, Child: job}, nil
}

// send writes the records and enqueues the children. What can't be enqueued now the sweeper dispatches later.
func send(ctx context.Context, steps []*step, writes []store.StepWrite) error {
	at := steps[0].at
	crash.At(ctx, steps[0].name, crash.BeforeStep)
	kept, err := at.write(writes...)
	if limit, ok := err.(*store.StepLimitError); ok { //nolint:errorlint // it is returned as it is
		return refuse(steps[0].name, limit)
	}
	if err != nil {
		return err
	}
	for i := range steps {
		steps[i].kept, steps[i].found = kept[i], true
	}
	at.feed.sweepIn(sweepGrace)
	crash.At(ctx, steps[0].name, crash.AfterRecord)
	at.enqueue(steps, writes)
	crash.At(ctx, steps[0].name, crash.AfterCommit)
	return nil
}

// enqueue gives children to their instance, and waits until they are accepted, or can't be: no longer than somebody who enqueues a job
// without a deadline does, though the attempt has a later one. Those of other attempts may travel with them.
func (a *attempt) enqueue(steps []*step, writes []store.StepWrite) {
	to, run, job := writes[0].Instance, a.feed.run, &a.lease.Job
	ctx, cancel := context.WithTimeout(a, patience)
	defer cancel()
	one := newCall(len(writes))
	one.ctx = ctx
	for i := range writes {
		one.add(run.children.of(to), writes[i].Child)
	}
	err := run.silence.ask(to, func() error {
		one.send()
		err := one.wait()
		if a.Err() != nil {
			return nil // it is the attempt that is over: nobody knows about the server
		}
		return err
	})
	if err != errSilent { //nolint:errorlint // it is ours, and never wrapped
		err = nil // the entries say more
	}
	failed, why := 0, error(nil)
	for i := range one.entries {
		if err := cmp.Or(one.entries[i].err, err); err != nil && !errors.Is(err, store.ErrExists) {
			failed, why = failed+1, err
			continue
		}
		run.events.emit(ChildDispatched{Instance: job.Instance, Job: job.ID, Step: steps[i].name, Child: writes[i].Child.ID, To: to})
	}
	if failed > 0 && err == nil { // who has asked has told it
		a.log().Warn("children could not be enqueued; the sweeper will see to them", "to", to, "children", failed, "err", why)
	}
}
