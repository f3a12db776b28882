package store

import (
	"context"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// embedded is a server in this process: it holds its data in memory and is gone with Close.
type embedded struct {
	server *miniredis.Miniredis
	client *redis.Client
}

// OpenEmbedded returns a Store with a server of its own inside this process, for a first try, for development and for
// tests. It opens no socket, so that it works in a testing/synctest bubble. Close ends it, and its jobs with it.
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
	s.embedded = &embedded{server, client}
	return s, nil
}

func (e *embedded) close() error {
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
