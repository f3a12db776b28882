package stint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// What a Redis does to its users: it goes, is out of reach, hangs up, is full, becomes a replica.

// resumes is how long work may take to go on after an outage.
const resumes = 10 * time.Second

func TestNothingIsLostWhenRedisIsStoppedKilledAndStartedUnderLoad(t *testing.T) {
	server := redistest.Start(t, redistest.AOF())
	s := on(t, server)
	for range 2 {
		s.as("count").start(t)
	}
	end := s.load(t, "story")
	for _, down := range []func(){server.Stop, server.Kill} {
		before := s.stats(t).Done
		s.until(t, "at work", func(now store.Stats) bool { return now.Done > before+50 })
		down()
		server.Restart()
	}
	n := end()
	s.drained(t, n)
	if ran := len(s.ran(t)); ran != n {
		t.Errorf("%d jobs of %d ran", ran, n)
	}
}

func TestAfterABlackHoleWorkGoesOnWithinTenSeconds(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	server := redistest.Start(t)
	s := on(t, server)
	proxy := redistest.NewProxy(t, wg.Go, server.Addr())
	r := s.as("load")
	r.Addrs = []string{proxy.Addr()}
	svc := r.start(t)
	end := s.load(t, "story")
	s.until(t, "at work", func(now store.Stats) bool { return now.Done > 50 })
	proxy.Swallow()
	time.Sleep(3 * time.Second)
	for len(svc.lines) > 0 {
		<-svc.lines
	}
	at := s.stats(t).Done
	proxy.Pass()
	passed := time.Now()
	s.until(t, "at work again", func(now store.Stats) bool { return now.Done > at+50 })
	if took := time.Since(passed); took > resumes {
		t.Errorf("work went on after %v", took)
	} else {
		t.Logf("work went on after %v", took.Round(time.Millisecond))
	}
	s.drained(t, end())

	// And what is enqueued then is heard of.
	start := time.Now()
	s.wait(t, s.enqueue(t))
	if took := time.Since(start); took > resumes {
		t.Errorf("a job enqueued afterwards took %v", took)
	}
}

func TestClosingEveryConnectionEachSecondLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := on(t, server)
	var ran runs
	// Its clients are others than those that kill.
	serve(t, on(t, server).st, 5*time.Second, handlers{"story": ran.handle})
	end := s.load(t, "story")
	killer := server.Client(t)
	for range 4 {
		time.Sleep(time.Second)
		for _, kind := range []string{"normal", "pubsub"} {
			if err := killer.Do(t.Context(), "client", "kill", "type", kind, "skipme", "yes").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := end()
	s.drained(t, n)
	ran.check(t, n)
	start := time.Now()
	s.wait(t, s.enqueue(t))
	if took := time.Since(start); took > resumes {
		t.Errorf("a job enqueued afterwards took %v", took)
	}
}

// A job's whole life with one command of it failing: from the first command of all, the check of the server, to the last
// that the process sends when it stops.
func TestWhicheverCommandOfAJobsLifeFailsOrLosesItsReplyTheHandlerRunsOnce(t *testing.T) {
	server := redistest.Start(t)
	for name, arm := range map[string]func(f *redistest.Fault, n int) <-chan struct{}{
		"fails":                            func(f *redistest.Fault, n int) <-chan struct{} { return f.FailNth(n) },
		"loses its reply":                  func(f *redistest.Fault, n int) <-chan struct{} { return f.LoseReplyNth(n) },
		"is cut off":                       func(f *redistest.Fault, n int) <-chan struct{} { return f.CutNth(n) },
		"is cut off before its reply came": func(f *redistest.Fault, n int) <-chan struct{} { return f.CutReplyNth(n) },
	} {
		t.Run("a command "+name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				if n > 100 {
					t.Fatal("a job's life has no end")
				}
				if !aLife(t, server, n, arm) {
					t.Logf("%d commands", n-1)
					return
				}
			}
		})
	}
}

// aLife is that of one job, with the n-th command armed; it reports whether there was one.
func aLife(t *testing.T, server *redistest.Server, n int, arm func(*redistest.Fault, int) <-chan struct{}) bool {
	t.Helper()
	var fault redistest.Fault
	rdb := server.Client(t)
	defer rdb.Close()
	rdb.AddHook(&fault)
	s := onClient(t, rdb, role{Prefix: redistest.Prefix(t)})
	var ran runs
	struck := arm(&fault, n)
	start := time.Now()
	id := s.enqueue(t)
	lease := 5 * time.Minute // what is found only when it is over does not count
	stop := serve(t, s.st, lease, handlers{"story": ran.handle})
	j := s.wait(t, id)
	stop()
	if took := time.Since(start); j.State != store.Done || j.Attempt != 1 || took > 30*time.Second {
		t.Errorf("command %d: %s after attempt %d and %v", n, j.State, j.Attempt, took)
	}
	ran.check(t, 1)
	select {
	case <-struck:
		return true
	default:
		return false
	}
}

func TestAFullRedisRefusesNewJobsAndFinishesTheOthers(t *testing.T) {
	server := redistest.Start(t)
	s := on(t, server)
	ids := []uuid.UUID{s.enqueue(t), s.enqueue(t), s.enqueue(t)}
	set := func(bytes string) {
		t.Helper()
		if err := s.rdb.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	if _, err := s.client.Enqueue(t.Context(), "story", struct{}{}); !errors.Is(err, store.ErrServer) {
		t.Errorf("enqueuing: %v, want ErrServer", err)
	}
	var ran runs
	serve(t, s.st, 20*time.Second, handlers{"story": ran.handle})
	for _, id := range ids {
		if j := s.wait(t, id); j.State != store.Done {
			t.Errorf("%s: %s", j.State, j.LastError)
		}
	}
	ran.check(t, 3)
	set("0")
	s.wait(t, s.enqueue(t))
}

func TestWhileRedisIsReadOnlyNothingIsAcceptedAndNothingIsLost(t *testing.T) {
	server := redistest.Start(t)
	s := on(t, server)
	started, proceed := make(chan struct{}, 10), make(chan struct{})
	var ran runs
	serve(t, s.st, 20*time.Second, handlers{
		"story": func(ctx context.Context, in struct{}) error {
			started <- struct{}{}
			<-proceed
			return ran.handle(ctx, in)
		}})
	id := s.enqueue(t)
	<-started
	if err := s.rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err(); err != nil { // where nobody is
		t.Fatal(err)
	}
	close(proceed)
	if _, err := s.client.Enqueue(t.Context(), "story", struct{}{}); !errors.Is(err, store.ErrServer) {
		t.Errorf("enqueuing: %v, want ErrServer", err)
	}
	if j, err := s.st.Get(t.Context(), id); err != nil || j.State != store.Doing {
		t.Errorf("reading: %s, %v; a replica can be read", j.State, err)
	}
	if err := s.rdb.Do(t.Context(), "replicaof", "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if j := s.wait(t, id); j.State != store.Done || j.Attempt != 1 {
		t.Errorf("%s after attempt %d", j.State, j.Attempt)
	}
	if took := time.Since(start); took > resumes {
		t.Errorf("done %v after Redis could be written again", took)
	}
	ran.check(t, 1)
}

func TestAnIdleOutageCostsNextToNothingAndTwoLines(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := on(t, server)
	svc := s.as("idle").start(t)
	s.wait(t, s.enqueue(t))
	use := func() (cpu time.Duration, lines int) {
		t.Helper()
		svc.signal(t, syscall.SIGUSR1)
		for {
			line := svc.expect(t, "")
			if n, ok := strings.CutPrefix(line, "used "); ok {
				var us int64
				if _, err := fmt.Sscan(n, &us); err != nil {
					t.Fatal(err)
				}
				return time.Duration(us) * time.Microsecond, lines
			}
			if strings.HasPrefix(line, "log ") {
				t.Log(line)
				lines++
			}
		}
	}
	before, early := use()
	server.Kill()
	start := time.Now()
	time.Sleep(5 * time.Second)
	after, begin := use()
	share := float64(after-before) / float64(time.Since(start))
	t.Logf("%.2f %% of a processor", 100*share)
	if share > 0.05 {
		t.Error("that is over 5 %")
	}
	server.Restart()
	ended := svc.expect(t, "log")
	_, late := use()
	if !strings.Contains(ended, "over") || early != 0 || begin != 1 || late != 0 {
		t.Errorf("%d lines before, %d during, %q and %d more after it; want one when it began and one when it ended", early, begin, ended, late)
	}
	s.wait(t, s.enqueue(t))
}
