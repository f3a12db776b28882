package redistest_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/redistest"
)

// No goroutine is ours, so that none is left even while the shared server runs.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers reports whether something listens at addr.
func answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func TestAServerAnswersOnLoopbackUntilItsTestEnds(t *testing.T) {
	var s *redistest.Server
	t.Run("while the test runs", func(t *testing.T) {
		s = redistest.Start(t)
		if !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
			t.Errorf("address %s", s.Addr())
		}
		if s.PID() == 0 {
			t.Error("no process")
		}
		if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	})
	if s == nil {
		t.Skip("redis-server is not installed")
	}
	if s.PID() != 0 || answers(s.Addr()) {
		t.Error("it is still there after its test")
	}
}

func TestClientsAreFreshAndCanBeEdited(t *testing.T) {
	s := redistest.Start(t)
	a, b := s.Client(t), s.Client(t, func(o *redis.Options) { o.DB = 3 })
	if err := a.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("database 3 has it: %v", err)
	}
}

func TestWithoutAOFNothingIsKept(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("after a restart: %v", err)
	}
}

func TestWithAOFWhatWasAnsweredOutlivesAKill(t *testing.T) {
	s := redistest.Start(t, redistest.AOF())
	c, addr, pid := s.Client(t), s.Addr(), s.PID()
	for name, down := range map[string]func(){"killed": s.Kill, "stopped": s.Stop, "running": func() {}} {
		if err := c.Incr(t.Context(), "n").Err(); err != nil {
			t.Fatal(name, err)
		}
		down()
		if name != "running" && (s.PID() != 0 || answers(addr)) {
			t.Errorf("%s: still there", name)
		}
		s.Restart()
		if s.Addr() != addr || s.PID() == pid || s.PID() == 0 {
			t.Errorf("%s: came back at %s as process %d", name, s.Addr(), s.PID())
		}
	}
	if n, err := c.Get(t.Context(), "n").Int(); n != 3 || err != nil {
		t.Errorf("n = %d, %v; want 3", n, err)
	}
}

func TestKillAndStopOfAStoppedServerDoNothing(t *testing.T) {
	s := redistest.Start(t)
	s.Kill()
	s.Kill()
	s.Stop()
}

func TestAServerThatHangsIsStoppedAllTheSame(t *testing.T) {
	s := redistest.Start(t)
	p, err := os.FindProcess(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if answers(s.Addr()) {
		t.Error("it is still there")
	}
}

func TestConfigLinesOverrule(t *testing.T) {
	s := redistest.Start(t, redistest.Config("maxmemory 10mb", "maxmemory-policy noeviction"), redistest.Config("databases 2"))
	for name, want := range map[string]string{"maxmemory": "10485760", "maxmemory-policy": "noeviction", "databases": "2", "save": ""} {
		got, err := s.Client(t).ConfigGet(t.Context(), name).Result()
		if err != nil || got[name] != want {
			t.Errorf("%s = %q, %v; want %q", name, got[name], err, want)
		}
	}
}

func TestAPortThatIsTakenIsLeftToItsOwner(t *testing.T) {
	first := redistest.Start(t)
	_, port, _ := net.SplitHostPort(first.Addr())
	taken, _ := strconv.Atoi(port)
	free, err := redistest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	pid := first.PID()
	second := redistest.Start(t, redistest.Ports(taken, free))
	if second.Addr() == first.Addr() {
		t.Errorf("both at %s", first.Addr())
	}
	second.Kill()
	if first.PID() != pid || first.Client(t).Ping(t.Context()).Err() != nil {
		t.Error("the first server is gone")
	}
}

// recorder is a test that only notes how it was ended.
type recorder struct {
	testing.TB
	ended, text string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Skip(a ...any)             { r.ended, r.text = "skipped", a[0].(string); panic(r) }
func (r *recorder) Fatal(a ...any)            { r.ended, r.text = "failed", a[0].(string); panic(r) }
func (r *recorder) Fatalf(f string, _ ...any) { r.ended, r.text = "failed", f; panic(r) }

func ending(t *testing.T, f func(t testing.TB)) (r *recorder) {
	r = &recorder{TB: t}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	f(r)
	return r
}

func TestWithoutRedisATestIsSkippedOrFailsAsTheEnvironmentSays(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for require, want := range map[string]string{"": "skipped", "0": "skipped", "1": "failed"} {
		t.Setenv("STINT_REQUIRE_REDIS", require)
		for name, f := range map[string]func(testing.TB){
			"Start":  func(t testing.TB) { redistest.Start(t) },
			"Shared": func(t testing.TB) { redistest.Shared(t) },
		} {
			if r := ending(t, f); r.ended != want || !strings.Contains(r.text, "redis-server is not installed") {
				t.Errorf("%s with STINT_REQUIRE_REDIS=%q: %q, %q", name, require, r.ended, r.text)
			}
		}
	}
}

func TestABadConfigurationFailsTheTest(t *testing.T) {
	redistest.Start(t) // skips where there is none
	r := ending(t, func(t testing.TB) { redistest.Start(t, redistest.Config("no-such-line 1")) })
	if r.ended != "failed" {
		t.Errorf("%q", r.ended)
	}
}

func TestAllTestsShareOneServer(t *testing.T) {
	a := redistest.Shared(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if b := redistest.Shared(t); b != a {
				t.Error("another one")
			}
		})
	}
	wg.Wait()
	for name, f := range map[string]func(){"Kill": a.Kill, "Stop": a.Stop, "Restart": a.Restart} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of the shared server is accepted", name)
				}
			}()
			f()
		}()
	}
	if err := a.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// binary is a test binary with one test.
type binary func()

func (b binary) Run() int { b(); return 3 }

func TestMainEndsTheSharedServer(t *testing.T) {
	var before *redistest.Server
	code := redistest.Main(binary(func() { before = redistest.Shared(t) }))
	if code != 3 {
		t.Errorf("exit code %d", code)
	}
	if before.PID() != 0 || answers(before.Addr()) {
		t.Error("it is still there")
	}
	if after := redistest.Shared(t); after == before || after.Client(t).Ping(t.Context()).Err() != nil {
		t.Error("there is no new one afterwards")
	}
}

func TestPrefixesDiffer(t *testing.T) {
	a, b := redistest.Prefix(t), redistest.Prefix(t)
	if a == b || !strings.HasPrefix(a, "TestPrefixesDiffer-") || len(a) > 60 {
		t.Errorf("%q and %q", a, b)
	}
	t.Run("with odd {characters} :*", func(t *testing.T) {
		if p := redistest.Prefix(t); strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			t.Errorf("%q", p)
		}
	})
}

// The binary of this test runs itself again as the owner of two servers, and is killed.
func TestNoServerOutlivesItsBinaryEvenWhenThatIsKilled(t *testing.T) {
	if os.Getenv("REDISTEST_OWNER") == "1" {
		own, shared := redistest.Start(t, redistest.AOF()), redistest.Shared(t)
		os.Stdout.WriteString("servers " + own.Addr() + " " + shared.Addr() + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed, or its parent is gone
		return
	}
	redistest.Start(t) // skips where there is none

	temp := t.TempDir()
	owner := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	owner.Env = append(os.Environ(), "REDISTEST_OWNER=1", "TMPDIR="+temp)
	if _, err := owner.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = owner.Process.Kill()
		_ = owner.Wait()
	}()
	var addrs []string
	for lines := bufio.NewScanner(out); addrs == nil && lines.Scan(); {
		if list, ok := strings.CutPrefix(lines.Text(), "servers "); ok {
			addrs = strings.Fields(list)
		}
	}
	if len(addrs) != 2 || !answers(addrs[0]) || !answers(addrs[1]) {
		t.Fatalf("servers at %v", addrs)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		if !within(10*time.Second, func() bool { return !answers(addr) }) {
			t.Errorf("the server at %s is still there", addr)
		}
	}
	if !within(10*time.Second, func() bool { left, _ := os.ReadDir(temp); return !holdsServerFiles(temp, left) }) {
		t.Error("their files are still there")
	}
}

// holdsServerFiles looks for what a server has written, below dir.
func holdsServerFiles(dir string, entries []os.DirEntry) bool {
	for _, e := range entries {
		path := dir + "/" + e.Name()
		if e.Name() == "redis.conf" {
			return true
		}
		if e.IsDir() {
			below, _ := os.ReadDir(path)
			if holdsServerFiles(path, below) {
				return true
			}
		}
	}
	return false
}

// within asks until it is so, for at most d.
func within(d time.Duration, so func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}
