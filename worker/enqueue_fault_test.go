package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestALostReplyOfAnEnqueueMakesOneJobAndNoError(t *testing.T) {
	for name, lose := range map[string]func(*redistest.Fault) <-chan struct{}{
		"the request fails":             func(f *redistest.Fault) <-chan struct{} { return f.FailNth(1, redistest.Mentions("{images}")) },
		"its reply is lost":             func(f *redistest.Fault) <-chan struct{} { return f.LoseReplyNth(1, redistest.Mentions("{images}")) },
		"the connection breaks":         func(f *redistest.Fault) <-chan struct{} { return f.CutNth(1, redistest.Mentions("{images}")) },
		"the connection breaks, later":  func(f *redistest.Fault) <-chan struct{} { return f.CutReplyNth(1, redistest.Mentions("{images}")) },
		"the announcement is lost":      func(f *redistest.Fault) <-chan struct{} { return f.LoseReplyNth(1, redistest.Named("sadd")) },
		"the second announcement fails": func(f *redistest.Fault) <-chan struct{} { return f.FailNth(2, redistest.Named("sadd")) },
	} {
		t.Run(name, func(t *testing.T) {
			world := func(t *testing.T, st *store.Store, fault *redistest.Fault) {
				struck := lose(fault)
				c := worker.NewClient(st, worker.ClientConfig{})
				id, err := c.Enqueue(t.Context(), "images", 1)
				if err != nil {
					t.Fatal(err)
				}
				if !came(struck) {
					t.Fatal("no fault has happened")
				}
				again, err := c.Enqueue(t.Context(), "images", 2) // over the same lane
				if err != nil {
					t.Fatal(err)
				}
				page, err := st.List(t.Context(), store.Filter{Instance: "images"})
				if err != nil || len(page.Jobs) != 2 || page.Jobs[0].ID != id || page.Jobs[1].ID != again {
					t.Errorf("jobs %v, %v; want the two that were accepted", page.Jobs, err)
				}
			}
			t.Run("embedded", func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, worker.Config{})
					world(t, r.st, r.fault)
				})
			})
			t.Run("real", func(t *testing.T) {
				st, fault := realStore(t)
				world(t, st, fault)
			})
		})
	}
}

func TestAServerThatRefusesIsAnErrorAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c, redis := r.client(), r.st.Runtime().Client()
		r.accepts(c, "images", 0)
		must(t, redis.Rename(t.Context(), "stint:{images}:todo", "kept").Err())
		must(t, redis.Set(t.Context(), "stint:{images}:todo", "foreign", 0).Err())
		start := time.Now()
		_, err := c.Enqueue(t.Context(), "images", 1)
		var key *store.KeyError
		if !errors.Is(err, store.ErrServer) || !errors.As(err, &key) || key.Key != "stint:{images}:todo" {
			t.Errorf("%v, want the ErrServer that names the key", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v, want none", took)
		}
		r.accepts(c, "mail", 1) // another instance has nothing to do with it
		must(t, redis.Rename(t.Context(), "kept", "stint:{images}:todo").Err())
		r.accepts(c, "images", 2)
		if n := r.stats("images").Todo; n != 2 {
			t.Errorf("%d jobs, want 2", n)
		}
	})
}

func TestAFullServerRefusesToEnqueue(t *testing.T) {
	server := redistest.Start(t, redistest.Config("maxmemory 3mb", "maxmemory-policy noeviction"))
	st, err := store.Open(server.Client(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := worker.NewClient(st, worker.ClientConfig{})
	for range 1000 {
		if _, err = c.Enqueue(t.Context(), "images", strings.Repeat("x", 100_000)); err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrServer) {
		t.Errorf("%v, want ErrServer", err)
	}
}

func TestAHookOfTheRedisClientThatPanicsOrExitsIsTheCallersError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var act func()
		h := &hostile{act: func() { act() }}
		r.intercept(h.intercept)
		c := r.client()
		start := time.Now()
		act = func() { panic("oops") }
		h.left.Store(1)
		_, err := c.Enqueue(t.Context(), "images", 1)
		if p, ok := errors.AsType[*worker.PanicError](err); !ok || p.Value != "oops" {
			t.Errorf("%v, want the panic", err)
		}
		act = runtime.Goexit
		h.left.Store(1)
		if _, err := c.Enqueue(t.Context(), "images", 1); !errors.Is(err, worker.ErrGoexit) {
			t.Errorf("%v, want ErrGoexit", err)
		}
		r.job(r.accepts(c, "images", 1)) // the queue goes on
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// refusal is what Redis answers when it is full.
type refusal struct{}

func (refusal) Error() string { return "OOM command not allowed when used memory > 'maxmemory'." }
func (refusal) RedisError()   {}

// full is a server that carries out one script, whose reply is lost, and is full from then on.
type full struct{ scripts int }

func (f *full) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return next(ctx, cmd)
	}
	err := error(refusal{})
	if f.scripts++; f.scripts == 1 {
		_ = next(ctx, cmd)
		err = io.EOF
	}
	cmd.SetErr(err)
	return err
}

func TestARefusalAfterALostReplyDoesNotSayThatNothingWasAccepted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "mail", 1) // the server knows the script
		server := &full{}
		r.intercept(server.intercept)
		id, err := c.Enqueue(t.Context(), "mail", 2)
		if !errors.Is(err, store.ErrServer) || !strings.Contains(fmt.Sprint(err), "whether it was accepted is not known") {
			t.Errorf("%v; want ErrServer, and that the outcome is not known", err)
		}
		if id == uuid.Nil {
			t.Error("no id to settle it with")
		}
		_, err = c.Enqueue(t.Context(), "mail", 3)
		if !errors.Is(err, store.ErrServer) || strings.Contains(fmt.Sprint(err), "not known") {
			t.Errorf("%v; want ErrServer alone: nothing was accepted", err)
		}
	})
}
