package health_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/health"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// ask returns the answer of a handler.
func ask(h http.Handler) string {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	return fmt.Sprint(rec.Code, " ", rec.Body.String())
}

// world is a supervisor that is yet to run, with a job that lasts until it is released.
type world struct {
	t       *testing.T
	st      *store.Store
	sup     *worker.Supervisor
	release chan struct{}
}

func setup(t *testing.T) *world {
	t.Helper()
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	w := &world{t: t, st: st, release: make(chan struct{})}
	if w.sup, err = worker.New(st, worker.Config{}); err != nil {
		t.Fatal(err)
	}
	worker.Handle(w.sup, "x", func(context.Context, struct{}) error { <-w.release; return nil })
	return w
}

func (w *world) want(live, ready string) {
	w.t.Helper()
	synctest.Wait()
	if got := ask(health.Live(w.sup)); got != live {
		w.t.Errorf("alive: %q, want %q", got, live)
	}
	if got := ask(health.Ready(w.sup)); got != ready {
		w.t.Errorf("ready: %q, want %q", got, ready)
	}
}

const ok = "200 ok\n"

func TestASupervisorIsReadyFromItsRunToItsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		w.want(ok, "503 supervisor 1: it is idle\n")
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- w.sup.Run(ctx) }()
		w.want(ok, ok)
		if _, err := worker.NewClient(w.st, worker.ClientConfig{}).Enqueue(ctx, "x", nil); err != nil {
			t.Fatal(err)
		}
		w.want(ok, ok)
		cancel()
		w.want(ok, "503 supervisor 1: it is draining\n")
		close(w.release)
		if err := <-ran; err != nil {
			t.Error(err)
		}
		w.want("503 supervisor 1: it has stopped\n", "503 supervisor 1: it is stopped\n")
	})
}

func TestWithoutRedisASupervisorIsAliveButNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		fault := &redistest.Fault{}
		w.st.Runtime().Client().(*redis.Client).AddHook(fault)
		workertest.Start(t, w.sup)
		time.Sleep(time.Minute)
		w.want(ok, ok)
		fault.Unplug()
		time.Sleep(10 * time.Second)
		w.want(ok, "503 supervisor 1: it can't reach Redis\n")
		time.Sleep(24 * time.Hour)
		w.want(ok, "503 supervisor 1: it can't reach Redis\n")
		fault.Plug()
		time.Sleep(10 * time.Second)
		w.want(ok, ok)
	})
}

func TestASupervisorWhoseLoopsHaveComeToAHaltIsNotAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		mute := make(chan struct{})
		defer close(mute)
		w.st.Runtime().Client().(*redis.Client).AddHook(redistest.Silent(mute))
		workertest.Start(t, w.sup)
		time.Sleep(health.Stuck - 10*time.Second)
		if got := ask(health.Live(w.sup)); got != ok {
			t.Errorf("before its time it is %q", got)
		}
		time.Sleep(20 * time.Second)
		if got := ask(health.Live(w.sup)); got[:3] != "503" || len(got) < 40 {
			t.Errorf("it is %q", got)
		}
	})
}

func TestOneOfSeveralIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		workertest.Start(t, w.sup)
		idle, err := worker.New(w.st, worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := ask(health.Ready(w.sup, idle, nil)); got != "503 supervisor 2: it is idle\nsupervisor 3: it is nil\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestASupervisorWhoseRunHasRefusedIsNotAlive(t *testing.T) {
	for name, register := range map[string]func(*worker.Supervisor){
		"nothing": func(*worker.Supervisor) {},
		"a bad one": func(s *worker.Supervisor) {
			worker.Handle(s, "no good", func(context.Context, struct{}) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			sup, err := worker.New(workertest.Store(t), worker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			register(sup)
			if got := ask(health.Live(sup)); got != ok {
				t.Errorf("before its Run it is %q", got)
			}
			if err := sup.Run(t.Context()); err == nil {
				t.Fatal("Run has not refused")
			}
			if got := ask(health.Live(sup)); got != "503 supervisor 1: it has stopped\n" {
				t.Errorf("it is %q", got)
			}
		})
	}
}

func TestASecondRunThatIsRefusedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		workertest.Start(t, w.sup)
		synctest.Wait()
		if err := w.sup.Run(t.Context()); err == nil {
			t.Error("there are two Runs")
		}
		w.want(ok, ok)
	})
}

func ExampleReady() {
	st, _ := store.OpenEmbedded(store.Options{})
	defer st.Close()
	sup, _ := worker.New(st, worker.Config{})
	rec := httptest.NewRecorder()
	health.Ready(sup).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(rec.Code, " ", rec.Body)
	// Output: 503 supervisor 1: it is idle
}
