package redistest

import (
	"testing"
	"time"
)

// Eventually waits for what must come about within a minute, of real time; else it ends the test.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
