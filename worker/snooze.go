package worker

import (
	"errors"
	"time"
)

// SnoozeDelay returns what [Snooze] was given, if err was made by it or wraps an error that was. It is for middleware that
// tells a snooze from a failure.
func SnoozeDelay(err error) (time.Duration, bool) {
	s, ok := errors.AsType[*snooze](err)
	if !ok {
		return 0, false
	}
	return s.d, true
}
