package store_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// What the tests of this package share.

func open(t *testing.T, rdb redis.UniversalClient, prefix string) *store.Store {
	t.Helper()
	st, err := store.Open(rdb, store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func noError(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: error %v, want %v", what, got, want)
	}
}

func aJob() store.NewJob { return store.NewJob{ID: uuid.New(), Payload: []byte(`{}`)} }

func enqueue(st *store.Store, ctx context.Context) error {
	return send(ctx, st, new(store.Lane), aJob())
}

// send makes one request, and returns the errors of its jobs as well.
func send(ctx context.Context, st *store.Store, lane *store.Lane, jobs ...store.NewJob) error {
	outcome, err := st.Runtime().Enqueue(ctx, lane, "mail", jobs)
	return errors.Join(append(outcome, err)...)
}

// pause stops a server, as a machine that sleeps does, or lets it go on.
func pause(t *testing.T, s *redistest.Server, on bool) {
	t.Helper()
	if err := syscall.Kill(s.PID(), map[bool]syscall.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[on]); err != nil {
		t.Fatal(err)
	}
}

// replicaOf starts a replica of a server; it follows a little later.
func replicaOf(t *testing.T, s *redistest.Server) *redistest.Server {
	t.Helper()
	return redistest.Start(t, redistest.Config("replicaof "+strings.Replace(s.Addr(), ":", " ", 1)))
}
