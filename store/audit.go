package store

import (
	"context"

	"github.com/google/uuid"
)

// Audit looks through a part of an instance, some 100 jobs, for jobs that are in no state, in several, or without a record, and puts
// them right: such a job is dead, with the reason, unless it is doing or has ended. It returns those jobs, and where to
// go on: the zero AuditCursor begins, and is returned at the end.
func (r *Runtime) Audit(ctx context.Context, instance string, at AuditCursor) ([]uuid.UUID, AuditCursor, error) {
	if err := ValidateInstance(instance); err != nil {
		return nil, at, err
	}
	var moved []uuid.UUID
	err := r.s.do(ctx, "auditing", func() error {
		if at.next == "" {
			at.next = "0"
		}
		p, err := r.s.run(ctx, scriptAudit, r.s.instanceKeys(instance), at.set, at.next)
		if err != nil {
			return err
		}
		at.next = p.str()
		moved = p.ids()
		if at.next == "0" {
			at = AuditCursor{set: at.set + 1}
		}
		if at.set > suspectSet {
			at = AuditCursor{}
		}
		return nil
	})
	return moved, at, err
}

// AuditCursor is a place in an audit.
type AuditCursor struct {
	set  int // 0: the records; else the number of a set
	next string
}
