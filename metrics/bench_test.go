package metrics_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// What the metrics of one job cost the listener's goroutine.
func BenchmarkObserveAJob(b *testing.B) {
	col := metrics.New(nil)
	for b.Loop() {
		col.Observe(worker.JobStarted{Instance: "x", Waited: time.Millisecond})
		col.Observe(worker.JobFinished{Instance: "x", Outcome: worker.Completed, State: store.Done, Took: time.Millisecond, Age: time.Second})
	}
}
