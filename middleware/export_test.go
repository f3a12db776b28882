package middleware

import (
	"context"
	"time"

	"github.com/stint-go/stint/worker"
)

// BreakerTripping is a Breaker that tells trip, instead of worker.Trip, for how long not to claim.
func BreakerTripping(cfg BreakerConfig, trip func(context.Context, time.Duration) error) worker.Middleware {
	return breakerThat(cfg, trip)
}
