package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint/worker"
)

func TestAScheduledJobStartsAtItsMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		r.start()
		settle(time.Second)
		at := time.Now()
		r.enqueue("x", nil, after(10*time.Minute))
		r.enqueue("x", nil, after(12345*time.Millisecond)) // becomes the next one
		r.enqueue("x", nil, after(700*time.Millisecond))
		for _, want := range []time.Duration{700 * time.Millisecond, 12345 * time.Millisecond, 10 * time.Minute} {
			if d := (<-starts).Sub(at); d != want {
				t.Errorf("the job started after %v, want %v", d, want)
			}
		}
		r.stopWell()
	})
}

func TestARetryComesBackAtItsMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var starts []time.Time
		worker.Handle(r.sup, "x", func(context.Context, none) error {
			if starts = append(starts, time.Now()); len(starts) < 3 {
				return worker.Snooze(1500 * time.Millisecond)
			}
			return nil
		}, worker.Concurrency(1))
		r.start()
		r.enqueue("x", nil)
		settle(10 * time.Second)
		r.stopWell()
		if len(starts) != 3 || starts[2].Sub(starts[0]) != 3*time.Second {
			t.Errorf("started at %v, want 1.5s apart", starts)
		}
	})
}

// pair starts the rig and another process beside it, each with one worker that notes when it is called.
func pair(r *rig) (ran chan time.Time) {
	r.t.Helper()
	ran = make(chan time.Time, 10)
	other := r.second(worker.Config{})
	for _, process := range []*rig{r, other} {
		worker.Handle(process.sup, "mail", func(_ context.Context, long bool) error {
			ran <- time.Now()
			if long {
				time.Sleep(5 * time.Second)
			}
			return nil
		}, worker.Concurrency(1))
		process.start()
	}
	r.t.Cleanup(other.stopWell)
	time.Sleep(100 * time.Millisecond)
	return ran
}

func TestAScheduledJobIsOnTimeThoughWhoKnewOfItIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		ran, c := pair(r), r.client()
		start := time.Now()
		for i, delay := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
			r.accepts(c, "mail", i == 0, worker.Delay(delay))
		}
		<-ran
		if late := (<-ran).Sub(start) - 600*time.Millisecond; late > 10*time.Millisecond {
			t.Errorf("it started %v after its time", late)
		}
		time.Sleep(time.Minute)
		r.stopWell()
	})
}

func TestAScheduledJobIsOnTimeThoughWhoKnewOfItIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		ran, c := pair(r), r.client()
		start := time.Now()
		r.accepts(c, "mail", false, worker.Delay(600*time.Millisecond))
		time.Sleep(100 * time.Millisecond)
		r.stopWell()
		if late := (<-ran).Sub(start) - 600*time.Millisecond; late > 10*time.Millisecond {
			t.Errorf("it started %v after its time", late)
		}
	})
}
