package store

import (
	"errors"
	"strconv"
	"time"
)

// kids sees to the open children: it asks each of their instances what has become of them.
func (w *sweep) kids() {
	for instance, some := range byInstance(w.open) {
		_ = w.with(instance, func() error { return w.allFates(instance, some) })
	}
	for _, k := range w.broken {
		w.fail(k, errStep.Error())
	}
}

// allFates sees to children of one instance, some after the others.
func (w *sweep) allFates(instance string, kids []kid) error {
	for len(kids) > 0 {
		n, err := w.fates(instance, kids)
		if err != nil {
			return err
		}
		kids = kids[max(n, 1):]
	}
	return nil
}

// fates asks for as many as fit into an answer, and acts on it. It returns how many those were.
func (w *sweep) fates(instance string, kids []kid) (int, error) {
	var ended []Outcome
	var found []Step
	var nowhere []kid
	n := 0
	err := w.r.s.do(w.ctx, "looking for children", func() error {
		args := make([]any, len(kids))
		for i := range kids {
			args[i] = kids[i].child[:]
		}
		p, err := w.r.s.run(w.ctx, scriptFates, w.r.s.instanceKeys(instance), args...)
		if err != nil {
			return err
		}
		for l := p.list(); l.more() && n < len(kids); n++ {
			fate, text, k := l.str(), l.str(), kids[n]
			switch fate {
			case "w":
			case "n":
				nowhere = append(nowhere, k)
			default:
				ended = append(ended, Outcome{Child: k.child, Instance: instance, Parent: k.parent, Fate: Fate(fate[0]), Text: text})
				found = append(found, k.step())
			}
		}
		return nil
	})
	if err == nil && len(ended) > 0 {
		if err = w.r.Relay(w.ctx, ended); err == nil {
			w.out.Found = append(w.out.Found, found...)
		}
	}
	for err == nil && len(nowhere) > 0 {
		var m int
		m, err = w.recall(instance, nowhere)
		nowhere = nowhere[min(max(m, 1), len(nowhere)):]
	}
	return n, err
}

// dispatched is when the child was, at first.
func (k *kid) dispatched() time.Time { return parseMS(k.member[kidHead-13 : kidHead]) }

func (k *kid) step() Step {
	return Step{Job: k.parent.ID, Name: k.parent.Step, Kind: AsyncStep, State: StepDispatched, Generation: k.parent.Generation,
		Child: k.child, Instance: k.instance}
}

// recall dispatches children again that are nowhere, as many as fit into an answer; those that have been too often fail.
func (w *sweep) recall(instance string, kids []kid) (int, error) {
	var jobs []NewJob
	var again []Step
	var asked []kid // those of jobs
	n := 0
	err := w.r.s.do(w.ctx, "looking up children to be dispatched again", func() error {
		p, err := w.r.s.run(w.ctx, scriptRecall, w.r.s.instanceKeys(w.instance), members([]any{MaxSweeps, 0}, kids)...)
		if err != nil {
			return err
		}
		for l := p.list(); l.more() && n < len(kids); n++ {
			times, body, k := int(l.int()), l.str(), kids[n]
			if times == 0 {
				continue // it has its outcome
			}
			if len(body) < idLen {
				w.fail(k, "the child was nowhere, although it had been dispatched "+strconv.Itoa(MaxSweeps)+" times again")
				continue
			}
			step := k.step()
			step.Sweeps, step.again, step.Dispatched = times, body[idLen:], k.dispatched()
			job, err := step.reborn()
			if err == nil {
				err = job.validate()
			}
			if err != nil {
				w.fail(k, err.Error())
				continue
			}
			jobs, again, asked = append(jobs, job), append(again, step), append(asked, k)
		}
		return nil
	})
	if err != nil || len(jobs) == 0 {
		return n, err
	}
	return n, w.dispatch(instance, jobs, again, asked)
}

// dispatch enqueues children, and counts that: only what was done, lest a server that refuses it for a while be taken for children that vanish.
func (w *sweep) dispatch(instance string, jobs []NewJob, again []Step, kids []kid) error {
	var outcome []error
	err := w.r.s.lanes.use(instance, func(l *Lane) (err error) {
		outcome, err = w.r.Enqueue(w.ctx, l, instance, jobs)
		return err
	})
	if err != nil {
		return err
	}
	var done []kid
	for i, k := range kids {
		switch {
		case outcome[i] == nil:
			done, w.out.Again = append(done, k), append(w.out.Again, again[i])
		case !errors.Is(outcome[i], ErrExists): // else it has turned up
			w.note(instance, outcome[i])
		}
	}
	if len(done) == 0 {
		return nil
	}
	return w.r.s.do(w.ctx, "counting children dispatched again", func() error {
		_, err := w.r.s.run(w.ctx, scriptRecall, w.r.s.instanceKeys(w.instance), members([]any{MaxSweeps, 1}, done)...)
		return err
	})
}

// fail gives the step of a child up.
func (w *sweep) fail(k kid, reason string) {
	o := Outcome{Child: k.child, Instance: k.instance, Parent: k.parent, Fate: FateLost, Text: reason, anyway: true}
	_, err := w.r.deliver(w.ctx, w.instance, []Outcome{o})
	if err == nil {
		err = w.r.forget(w.ctx, w.instance, []kid{k})
	}
	if w.note(w.instance, err); err == nil {
		step := k.step()
		step.State, step.Fate, step.Error = StepFailed, FateLost, reason
		w.out.Lost = append(w.out.Lost, step)
	}
}
