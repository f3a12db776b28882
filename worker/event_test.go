package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestEventsOfAJobComeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			if j, _ := worker.JobFrom(ctx); j.Attempt == 1 {
				return errBoom
			}
			return nil
		}, worker.Concurrency(7))
		r.start()
		r.enqueueMany("x", 300)
		settle(time.Minute)
		r.stopWell()
		holds, last := map[uuid.UUID]uuid.UUID{}, map[uuid.UUID]worker.Event{}
		for _, e := range r.events.list() {
			switch e := e.(type) {
			case worker.JobStarted:
				if j, busy := holds[e.Worker]; busy {
					t.Errorf("a worker starts %s while it holds %s", e.Job, j)
				}
				if f, ok := last[e.Job].(worker.JobFinished); ok != (e.Attempt == 2) || ok && f.State != store.Scheduled {
					t.Errorf("attempt %d started after %+v", e.Attempt, f)
				}
				holds[e.Worker], last[e.Job] = e.Job, e
			case worker.JobFinished:
				if s, ok := last[e.Job].(worker.JobStarted); !ok || s.Attempt != e.Attempt || holds[e.Worker] != e.Job {
					t.Errorf("%+v without its start", e)
				}
				delete(holds, e.Worker)
				last[e.Job] = e
			}
		}
		done := 0
		for _, e := range last {
			if f, ok := e.(worker.JobFinished); ok && f.State == store.Done && f.Attempt == 2 && f.Outcome == worker.Completed {
				done++
			}
		}
		if done != 300 {
			t.Errorf("%d jobs ended well by the events, want 300", done)
		}
	})
}

func TestAListenerThatBlocksHoldsNothingUpAndHearsWhatItMissedAndTheEndOfTheRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const jobs, all = 4500, 2*4500 + 2 // two events each and those of the run, of which 8,192 are queued
		release := make(chan struct{})
		var heard []worker.Event
		dropped := 0
		r := newRig(t, worker.Config{OnEvent: func(e worker.Event) {
			<-release
			heard = append(heard, e)
			if d, ok := e.(worker.EventsDropped); ok {
				dropped += d.Count
			}
		}})
		worker.Handle(r.sup, "x", returns(nil), worker.Concurrency(50), worker.Retention(0, jobs))
		r.start()
		r.enqueueMany("x", jobs)
		settle(time.Second)
		if s := r.stats("x"); s.Done != jobs {
			t.Fatalf("%+v while the listener blocks, want all done", s)
		}
		r.stop()
		synctest.Wait()
		close(release)
		if err := <-r.ran; err != nil {
			t.Error(err)
		}
		n := len(heard)
		if n < 8192 || n-1+dropped != all {
			t.Fatalf("%d heard and %d dropped of %d", n-1, dropped, all)
		}
		if d, ok := heard[n-2].(worker.EventsDropped); !ok || d.Count != dropped {
			t.Errorf("the last but one is %+v, want those that were dropped", heard[n-2])
		}
		if last, ok := heard[n-1].(worker.RunStopped); !ok || last.Supervisor != r.sup {
			t.Errorf("the last is %+v, want the end of the run", heard[n-1])
		}
	})
}

// Where many events come the listener is left alone for some milliseconds, so that they come together. Nobody waits for that.
func TestAStopDoesNotWaitForEventsToComeTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		heard := 0
		r := newRig(t, worker.Config{OnEvent: func(worker.Event) { heard++ }})
		worker.Handle(r.sup, "x", returns(nil), worker.Concurrency(100))
		r.start()
		synctest.Wait()
		r.enqueueMany("x", 100)
		synctest.Wait() // the last of them wait to be told
		if took, err := r.stopTook(); took != 0 || err != nil {
			t.Errorf("it took %v and Run returned %v, want no time", took, err)
		}
		if heard != 202 {
			t.Errorf("%d events heard, want 202", heard)
		}
	})
}

// What the listener has been told of does not wait any more, though it was taken together with what does.
func TestNothingIsDroppedWhileFewEventsWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const jobs, early, late = 3900, 7700, 600 // two events each: 7,800 at once, of which 100 wait when 1,200 more come
		gates := map[int]chan struct{}{1: make(chan struct{}), early: make(chan struct{})}
		heard, dropped := 0, 0
		r := newRig(t, worker.Config{OnEvent: func(e worker.Event) {
			heard++
			if _, ok := e.(worker.EventsDropped); ok {
				dropped++
			}
			if gate := gates[heard]; gate != nil {
				<-gate
			}
		}})
		worker.Handle(r.sup, "x", returns(nil), worker.Concurrency(50))
		r.start()
		r.enqueueMany("x", jobs)
		settle(time.Second)
		close(gates[1])
		synctest.Wait()
		r.enqueueMany("x", late)
		settle(time.Second)
		close(gates[early])
		r.stopWell()
		if want := 2*(jobs+late) + 2; dropped != 0 || heard != want {
			t.Errorf("%d heard, %d times some were dropped; want %d and none", heard, dropped, want)
		}
	})
}

// The listener lets others run, but not at any price: what computes would have it wait for ever.
func TestBesideWhatComputesTheListenerHearsAllBeforeRunReturns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const jobs = 2000
	heard, all := 0, make(chan struct{})
	r := newRig(t, worker.Config{OnEvent: func(worker.Event) {
		if heard++; heard == 1 {
			<-all
		}
	}})
	var ran atomic.Int32
	done := make(chan struct{})
	worker.Handle(r.sup, "x", func(context.Context, none) error {
		if ran.Add(1) == jobs {
			close(done)
		}
		return nil
	}, worker.Concurrency(100))
	r.enqueueMany("x", jobs)
	r.start()
	<-done
	end := make(chan struct{})
	var computing sync.WaitGroup
	for range 4 {
		computing.Go(func() {
			for began := time.Now(); !isClosed(end) && time.Since(began) < 20*time.Second; {
			}
		})
	}
	close(all)
	r.stopWell()
	close(end)
	computing.Wait()
	if want := 2*jobs + 2; heard != want {
		t.Errorf("%d events heard, want %d", heard, want)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAListenerThatPanicsOrExitsMissesNothingElse(t *testing.T) {
	for name, bad := range map[string]func(){"panics": func() { panic("oops") }, "exits": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var heard atomic.Int32
				r := newRig(t, worker.Config{OnEvent: func(worker.Event) {
					if heard.Add(1)%2 == 0 {
						bad()
					}
				}})
				worker.Handle(r.sup, "x", returns(nil))
				r.start()
				r.enqueueMany("x", 10)
				settle(time.Second)
				r.stopWell()
				if heard.Load() != 22 { // two of each job, and those of the run
					t.Errorf("%d events heard, want 22", heard.Load())
				}
				if n := r.logs.count("the listener to events fails"); n != 1 {
					t.Errorf("said %d times, want once:\n%s", n, r.logs)
				}
			})
		})
	}
}

func TestAListenerThatNeverReturnsDoesNotKeepRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, worker.Config{OnEvent: func(worker.Event) { <-release }, GraceTimeout: 3 * time.Second})
		worker.Handle(r.sup, "x", returns(nil))
		r.start()
		r.enqueueMany("x", 1)
		synctest.Wait()
		if took, err := r.stopTook(); took != 3*time.Second || !errors.Is(err, worker.ErrListener) {
			t.Errorf("it took %v and Run returned %v, want 3s and ErrListener", took, err)
		}
		close(release)
	})
}

func TestASupervisorWithoutListenerWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		sup, err := worker.New(r.st, worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		worker.Handle(sup, "x", returns(nil))
		r.sup = sup
		r.start()
		id := r.enqueue("x", nil)
		settle(time.Second)
		r.wantState(id, store.Done, 1, "")
		r.stopWell()
	})
}

func TestTheListenerHearsOfAcceptedJobsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var heard []worker.Event // without a lock: it is called on our goroutine
		c := worker.NewClient(r.st, worker.ClientConfig{OnEvent: func(e worker.Event) { heard = append(heard, e) }})
		first := r.accepts(c, "images", 1)
		_, _ = c.Enqueue(t.Context(), "images", 1, worker.ID(first))
		_, _ = c.Enqueue(t.Context(), "images", make(chan int))
		results, _ := c.EnqueueMany(t.Context(), []worker.Request{
			{Instance: "mail"}, {Instance: "no good"}, {Instance: "images", Options: []worker.EnqueueOption{worker.ID(first)}}, {Instance: "images"},
		})
		want := []worker.Event{
			worker.JobEnqueued{Instance: "images", Job: first},
			worker.JobEnqueued{Instance: "mail", Job: results[0].ID},
			worker.JobEnqueued{Instance: "images", Job: results[3].ID},
		}
		if !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}

func TestAListenerThatPanicsHarmsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, log := newRig(t, worker.Config{}), &lines{}
		c := worker.NewClient(r.st, worker.ClientConfig{
			OnEvent: func(worker.Event) { panic("oops") },
			Logger:  slog.New(slog.NewTextHandler(log, nil)),
		})
		r.job(r.accepts(c, "images", 1))
		if log.count("panic=oops") != 1 || log.count("enqueue_test.go") != 1 {
			t.Errorf("the log says %q, want the panic and where it was, once", log)
		}
	})
}
