package store

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// embedded is a server in this process: it holds its data in memory and is gone with Close.
type embedded struct {
	server *miniredis.Miniredis
	client *redis.Client

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // those under way
}

// OpenEmbedded returns a Store with a server of its own inside this process, for a first try, for development and for
// tests. It opens no socket, so that it works in a testing/synctest bubble. Close ends it, and its jobs with it, once the calls
// under way have ended.
func OpenEmbedded(o Options) (*Store, error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	client := redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:1", // never dialled, and nothing to look up
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		PoolSize:                 1000, // a command that had to wait for a connection would arm a timer outside of a bubble
		ReadBufferSize:           4 << 10,
		WriteBufferSize:          4 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	s, err := Open(client, o)
	if err != nil {
		return nil, err
	}
	s.embedded = &embedded{server: server, client: client}
	return s, nil
}

// begin counts a call that close is to wait for. Without it a call that the server has carried out, and that others have heard
// of, would fail for its connection when somebody closes the store at once.
func (e *embedded) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return redis.ErrClosed
	}
	e.calls.Add(1)
	return nil
}

// end is for a call that has begun.
func (e *embedded) end() { e.calls.Done() }

func (e *embedded) close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.calls.Wait()
	err := e.client.Close()
	e.server.Close()
	return err
}

// SetTime sets the clock of an embedded server, which stands still from then on until it is set again; the zero time lets it run as
// the process' own does. For tests of what a clock that jumps does. It does nothing with another server.
func (r *Runtime) SetTime(t time.Time) {
	if r.s.embedded != nil {
		r.s.embedded.server.SetTime(t)
	}
}
