package workertest

import (
	"context"

	"github.com/stint-go/stint/internal/crash"
	"github.com/stint-go/stint/worker"
)

// Effect notes, in a test with [CrashEverywhere], that something has happened in the world: money was taken, a mail was sent. It is for the fakes that
// stand in for it, which are given the context of the handler or of the step. An effect that happens several times by intention takes a key
// in its name. Elsewhere Effect does nothing.
func Effect(ctx context.Context, name string) {
	o, ok := ctx.Value(observerKey{}).(*observer)
	if !ok {
		return
	}
	where := outside
	if worker.IdempotencyKey(ctx) != o.key { // a step has one of its own
		where = inside
	}
	o.run.mu.Lock()
	defer o.run.mu.Unlock()
	o.run.countLocked(point{o.instance, name, where})
}

// Where an effect happened.
const (
	inside  crash.Where = "in a step"
	outside crash.Where = "outside of a step"
)

// observer is what a handler's context has for its effects.
type observer struct {
	run      *crashRun
	instance string
	key      string // of the handler: its idempotency key
}

type observerKey struct{}
