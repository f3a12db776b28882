package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Option changes what Start does.
type Option func(*config)

type config struct {
	lines []string
	pick  func() (int, error) // a port
}

// Config adds lines to the server's configuration, in the syntax of redis.conf: Config("maxmemory 10mb"). They come last
// and overrule what Start sets. Address, directory, log and password are not for the test to set.
func Config(lines ...string) Option {
	return func(c *config) { c.lines = append(c.lines, lines...) }
}

// AOF makes the server keep an append-only file: what it has answered is still there after Restart, also after Kill.
// Without this option nothing is kept.
func AOF() Option { return Config("appendonly yes", "appendfsync everysec") }

// Server is a redis-server that this package has started. It is safe for concurrent use.
type Server struct {
	tb     testing.TB // the owner; nil for the shared server
	binary string
	dir    string
	config config
	port   int // 0 until the first start, then always the same

	mu   sync.Mutex
	proc *process // nil while stopped
}

// Start runs a redis-server until the test has ended, and returns when it answers. Anything that goes wrong ends the
// test. It keeps nothing on disk unless it is told to.
func Start(t testing.TB, o ...Option) *Server {
	t.Helper()
	binary := find(t)
	s := &Server{tb: t, binary: binary, dir: t.TempDir(), config: config{pick: freePort}}
	for _, option := range o {
		option(&s.config)
	}
	t.Cleanup(s.Kill) // nothing of it is needed any more, and it is quicker than Stop
	if err := s.start(); err != nil {
		t.Fatalf("starting redis-server: %v", err)
	}
	return s
}

// find returns the path of redis-server. Without one it ends the test.
func find(t testing.TB) string {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err == nil {
		return binary
	}
	if os.Getenv("STINT_REQUIRE_REDIS") == "1" {
		t.Fatal("redis-server is not installed, and STINT_REQUIRE_REDIS=1 says that it must be")
	}
	t.Skip("redis-server is not installed; make test installs it")
	return ""
}

// Addr is host:port, the same after Restart.
func (s *Server) Addr() string { return addr(s.port) }

// PID is that of the server's process; 0 while it is stopped.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Client returns a new client, which is closed when t has ended. Each edit may change its options first.
func (s *Server) Client(t testing.TB, edit ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{
		Addr: s.Addr(),
		// A plain server has none to offer; asking only costs each connection a command.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, f := range edit {
		f(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Kill ends the server as a crash does, with SIGKILL. It does nothing while the server is stopped.
func (s *Server) Kill() { s.end((*process).kill) }

// Stop ends the server in good order, and with SIGKILL if it takes more than 5 s. It does nothing while the server is
// stopped.
func (s *Server) Stop() { s.end((*process).stop) }

// Restart stops the server, if it runs, and starts it again on the same port with what it has kept (see AOF). It returns
// when the server answers. A failure ends the test, so that it must be called from the test's own goroutine.
func (s *Server) Restart() {
	s.Stop()
	if err := s.start(); err != nil {
		s.tb.Fatalf("restarting redis-server: %v", err)
	}
}

func (s *Server) end(how func(*process)) {
	if s.tb == nil {
		panic("redistest: the shared server is not one test's to stop")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		how(s.proc)
		s.proc = nil
	}
}

// start launches the server. The port may be taken by somebody else between our look and the server's own, so that
// there are several tries.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return fmt.Errorf("it runs already")
	}
	var err error
	for range 10 {
		port := s.port
		if port == 0 {
			if port, err = s.config.pick(); err != nil {
				return err
			}
		}
		var taken bool
		if s.proc, taken, err = launch(s.binary, s.dir, port, s.config.lines); err == nil {
			if s.port == 0 { // Addr reads it without the lock
				s.port = port
			}
			return nil
		}
		if !taken {
			return err
		}
	}
	return err
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePort finds a port that nobody listens on. It stays below those that systems hand out to outgoing connections, one
// of which could otherwise sit on it when the server is to be started again.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		var l net.Listener
		if l, err = net.Listen("tcp", addr(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}
