package main

import (
	"context"
	"net"
	"sync/atomic"
)

// wire counts what clients say to a server, on the connections themselves, so that nothing is left out that a
// client sends of its own accord.
type wire struct {
	commands atomic.Int64
	trips    atomic.Int64 // how often something was sent and then answered
}

// traffic is what a wire has counted.
type traffic struct{ commands, trips int64 }

// traffic is zero for a nil wire.
func (w *wire) traffic() traffic {
	if w == nil {
		return traffic{}
	}
	return traffic{w.commands.Load(), w.trips.Load()}
}

// dial is a Dialer for a Redis client.
func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: c, wire: w}, nil
}

// counted is one connection. A client writes from one goroutine at a time.
type counted struct {
	net.Conn
	wire  *wire
	asked atomic.Bool
	scan  scanner
}

func (c *counted) Write(b []byte) (int, error) {
	c.wire.commands.Add(c.scan.commands(b))
	c.asked.Store(true)
	return c.Conn.Write(b)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.asked.CompareAndSwap(true, false) {
		c.wire.trips.Add(1)
	}
	return n, err
}

// scanner finds the commands in what a client writes, however it is cut: arrays of strings with their length.
type scanner struct {
	head byte // of the line that is being read: * or $; 0 between lines
	n    int  // its number
	skip int  // bytes of a string, with its end of line, that are still to come
}

// commands returns how many begin in b.
func (s *scanner) commands(b []byte) (found int64) {
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(b))
			s.skip, b = s.skip-n, b[n:]
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case s.head == 0:
			s.head, s.n = c, 0
		case '0' <= c && c <= '9':
			s.n = 10*s.n + int(c-'0')
		case c == '\n':
			if s.head == '*' {
				found++
			} else {
				s.skip = s.n + len("\r\n")
			}
			s.head = 0
		}
	}
	return found
}
