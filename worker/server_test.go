package worker_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// These tests are about what only a real server does. They run in real time; what they wait for they are told.

// realRig is a rig on a server of its own. Each edit may change the client's options first.
func realRig(t *testing.T, server *redistest.Server, cfg worker.Config, edit ...func(*redis.Options)) *rig {
	t.Helper()
	client := server.Client(t, edit...)
	st, err := store.Open(client, store.Options{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, st: st}
	r.listen(cfg)
	return r
}

// impatient is a client that takes silence for an error after a second.
func impatient(o *redis.Options) {
	o.ReadTimeout, o.WriteTimeout, o.MaxRetries = time.Second, time.Second, -1
}

// within waits for a channel for a long time.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came in half a minute")
		panic("unreachable")
	}
}

func TestOnARealServerAnIdleSupervisorStartsAndStopsWithoutDelay(t *testing.T) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	pulse := redistest.NewPulse(t, wg.Go)
	r := realRig(t, redistest.Start(t), worker.Config{})
	starts := r.serve("x", nothing)
	r.start()
	r.enqueue("x", nil)
	within(t, starts)
	for range 10 {
		at, missed := time.Now(), pulse.Missed()
		r.enqueue("x", nil)
		d := within(t, starts).Sub(at)
		if d -= pulse.Missed() - missed; d > time.Second {
			t.Errorf("started after %v, want a millisecond or so", d)
		}
	}
	missed := pulse.Missed()
	took, err := r.stopTook()
	if took -= pulse.Missed() - missed; took > time.Second || err != nil {
		t.Errorf("stopping took %v and Run returned %v, want some milliseconds and nil", took, err)
	}
	if s := r.stats("x"); s.Done != 11 {
		t.Errorf("%+v, want 11 done", s)
	}
}

func TestAServerThatIsRestartedIsFoundAgain(t *testing.T) {
	server := redistest.Start(t, redistest.AOF())
	r := realRig(t, server, worker.Config{}, impatient)
	starts := r.serve("x", nothing)
	r.start()
	r.enqueue("x", nil)
	within(t, starts)
	server.Stop()
	server.Restart()
	r.enqueue("x", nil)
	within(t, starts)
	r.stopWell()
	if s := r.stats("x"); s.Done != 2 {
		t.Errorf("%+v, want 2 done", s)
	}
}

func TestAServerThatDoesNotAnswerDoesNotKeepRun(t *testing.T) {
	server := redistest.Start(t)
	r := realRig(t, server, worker.Config{DrainTimeout: 500 * time.Millisecond, GraceTimeout: 100 * time.Millisecond}, impatient)
	started := make(chan struct{})
	worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	r.start()
	r.enqueue("x", nil)
	within(t, started)
	must(t, syscall.Kill(server.PID(), syscall.SIGSTOP))
	took, err := r.stopTook()
	must(t, syscall.Kill(server.PID(), syscall.SIGCONT))
	if took > 20*time.Second || err == nil {
		t.Errorf("stopping took %v and Run returned %v, want some seconds and an error", took, err)
	}
	t.Logf("it took %v", took)
}

func TestACallOfTheClientReturnsWithItsContextThoughTheServerIsFrozen(t *testing.T) {
	server := redistest.Start(t)
	st, err := store.Open(server.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute }), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := worker.NewClient(st, worker.ClientConfig{})
	id, err := c.Enqueue(t.Context(), "x", 1)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1) // one that waits already
	long, end := context.WithCancel(t.Context())
	go func() { _, err := c.Wait(long, id); waited <- err }()
	must(t, syscall.Kill(server.PID(), syscall.SIGSTOP))
	start := time.Now()
	for name, call := range map[string]func(ctx context.Context) error{
		"Wait":    func(ctx context.Context) error { _, err := c.Wait(ctx, id); return err },
		"Cancel":  func(ctx context.Context) error { return c.Cancel(ctx, id) },
		"Enqueue": func(ctx context.Context) error { _, err := c.Enqueue(ctx, "x", 1); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the context's error", name, err)
		}
		cancel()
	}
	end()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("the other Wait: %v, want the context's error", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v, want less than a second", took)
	}
	must(t, syscall.Kill(server.PID(), syscall.SIGCONT))
}

func TestASupervisorIsReadyWhileAFullServerRefusesItsTicks(t *testing.T) {
	server := redistest.Start(t)
	failed := make(chan worker.LoopFailed, 100)
	r := realRig(t, server, worker.Config{OnEvent: func(e worker.Event) {
		if e, ok := e.(worker.LoopFailed); ok {
			failed <- e
		}
	}})
	starts := r.serve("x", nothing)
	worker.Handle(r.sup, "ticks", returns(nil))
	tick := each(time.Second)
	tick.Instance = "ticks"
	r.sup.Schedule(tick)
	ctx, client := t.Context(), server.Client(t)
	must(t, r.st.Pause(ctx, "x"))
	r.enqueue("x", nil)
	r.start()
	for end := time.Now().Add(30 * time.Second); !r.sup.Status().Reachable && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // Redis has not answered all loops yet
	}
	must(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	if e := within(t, failed); e.Loop != "cron" || e.Instance != "ticks" || !errors.Is(e.Err, store.ErrServer) {
		t.Errorf("%+v, want that of the ticks that are refused", e)
	}
	if st := r.sup.Status(); !st.Reachable {
		t.Errorf("%+v, want a server that is within reach", st)
	}
	must(t, r.st.Resume(ctx, "x"))
	within(t, starts)
	r.stopWell()
}
