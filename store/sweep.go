package store

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// How Sweep goes.
const (
	sweepMost = 200              // what is taken at a time
	sweepLate = 10 * time.Minute // the most between two looks at an open child
	sweepTime = 5 * time.Second  // for what is to be done with other instances, whose servers may be away
)

// Swept tells what a Sweep has done.
type Swept struct {
	Woken []uuid.UUID // parked jobs whose time had come: they are todo
	Again []Step      // steps whose child was nowhere, and was dispatched again
	Lost  []Step      // steps whose child was nowhere too often, or whose record could not be read: they failed
	Found []Step      // steps whose child had ended without its outcome having arrived: it has now
	Next  time.Duration
	Err   error            // the last of what did not work, and comes again later
	Asked map[string]error // how it went with each instance that children or parents are in and that had to be asked; nil: well

	untold map[uuid.UUID]error // why the parent, or children, of these jobs have not been told of their end
}

// Sweep brings back what a crash left of an instance's parked jobs and children: it wakes the parked jobs whose time has come, relays
// outcomes that are still in the outbox, dispatches children again that are nowhere, and cancels those of parents that were given up.
// It looks at what is due of these only, some 200 at a time; Next says when there is more, 0 at once, negative never. What can't be
// done, for instance since another server is down, comes again later: the error returned is of this instance alone, and the others take 5 s
// in all.
func (r *Runtime) Sweep(ctx context.Context, instance string) (Swept, error) {
	return r.sweepFor(ctx, instance, nil)
}

// sweepFor does of a Sweep what tells the families of these jobs of their end: nothing else that is due is touched. Without jobs it does all.
func (r *Runtime) sweepFor(ctx context.Context, instance string, ids []uuid.UUID) (Swept, error) {
	w := sweep{r: r, ctx: ctx, instance: instance, ids: ids, out: Swept{Asked: map[string]error{}}}
	err := r.s.do(ctx, "sweeping", w.take)
	if err != nil {
		return Swept{}, err
	}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(ctx, sweepTime)
	defer cancel()
	w.strays()
	w.relays()
	w.kids()
	return w.out, nil
}

// sweep is a Sweep under way.
type sweep struct {
	r        *Runtime
	ctx      context.Context
	instance string
	ids      []uuid.UUID // see sweepFor
	out      Swept

	open    []kid
	broken  []kid
	relayed []Outcome
	stray   map[byte][]kid // by what is to become of them
}

// with calls f, which sees to the families that the instance has with one other, and notes how that went. Each gets half of the time that is
// left: so those whose server is away leave some to the others.
func (w *sweep) with(other string, f func() error) error {
	whole := w.ctx
	by, _ := whole.Deadline()
	ctx, cancel := context.WithTimeout(whole, time.Until(by)/2)
	defer cancel()
	w.ctx = ctx
	err := f()
	w.ctx = whole
	w.note(other, err)
	return err
}

// note notes how something went that was to be done in an instance.
func (w *sweep) note(in string, err error) {
	w.out.Err = cmp.Or(err, w.out.Err)
	w.out.Asked[in] = cmp.Or(err, w.out.Asked[in])
}

// untold notes that the end of a job could not be told.
func (w *sweep) untold(job uuid.UUID, err error) {
	if w.out.untold == nil {
		w.out.untold = map[uuid.UUID]error{}
	}
	w.out.untold[job] = err
}

// take asks what there is to do.
func (w *sweep) take() error {
	p, err := w.r.s.run(w.ctx, scriptSweep, w.r.s.instanceKeys(w.instance),
		raw([]any{sweepMost, sweepLate.Milliseconds(), rand.IntN(256)}, w.ids)...)
	if err != nil {
		return err
	}
	w.out.Next, w.out.Woken = millis(p.int()), p.ids()
	for l := p.list(); l.more(); {
		k, err := readKid(l.str(), w.instance)
		switch readable := l.int() == 1; {
		case err != nil:
			w.note(w.instance, err)
		case readable:
			w.open = append(w.open, k)
		default:
			w.broken = append(w.broken, k)
		}
	}
	for l := p.list(); l.more(); {
		var o Outcome
		copy(o.Child[:], l.str())
		if entry := l.str(); !o.read(entry) {
			w.relayed = append(w.relayed, Outcome{Child: o.Child, Instance: w.instance})
		} else {
			o.Instance = w.instance
			w.relayed = append(w.relayed, o)
		}
	}
	w.stray = map[byte][]kid{}
	for l := p.list(); l.more(); {
		k, err := readKid(l.str(), w.instance)
		fate := l.str()
		if w.note(w.instance, err); err == nil {
			w.stray[fate[0]] = append(w.stray[fate[0]], k)
		}
	}
	return nil
}

// read reads an entry of the outbox.
func (o *Outcome) read(entry string) bool {
	at := 1
	for at < len(entry) && entry[at] != ' ' {
		at++
	}
	if at >= len(entry) {
		return false
	}
	n, err := strconv.Atoi(entry[1:at])
	rest := entry[at+1:]
	if err != nil || n < 0 || n > len(rest) {
		return false
	}
	o.Fate, o.Parent, o.Text = Fate(entry[0]), parentOf(rest[:n]), rest[n:]
	return o.Parent.ID != uuid.Nil
}

// relays brings outcomes to their parents. An entry that can't be read is taken out.
func (w *sweep) relays() {
	good := map[string][]Outcome{} // by where the parents are, which may be on another server
	var bad []uuid.UUID
	for _, o := range w.relayed {
		if o.Parent.ID == uuid.Nil {
			bad = append(bad, o.Child)
		} else {
			good[o.Parent.Instance] = append(good[o.Parent.Instance], o)
		}
	}
	for instance, some := range good {
		if err := w.with(instance, func() error { return w.r.Relay(w.ctx, some) }); err != nil {
			for i := range some {
				w.untold(some[i].Child, err)
			}
		}
	}
	if len(bad) > 0 {
		w.note(w.instance, w.r.settle(w.ctx, w.instance, bad, false))
	}
}

// strays cancels the children of parents that were given up, and lets go those of parents that are done: when they are there.
func (w *sweep) strays() {
	for fate, kids := range w.stray {
		for instance, some := range byInstance(kids) {
			if err := w.with(instance, func() error { return w.strayed(fate, instance, some) }); err != nil {
				for i := range some {
					w.untold(some[i].parent.ID, err)
				}
			}
		}
	}
}

func (w *sweep) strayed(fate byte, instance string, kids []kid) (err error) {
	ids := make([]uuid.UUID, len(kids))
	for i := range kids {
		ids[i] = kids[i].child
	}
	if fate == 'c' {
		err = w.r.cancelAll(w.ctx, instance, ids)
	} else if err = w.allFates(instance, kids); err == nil { // one that is nowhere is to run as well
		err = w.r.settle(w.ctx, instance, ids, true)
	}
	if err != nil {
		return err
	}
	return w.r.forget(w.ctx, w.instance, kids)
}

func byInstance(kids []kid) map[string][]kid {
	m := map[string][]kid{}
	for _, k := range kids {
		m[k.instance] = append(m[k.instance], k)
	}
	return m
}

// cancelAll cancels jobs of one instance, wherever they are.
func (r *Runtime) cancelAll(ctx context.Context, instance string, ids []uuid.UUID) error {
	return r.s.do(ctx, "cancelling children", func() error {
		_, err := r.s.run(ctx, scriptCancel, r.s.instanceKeys(instance), raw(nil, ids)...)
		return err
	})
}

// forget takes children off the list of open ones.
func (r *Runtime) forget(ctx context.Context, instance string, kids []kid) error {
	return r.s.do(ctx, "forgetting children", func() error {
		_, err := r.s.run(ctx, scriptForget, r.s.instanceKeys(instance), members(nil, kids)...)
		return err
	})
}

func members(args []any, kids []kid) []any {
	for i := range kids {
		args = append(args, kids[i].member)
	}
	return args
}
