// Package middleware holds what can be wrapped around handlers: around all of a supervisor's, with worker.Config.Middleware, or
// around one, with worker.Use.
//
// A middleware is a worker.Middleware, a plain function; write your own the same way:
//
//	func Tenant(next worker.Handler) worker.Handler {
//		return func(ctx context.Context, job store.Job) error {
//			return next(context.WithValue(ctx, tenantKey{}, job.Metadata["tenant"]), job)
//		}
//	}
package middleware
