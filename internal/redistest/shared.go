package redistest

import (
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"
)

// The one global of the package: the server that the tests of a binary share is the binary's own.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Shared returns a server that all tests of the binary share. The first call starts it. It ends with the binary, a moment
// later, or before it where TestMain uses Main. Tests keep apart by Prefix. It can't be stopped, killed or restarted, and nobody flushes it.
func Shared(t testing.TB) *Server {
	t.Helper()
	binary := find(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = startShared(binary)
	}
	if shared.err != nil {
		t.Fatalf("starting the shared redis-server: %v", shared.err)
	}
	return shared.server
}

func startShared(binary string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, dir: dir, config: config{pick: freePort}}
	if err := s.start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Main runs a binary's tests and ends the shared server, if there is one. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m interface{ Run() int }) int {
	defer endShared()
	return m.Run()
}

func endShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return
	}
	shared.server.mu.Lock()
	defer shared.server.mu.Unlock()
	if p := shared.server.proc; p != nil {
		p.kill()
		shared.server.proc = nil
	}
	_ = os.RemoveAll(shared.server.dir)
	shared.server = nil
}

// Prefix returns a key prefix that nobody else has. It begins with the test's name and consists of letters, digits
// and - alone.
func Prefix(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return name[:min(len(name), 40)] + "-" + strings.ToLower(rand.Text()[:12])
}
