package redistest

import (
	"sync"
	"testing"
	"time"
)

// Pulse tells a machine that stood still from one that is slow: what a test takes for the time of a server is then not held against it.
type Pulse struct {
	mu     sync.Mutex
	last   time.Time
	missed time.Duration
}

// A beat that is less late than this is what a busy machine does all the time.
const (
	beat    = 10 * time.Millisecond
	lateFor = 100 * time.Millisecond
)

// NewPulse starts a pulse, which ends with the test. The goroutine is the test's: run starts it, as the method Go of a sync.WaitGroup does.
func NewPulse(t testing.TB, run func(func())) *Pulse {
	p := &Pulse{last: time.Now()}
	stop, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	run(func() {
		defer close(ended)
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				p.Missed()
			}
		}
	})
	return p
}

// Missed is for how long, in all, this process has not been let run for 100 ms or more.
func (p *Pulse) Missed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if late := now.Sub(p.last) - beat; late > lateFor {
		p.missed += late
	}
	p.last = now
	return p.missed
}
