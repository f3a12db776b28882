package redistest

import "os"

// Soak reports whether tests are to run at full length, as make soak has them (STINT_SOAK=1). Otherwise they run shortened:
// with less of everything, and bounds on time that are wider.
func Soak() bool { return os.Getenv("STINT_SOAK") == "1" }

// Size returns short, or long in a soak.
func Size[T any](short, long T) T {
	if Soak() {
		return long
	}
	return short
}
