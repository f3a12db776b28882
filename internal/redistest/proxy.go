package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and a server and passes on what they say, until it is told to swallow it: a network that
// loses packets without telling anybody, where Fault is one that breaks connections.
type Proxy struct {
	to       string
	run      func(func())
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	swallows bool
	closed   bool
	pairs    map[*pair]struct{}
}

// pair is a client's connection with the one to the server.
type pair struct {
	client, server net.Conn // server is nil where the client came while the proxy swallowed
	deaf           bool     // guarded by Proxy.mu: something of it was swallowed, so that nothing more can be passed on
}

// NewProxy returns a proxy for the server at an address, until the test has ended. Goroutines are the test's: run starts
// one for the function that it is given, as the method Go of a sync.WaitGroup does. All have ended with the test.
func NewProxy(t testing.TB, run func(func()), to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("starting a proxy: %v", err)
	}
	p := &Proxy{to: to, run: run, listener: l, pairs: map[*pair]struct{}{}}
	t.Cleanup(p.close)
	p.start(p.accept)
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Swallow makes the proxy a black hole: it accepts connections and bytes, and passes nothing on, in either direction.
func (p *Proxy) Swallow() { p.set(true) }

// Pass ends that. A connection of which something was swallowed stays silent for ever, as one does that a firewall has
// forgotten; the others go on.
func (p *Proxy) Pass() { p.set(false) }

func (p *Proxy) set(swallows bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallows = swallows
}

func (p *Proxy) start(f func()) {
	p.running.Add(1)
	p.run(func() {
		defer p.running.Done()
		f()
	})
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		c := &pair{client: client}
		if !p.swallowing(nil) {
			if c.server, err = net.Dial("tcp", p.to); err != nil {
				_ = client.Close()
				continue
			}
		}
		if !p.adopt(c) {
			c.close()
			return
		}
		p.start(func() { p.forward(c, c.client, c.server) })
		if c.server != nil {
			p.start(func() { p.forward(c, c.server, c.client) })
		}
	}
}

func (p *Proxy) adopt(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.server == nil {
		c.deaf = true
	}
	if !p.closed {
		p.pairs[c] = struct{}{}
	}
	return !p.closed
}

// swallowing reports whether what comes is to be swallowed, which makes the pair deaf.
func (p *Proxy) swallowing(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == nil {
		return p.swallows
	}
	c.deaf = c.deaf || p.swallows
	return c.deaf
}

// forward passes bytes on until a side closes. Of a deaf pair the client never hears that the server has closed.
func (p *Proxy) forward(c *pair, from io.Reader, to io.Writer) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		deaf := p.swallowing(c)
		if n > 0 && !deaf {
			_, werr := to.Write(buf[:n])
			if err == nil {
				err = werr
			}
		}
		if err == nil {
			continue
		}
		if !deaf || from == io.Reader(c.client) {
			c.close()
			p.forget(c)
		}
		return
	}
}

func (p *Proxy) forget(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, c)
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.pairs {
		c.close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (c *pair) close() {
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}
