package store

import (
	"context"

	"github.com/google/uuid"
)

// Lapse lets the lease of a job run out at once, as the death of its process would in time: the next Reap ends it. ErrLeaseLost
// if it is not doing. For tests of what a crash leaves.
func (r *Runtime) Lapse(ctx context.Context, instance string, job uuid.UUID) error {
	return r.s.do(ctx, "letting a lease run out", func() error {
		p, err := r.s.run(ctx, scriptLapse, r.s.instanceKeys(instance), job[:])
		if err != nil {
			return err
		}
		if p.int() == 0 {
			return ErrLeaseLost
		}
		return nil
	})
}
