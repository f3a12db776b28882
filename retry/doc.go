// Package retry says whether a failed job is tried again, and when.
//
// A [Policy] is asked after each failed attempt. [Fixed], [Linear] and [Exponential] space the attempts, [Limit] ends them, and
// [Schedule] does both:
//
//	retry.Limit(5, retry.Exponential(time.Second, time.Minute)) // after 1 s, 2 s, 4 s and 8 s, then no more
//
// [When] has another policy for some errors, and [Budget] bounds the retries of all jobs together, so that a broken dependency
// is not hammered.
//
// A handler overrules the policy by the error it returns: [Permanent] ends the retries at once, [After] replaces the
// delay of this one. Both keep the error that they wrap, and are found through any further wrapping.
//
// # Jitter
//
// A policy returns the whole delay d, the same for the same attempt. The runtime draws the actual delay from [d/2, d], so
// that jobs which failed together don't come back together.
//
// # Bad arguments
//
// No function of this package panics or returns an error for an argument out of range. The nearest sensible value is
// used instead, and each function says which.
package retry
