package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Outcome is how a child ended, on its way to its parent.
type Outcome struct {
	Child    uuid.UUID
	Instance string // the child's
	Parent   Parent
	Fate     Fate
	Text     string // the result, or the reason

	anyway bool // the record of the step can't be read
}

// OutcomeOf is that of a child that has just ended in a state, with this result or error.
func OutcomeOf(j *Job, s State, result []byte, reason string) Outcome {
	o := Outcome{Child: j.ID, Instance: j.Instance, Parent: j.Parent, Text: reason}
	switch s {
	case Done:
		o.Fate, o.Text = FateDone, string(result)
	case Cancelled:
		o.Fate = FateCancelled
	default:
		o.Fate = FateDead
	}
	return o
}

func (o *Outcome) size() int { return 256 + len(o.Text) }

// Relay brings outcomes to their parents, which wakes those that waited for them, and then takes them out of the outboxes of the
// children's instances. An outcome that arrived before, or that nobody wants any more, is taken out as well; one whose parent is gone, or
// was requeued, stays until the sweeper of that one's instance has seen to its children of before, lest such a child run twice. To repeat a
// call does no harm; what is left, Sweep relays later.
func (r *Runtime) Relay(ctx context.Context, outcomes []Outcome) error {
	to, from := map[string][]Outcome{}, map[string][]uuid.UUID{}
	for _, o := range outcomes {
		to[o.Parent.Instance] = append(to[o.Parent.Instance], o)
	}
	var failed error
	for instance, some := range to {
		letters, err := r.deliver(ctx, instance, some)
		if err != nil {
			failed = err // the others may be on another server, and a foreign key is one parent's alone
		}
		for i, o := range some[:len(letters)] {
			if letters[i] != 'k' && letters[i] != 'f' {
				from[o.Instance] = append(from[o.Instance], o.Child)
			}
		}
	}
	for instance, ids := range from {
		if err := r.settle(ctx, instance, ids, false); err != nil {
			failed = err
		}
	}
	return failed
}

// deliver brings outcomes to the parents in one instance, about a MiB of them at a time. It returns the letters that
// deliver.lua has for those that it got through, and beside them a *KeyError if a parent's records are under a foreign key.
func (r *Runtime) deliver(ctx context.Context, instance string, outcomes []Outcome) (letters string, err error) {
	all := len(outcomes)
	var spoilt error
	err = r.s.do(ctx, "delivering outcomes", func() error {
		for len(outcomes) > 0 {
			n, size, args := 0, 0, []any(nil)
			for ; n < len(outcomes) && n < MaxCall && (n == 0 || size+outcomes[n].size() <= 1<<20); n++ {
				o := &outcomes[n]
				size += o.size()
				anyway := 0
				if o.anyway {
					anyway = 1
				}
				args = append(args, o.Parent.ID[:], o.Parent.Step, o.Child[:], string(rune(o.Fate)), o.Text, anyway)
			}
			p, err := r.s.run(ctx, scriptDeliver, r.s.instanceKeys(instance), args...)
			if err != nil {
				return err
			}
			letters += p.str()
			p.next()
			if l := p.list(); l.more() {
				spoilt = &KeyError{Key: l.str(), Type: l.str(), Want: "hash"}
			}
			outcomes = outcomes[n:]
		}
		if len(letters) != all {
			return fmt.Errorf("answered for %d outcomes of %d", len(letters), all)
		}
		return spoilt
	})
	return letters, err
}

// settle takes children out of their outbox; those that are let go have no parent from now on.
func (r *Runtime) settle(ctx context.Context, instance string, ids []uuid.UUID, letGo bool) error {
	return r.s.do(ctx, "settling children", func() error {
		for len(ids) > 0 {
			some := ids[:min(len(ids), MaxCall)]
			ids = ids[len(some):]
			args := []any{0}
			if letGo {
				args[0] = 1
			}
			if _, err := r.s.run(ctx, scriptSettle, r.s.instanceKeys(instance), raw(args, some)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// raw adds ids to arguments.
func raw(args []any, ids []uuid.UUID) []any {
	for i := range ids {
		args = append(args, ids[i][:])
	}
	return args
}

// Wanted reports whether a child is to be run: whether its parent waits for its outcome, or ended as done and let it go. One that is
// not has been given up with its parent, or was dispatched a second time after its outcome had arrived.
func (r *Runtime) Wanted(ctx context.Context, child *Job) (bool, error) {
	wanted := false
	err := r.s.do(ctx, "vetting a child", func() error {
		p := child.Parent
		v, err := r.s.run(ctx, scriptVet, r.s.instanceKeys(p.Instance), p.ID[:], p.Step, child.ID[:], p.Generation)
		if err != nil {
			return err
		}
		if wanted = v.int() == 1; wanted {
			return nil
		}
		if v, err = r.s.run(ctx, scriptOrphan, r.s.instanceKeys(child.Instance), child.ID[:]); err != nil {
			return err
		}
		wanted = v.int() == 1
		return nil
	})
	return wanted, err
}

// kid is an entry of children.
type kid struct {
	member   string
	parent   Parent // Instance is known by where the entry is
	child    uuid.UUID
	instance string
}

const kidHead = 16 + 6 + 16 + 13

func readKid(member, instance string) (kid, error) {
	k := kid{member: member}
	if len(member) <= kidHead {
		return k, fmt.Errorf("an entry of children in %s can't be read: %q", instance, member)
	}
	copy(k.parent.ID[:], member)
	copy(k.child[:], member[22:])
	k.parent.Instance = instance
	k.parent.Generation, _ = strconv.Atoi(member[16:22])
	k.instance, k.parent.Step, _ = strings.Cut(member[kidHead:], "\n")
	return k, nil
}
