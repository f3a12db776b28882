package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/middleware"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// service is what handlers depend on.
type service struct {
	mu      sync.Mutex
	fault   func() error // what a call fails with, nil for none
	calls   int
	running int
	most    int // at once
}

func (s *service) call(context.Context, none) error {
	s.mu.Lock()
	s.calls++
	s.running++
	s.most = max(s.most, s.running)
	fault := s.fault
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
	}()
	time.Sleep(10 * time.Millisecond)
	if fault != nil {
		return fault()
	}
	return nil
}

func (s *service) set(fault func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.most = fault, 0
}

func (s *service) now() (calls, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.most
}

type none = struct{}

// plant is a supervisor that runs 10 jobs of instance "calls" at once, and 200 jobs for it.
type plant struct {
	t      *testing.T
	st     *store.Store
	client *worker.Client
	ids    []uuid.UUID

	mu     sync.Mutex
	states []string // of the breaker
}

func newPlant(t *testing.T, call func(context.Context, none) error, cfg middleware.BreakerConfig, opts ...worker.HandleOption) *plant {
	t.Helper()
	p := &plant{t: t, st: workertest.Store(t)}
	if cfg.OnChange == nil {
		cfg.OnChange = func(instance, state string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.states = append(p.states, instance+" "+state)
		}
	}
	sup, err := worker.New(p.st, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	opts = append(opts, worker.Use(middleware.Breaker(cfg)))
	worker.Handle(sup, "calls", call, append([]worker.HandleOption{worker.Retry(retry.Fixed(time.Second))}, opts...)...)
	p.client = worker.NewClient(p.st, worker.ClientConfig{})
	results, err := p.client.EnqueueMany(t.Context(), slices.Repeat([]worker.Request{{Instance: "calls"}}, 200))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		p.ids = append(p.ids, r.ID)
	}
	workertest.Start(t, sup)
	return p
}

// changes returns what the breaker has become, in order.
func (p *plant) changes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.states)
}

// stats are those of the instance.
func (p *plant) stats() store.Stats {
	p.t.Helper()
	all, err := p.st.Stats(p.t.Context())
	if err != nil || len(all) != 1 {
		p.t.Fatal(all, err)
	}
	return all[0]
}

var errDown = errors.New("connection refused")

func down() error { return errDown }

func TestABreakerStopsClaimingInsteadOfFailingJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s service
		s.set(down)
		p := newPlant(t, s.call, middleware.BreakerConfig{Failures: 5, Pause: 30 * time.Second})
		time.Sleep(10*time.Minute + 15*time.Second)
		calls, _ := s.now()
		if calls > 10+21 { // what was claimed at first, and one each half a minute
			t.Errorf("%d calls of a dependency that is down", calls)
		}
		if st := p.stats(); st.Dead != 0 || st.Todo+st.Scheduled != 200 || st.Todo < 190-21 {
			t.Errorf("%+v, want the jobs where they were", st)
		}
		s.set(nil)
		time.Sleep(14 * time.Second)
		if calls, _ := s.now(); calls > 31 {
			t.Errorf("%d calls before its time", calls)
		}
		workertest.Drain(t, p.st)
		if st := p.stats(); st.Done != 200 {
			t.Errorf("%+v, want all done", st)
		}
		attempts := 0
		for _, id := range p.ids {
			job, err := p.st.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			attempts += job.Attempt
		}
		if attempts > 200+10+21 {
			t.Errorf("%d attempts were charged", attempts)
		}
		if _, most := s.now(); most != 10 {
			t.Errorf("%d ran at once in the end, want all", most)
		}
		if all := p.changes(); all[len(all)-1] != "calls closed" || all[0] != "calls open" || all[1] != "calls half-open" {
			t.Errorf("the breaker was %v", all)
		}
	})
}

func TestABreakerTriesWithOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s service
		s.set(down)
		newPlant(t, s.call, middleware.BreakerConfig{Failures: 3, Pause: time.Minute})
		time.Sleep(30 * time.Second)
		before, _ := s.now()
		s.set(down) // and count anew
		time.Sleep(5 * time.Minute)
		if calls, most := s.now(); most != 1 || calls-before < 4 || calls-before > 5 {
			t.Errorf("%d calls in five minutes, %d at once; want one a minute", calls-before, most)
		}
	})
}

func TestWhatSpeaksAgainstTheJobLeavesTheBreakerClosed(t *testing.T) {
	for name, fault := range map[string]func() error{
		"permanent": func() error { return retry.Permanent(errors.New("no such address")) },
		"snoozed":   func() error { return worker.Snooze(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s service
				s.set(fault)
				p := newPlant(t, s.call, middleware.BreakerConfig{})
				time.Sleep(10 * time.Second)
				if calls, _ := s.now(); calls != 200 || len(p.changes()) != 0 {
					t.Errorf("%d calls, the breaker was %v", calls, p.changes())
				}
			})
		})
	}
}

func TestAJobThatParksSaysNothingOfTheDependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t, func(ctx context.Context, _ none) error { return worker.Sleep(ctx, "a while", time.Hour) }, middleware.BreakerConfig{})
		time.Sleep(10 * time.Second)
		if s := p.stats(); s.Parked != 200 || len(p.changes()) != 0 {
			t.Errorf("%+v, the breaker was %v", s, p.changes())
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestTheErrorsOfABreakerAreOnesOwnToChoose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s service
		s.set(func() error { return retry.Permanent(errDown) })
		p := newPlant(t, s.call, middleware.BreakerConfig{IsFailure: func(err error) bool { return errors.Is(err, errDown) }})
		time.Sleep(10 * time.Second)
		if calls, _ := s.now(); calls > 15 || len(p.changes()) != 1 {
			t.Errorf("%d calls, the breaker was %v", calls, p.changes())
		}
	})
}

// Whatever handlers and callbacks do, a breaker that tries comes to a verdict.
func TestABreakerSurvivesPanicsAndGoexits(t *testing.T) {
	for name, cfg := range map[string]struct {
		fault  func() error
		config middleware.BreakerConfig
	}{
		"a handler panics":   {func() error { panic("oops") }, middleware.BreakerConfig{}},
		"a handler exits":    {func() error { runtime.Goexit(); return nil }, middleware.BreakerConfig{}},
		"IsFailure panics":   {down, middleware.BreakerConfig{IsFailure: func(error) bool { panic("oops") }}},
		"OnChange panics":    {down, middleware.BreakerConfig{OnChange: func(string, string) { panic("oops") }}},
		"the job is snoozed": {func() error { return worker.Snooze(time.Minute) }, middleware.BreakerConfig{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s service
				s.set(cfg.fault)
				p := newPlant(t, s.call, cfg.config)
				time.Sleep(5 * time.Minute)
				s.set(nil)
				workertest.Drain(t, p.st)
				if st := p.stats(); st.Done != 200 {
					t.Errorf("%+v, want all done", st)
				}
			})
		})
	}
}

func TestABreakerOutsideASupervisorIsABreakerAllTheSame(t *testing.T) {
	h := middleware.Breaker(middleware.BreakerConfig{Failures: 1, Pause: time.Hour})(func(context.Context, store.Job) error { return errDown })
	if err := h(t.Context(), store.Job{Instance: "x"}); !errors.Is(err, errDown) {
		t.Errorf("%v", err)
	}
	err := h(t.Context(), store.Job{Instance: "x"})
	if d, ok := worker.SnoozeDelay(err); !ok || d < 59*time.Minute || d > time.Hour+time.Second {
		t.Errorf("%v, snoozed for %v", err, d)
	}
}

// Of attempts that end at the same time each tells the pool what the breaker is; what is told last must be what it is left as.
func TestWhatABreakerSaysLastOfClaimingIsTrueWhoeverIsHeldUp(t *testing.T) {
	const fails, succeeds = 1, 2 // attempts
	for name, c := range map[string]struct {
		attempts []int // the last but one is held up when it tells
		open     bool  // how it is left
	}{
		"it has closed meanwhile":       {[]int{fails, succeeds}, false},
		"it has opened again meanwhile": {[]int{fails, succeeds, fails}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var said []time.Duration
			calls, slow, held := 0, make(chan struct{}), make(chan struct{})
			trip := func(_ context.Context, d time.Duration) error {
				mu.Lock()
				calls++
				wait := calls == len(c.attempts)-1
				mu.Unlock()
				if wait {
					close(held)
					<-slow
				}
				mu.Lock()
				defer mu.Unlock()
				said = append(said, d)
				return nil
			}
			const pause = time.Millisecond
			h := middleware.BreakerTripping(middleware.BreakerConfig{Failures: 1, Pause: pause}, trip)(func(_ context.Context, job store.Job) error {
				if job.Attempt == fails {
					return errDown
				}
				return nil
			})
			var attempts sync.WaitGroup
			last := make(chan struct{})
			for i, attempt := range c.attempts {
				attempts.Go(func() {
					_ = h(t.Context(), store.Job{Instance: "x", Attempt: attempt})
					if i == len(c.attempts)-1 {
						close(last)
					}
				})
				switch i {
				case len(c.attempts) - 1:
				case len(c.attempts) - 2:
					<-held
				default:
					attempts.Wait()
				}
				time.Sleep(2 * pause) // if it is open, it is to be tried again
			}
			select {
			case <-last:
			case <-time.After(100 * time.Millisecond): // it may have to wait for the one that is held up
			}
			close(slow)
			attempts.Wait()
			if len(said) != len(c.attempts) || said[len(said)-1] > 0 != c.open {
				t.Errorf("what was said of claiming is %v, and the breaker open: %v", said, c.open)
			}
		})
	}
}

func ExampleBreaker() {
	down := func(context.Context, store.Job) error { return errors.New("connection refused") }
	h := middleware.Breaker(middleware.BreakerConfig{
		Failures: 2, Pause: time.Minute,
		OnChange: func(instance, state string) { fmt.Println(instance, "is", state) },
	})(down)
	for range 3 { // in a supervisor the third would not have been claimed
		err := h(context.Background(), store.Job{Instance: "mail"})
		_, snoozed := worker.SnoozeDelay(err)
		fmt.Println(snoozed)
	}
	// Output:
	// false
	// mail is open
	// false
	// true
}
