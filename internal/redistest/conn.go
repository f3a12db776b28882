package redistest

import (
	"bytes"
	"net"
	"sync"
)

// conn is a connection that follows the requests written to it, and closes when a plan says so.
type conn struct {
	net.Conn
	fault *Fault

	mu      sync.Mutex
	request []byte // the beginning of a request that is not written to its end
	asked   int    // requests since the last read
	losing  *plan  // loses the reply to request number asked at its time
	lost    int    // that number
	reply   []byte // read from the server, not yet by the client
	closed  error  // what the client reads after reply
}

// Write passes b on, unless a plan cuts the connection at a request that ends in b.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.follow(b); err != nil {
		_ = c.Close()
		return 0, err
	}
	return c.Conn.Write(b)
}

// follow counts the requests that end in b. An error says that b is not to be written.
func (c *conn) follow(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = append(c.request, b...)
	for {
		words, n := parseRequest(c.request)
		if n == 0 {
			return nil
		}
		c.request = c.request[n:]
		c.asked++
		if setsUp(words[0]) {
			continue
		}
		p := c.fault.take(atConn, func() []string { return normal(words) })
		switch {
		case p == nil:
		case p.lose && c.losing != nil: // one a time
			c.fault.rearm(p)
		case p.lose:
			c.losing, c.lost = p, c.asked
		default:
			c.giveUp()
			close(p.struck)
			return faulty("the connection was cut before the command")
		}
	}
}

// Read passes on what the server sends, up to the reply that a plan wants lost.
func (c *conn) Read(b []byte) (int, error) {
	for {
		if n, err, ok := c.pending(b); ok {
			return n, err
		}
		n, err := c.Conn.Read(b)
		if c.arrived(b[:n], err) {
			return n, err
		}
	}
}

// pending gives the client what was held back, then the end; ok is false when there is neither.
func (c *conn) pending(b []byte) (n int, err error, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.losing != nil {
		return 0, nil, false // its reply is not complete yet
	}
	if len(c.reply) > 0 {
		n = copy(b, c.reply)
		c.reply = c.reply[n:]
		return n, nil, true
	}
	return 0, c.closed, c.closed != nil
}

// arrived takes what was read. It reports true if that is the client's as it is; otherwise it is held back until the
// reply that is to be lost is complete.
func (c *conn) arrived(b []byte, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.losing == nil {
		c.asked = 0
		return true
	}
	c.reply = append(c.reply, b...)
	if start, end, ok := findReply(c.reply, c.lost); ok {
		p := c.losing
		c.losing, c.asked = nil, 0
		if bytes.HasPrefix(c.reply[start:end], []byte("-NOSCRIPT")) {
			c.fault.rearm(p)
			return false
		}
		c.reply, c.closed = c.reply[:start], faulty("the connection was cut after the command")
		_ = c.Conn.Close()
		close(p.struck)
		return false
	}
	if err != nil { // it was lost anyway, and whether it was carried out nobody knows
		c.giveUp()
		c.closed = err
	}
	return false
}

// giveUp puts a plan back that this connection can't carry out any more.
func (c *conn) giveUp() {
	if c.losing != nil {
		c.fault.rearm(c.losing)
		c.losing = nil
	}
}

// Close closes the connection.
func (c *conn) Close() error {
	c.mu.Lock()
	c.giveUp()
	c.mu.Unlock()
	c.fault.forget(c)
	return c.Conn.Close()
}
