package store

import "strconv"

// kids sees to the open children: it asks each of their instances what has become of them.
func (w *sweep) kids() {
	for instance, some := range byInstance(w.open) {
		for len(some) > 0 {
			n, err := w.fates(instance, some)
			if w.note(err); err != nil || n == 0 {
				break
			}
			some = some[n:]
		}
	}
	for _, k := range w.broken {
		w.fail(k, errStep.Error())
	}
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
		reply, err := w.r.s.run(w.ctx, scriptFates, w.r.s.instanceKeys(instance), args...)
		if err != nil {
			return err
		}
		p := reader{v: reply}
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

func (k *kid) step() Step {
	return Step{Job: k.parent.ID, Name: k.parent.Step, Kind: AsyncStep, State: StepDispatched, Generation: k.parent.Generation,
		Child: k.child, Instance: k.instance}
}

// recall dispatches children again that are nowhere, as many as fit into an answer; those that have been too often fail.
func (w *sweep) recall(instance string, kids []kid) (int, error) {
	var jobs []NewJob
	var again []Step
	n := 0
	err := w.r.s.do(w.ctx, "dispatching children again", func() error {
		reply, err := w.r.s.run(w.ctx, scriptRecall, w.r.s.instanceKeys(w.instance), members([]any{MaxSweeps}, kids)...)
		if err != nil {
			return err
		}
		p := reader{v: reply}
		for l := p.list(); l.more() && n < len(kids); n++ {
			times, body, k := int(l.int()), l.str(), kids[n]
			step := k.step()
			step.Sweeps = times
			if times == 0 {
				continue // it has its outcome
			}
			if len(body) < idLen {
				w.fail(k, "the child was nowhere, although it had been dispatched "+strconv.Itoa(MaxSweeps)+" times again")
				continue
			}
			step.again = body[idLen:]
			ms, _ := strconv.ParseInt(k.member[kidHead-13:kidHead], 10, 64)
			step.Dispatched = fromMS(ms)
			job, err := step.reborn()
			if err != nil {
				w.fail(k, err.Error())
				continue
			}
			jobs, again = append(jobs, job), append(again, step)
		}
		return nil
	})
	if err != nil || len(jobs) == 0 {
		return n, err
	}
	if err := w.r.s.lanes.use(instance, func(l *Lane) error { _, err := w.r.Enqueue(w.ctx, l, instance, jobs); return err }); err != nil {
		return n, err
	}
	w.out.Again = append(w.out.Again, again...)
	return n, nil
}

// fail gives the step of a child up.
func (w *sweep) fail(k kid, reason string) {
	o := Outcome{Child: k.child, Instance: k.instance, Parent: k.parent, Fate: FateLost, Text: reason, anyway: true}
	err := w.r.deliver(w.ctx, w.instance, []Outcome{o})
	if err == nil {
		err = w.r.forget(w.ctx, w.instance, []kid{k})
	}
	if w.note(err); err == nil {
		step := k.step()
		step.State, step.Fate, step.Error = StepFailed, FateLost, reason
		w.out.Lost = append(w.out.Lost, step)
	}
}
