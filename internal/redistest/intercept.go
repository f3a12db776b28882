package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Intercept is a hook of a client that each single command goes through: it may send the command on, by next, or make something else
// of it. Pipelines and connections go past it.
type Intercept func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

var _ redis.Hook = Intercept(nil)

// DialHook changes nothing.
func (Intercept) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook has the function called.
func (f Intercept) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return f(ctx, cmd, next) }
}

// ProcessPipelineHook changes nothing.
func (Intercept) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Silent is a hook under which no command is answered until the channel is closed, whatever its context says.
func Silent(until <-chan struct{}) Intercept {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		<-until
		return next(ctx, cmd)
	}
}
