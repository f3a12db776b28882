// Package ids makes the ids of jobs, workers, processes and lanes.
package ids

import (
	"crypto/rand"

	"github.com/google/uuid"
)

// New returns a random id, of the system's own randomness: an application may have given the uuid package another source (uuid.SetRand),
// whose ids come again.
func New() uuid.UUID { return uuid.Must(uuid.NewRandomFromReader(rand.Reader)) }
