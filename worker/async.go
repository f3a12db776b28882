package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/crash"
	"github.com/stint-go/stint/store"
)

// Future is the result of an async step, which may be yet to come. It belongs to the attempt that made it.
type Future[T any] struct {
	step     *step
	instance string
	child    uuid.UUID
}

// ID is the id of the child: of the job that the step runs as.
func (f *Future[T]) ID() uuid.UUID { return f.child }

// Async runs a step as a job of its own, the child, which another instance may serve. Its record, with all it takes to dispatch the child, is
// written before the child can run; so a later attempt that comes to the name again dispatches nothing, but gets the same child's Future.
// A child that is lost is dispatched again by the sweeper. Nothing waits here: see [Future.Wait].
//
// The child's id follows from the job, the name, and how often the job has been requeued. It runs by the rules of its instance's handler. It is
// cancelled when this job is dead, cancelled or deleted before it, and runs on when this job is done. Of the options ID and Unique are refused.
// An instance that nobody serves is as good as any: the child waits.
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

// AsyncEach is [Async] for many payloads: the children's steps are name/0, name/1 and so on. They are dispatched together: their records are
// written in a request for every 1,000, or for every MiB, and the children enqueued in one for every 250. A later attempt must come with as many payloads, or more.
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

// enqueue gives children to their instance, and waits until they are accepted, or can't be. Those of other attempts may travel with them.
func (a *attempt) enqueue(steps []*step, writes []store.StepWrite) {
	to, run, job := writes[0].Instance, a.feed.run, &a.lease.Job
	one := newCall(len(writes))
	one.ctx = a
	for i := range writes {
		one.add(run.children.of(to), writes[i].Child)
	}
	one.send()
	_ = one.wait() // the entries say more
	failed, why := 0, error(nil)
	for i := range one.entries {
		if err := one.entries[i].err; err != nil && !errors.Is(err, store.ErrExists) {
			failed, why = failed+1, err
			continue
		}
		run.events.emit(ChildDispatched{Instance: job.Instance, Job: job.ID, Step: steps[i].name, Child: writes[i].Child.ID, To: to})
	}
	if failed > 0 {
		a.log().Warn("children could not be enqueued; the sweeper will see to them", "to", to, "children", failed, "err", why)
	}
}

// Wait returns the child's result. As long as that is not there it parks the job instead and returns [ErrParked]: the attempt is over then, the
// worker is free for another job, and when the child has ended the handler is called anew and comes here again. A child that failed is a
// permanent *ChildError; so the job is dead unless its handler does something else about it.
//
// T must be what the child's handler was registered with in [HandleResult]; if the result is no T, that is a *StepError with [ErrStepChanged].
func (f *Future[T]) Wait(ctx context.Context) (T, error) {
	var zero T
	if err := f.mine(ctx); err != nil {
		return zero, err
	}
	if f.step.kept.State == store.StepDispatched {
		return zero, f.step.at.park(store.Wait{Steps: []string{f.step.name}})
	}
	return f.result(ctx, -1)
}

// mine makes sure that a Future is waited for by its own attempt, outside of its steps.
func (f *Future[T]) mine(ctx context.Context) error {
	at, err := attemptOf(ctx)
	if err != nil {
		return err
	}
	if outer, nested := ctx.Value(stepKey{}).(string); nested {
		return refuse(f.step.name, fmt.Errorf("%w: waiting in step %q", ErrNestedStep, outer))
	}
	if at != f.step.at {
		return refuse(f.step.name, fmt.Errorf("%w: the future is another attempt's", ErrNoJob))
	}
	return at.live()
}

// result is that of a child that has ended.
func (f *Future[T]) result(ctx context.Context, index int) (out T, err error) {
	err = f.step.around(ctx, f.step.kept, func(context.Context) (err error) { out, err = f.replay(index); return err })
	return out, err
}

func (f *Future[T]) replay(index int) (T, error) {
	var out, zero T
	s := f.step
	if s.kept.State == store.StepFailed {
		return zero, permanentChild(f.failure(index))
	}
	if s.kept.Result == nil {
		if _, none := any(out).(struct{}); !none {
			return zero, refuse(s.name, fmt.Errorf("%w: the child has no result", ErrStepChanged))
		}
	} else {
		kept, err := s.read()
		if err != nil {
			return zero, err
		}
		if err := decodeKept(kept, "the child's result", &out); err != nil {
			return zero, refuse(s.name, err)
		}
	}
	s.at.feed.run.events.emit(StepReplayed{Instance: s.instance(), Job: s.job(), Step: s.name})
	return out, nil
}

func (f *Future[T]) failure(index int) *ChildError {
	k := &f.step.kept
	return &ChildError{Step: f.step.name, Index: index, ID: f.child, Instance: f.instance, Fate: k.Fate, Reason: k.Error}
}

// WaitAll returns the results of all children, in the order of fs. As long as one is missing and none has failed it parks the job, once for
// all of them, as [Future.Wait] does for one. With the first that fails it returns a permanent *ChildrenError, and beside it the
// results there are; where there is none the result is zero.
func WaitAll[T any](ctx context.Context, fs []*Future[T]) ([]T, error) {
	results := make([]T, len(fs))
	var open []int
	var names []string
	var failed []*ChildError
	for i, f := range fs {
		if err := f.mine(ctx); err != nil {
			return nil, err
		}
		switch f.step.kept.State {
		case store.StepDispatched:
			open, names = append(open, i), append(names, f.step.name)
		case store.StepFailed:
			failed = append(failed, f.failure(i))
		}
	}
	if len(open) > 0 && len(failed) == 0 {
		return nil, fs[0].step.at.park(store.Wait{Steps: names})
	}
	for i, f := range fs {
		if f.step.kept.State != store.StepCompleted {
			continue
		}
		var err error
		if results[i], err = f.result(ctx, i); err != nil {
			return results, err
		}
	}
	if len(failed) > 0 {
		return results, permanentChild(&ChildrenError{failed, open})
	}
	return results, nil
}
