// Package crash lets a test end a handler at the boundaries of its steps, as a crash of its process would.
package crash

import "context"

// Where is a side of a boundary.
type Where string

// The boundaries of a step.
const (
	BeforeStep  Where = "before the step"                // nothing has happened
	AfterEffect Where = "after its function"             // and before its result is kept
	AfterRecord Where = "after its record is written"    // and before its child is enqueued
	AfterCommit Where = "after its result has been kept" // or its child is enqueued
)

// Hook is called at each boundary, on the goroutine of the step.
type Hook func(step string, where Where)

// Key is under what a context has its hook.
type Key struct{}

// With returns a context whose steps call the hook.
func With(ctx context.Context, h Hook) context.Context { return context.WithValue(ctx, Key{}, h) }

// At calls the hook of the context, if there is one.
func At(ctx context.Context, step string, where Where) {
	if h, ok := ctx.Value(Key{}).(Hook); ok {
		h(step, where)
	}
}
