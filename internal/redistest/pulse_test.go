package redistest_test

import (
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
)

func TestAPulseMissesWhatTheProcessStoodStill(t *testing.T) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	p := redistest.NewPulse(t, wg.Go)
	before, start := p.Missed(), time.Now()
	if err := exec.Command("sh", "-c", "kill -STOP $PPID; sleep 0.5; kill -CONT $PPID").Run(); err != nil {
		t.Fatal(err)
	}
	missed, took := p.Missed()-before, time.Since(start)
	if missed < 400*time.Millisecond || missed > took {
		t.Errorf("missed %v of %v, want half a second or more", missed, took)
	}
}
