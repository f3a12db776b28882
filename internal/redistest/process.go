package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Bounds of a server's start and stop, many times what either takes.
const (
	startTimeout = 15 * time.Second
	stopTimeout  = 5 * time.Second
)

// process is a redis-server that runs.
type process struct {
	cmd   *exec.Cmd
	guard *guard
	out   *os.File // what it prints; ends when it does
}

// launch starts a server in dir and returns when it answers. taken reports that it ended because the port was in use.
func launch(binary, dir string, port int, lines []string) (p *process, taken bool, err error) {
	conf, log := filepath.Join(dir, "redis.conf"), filepath.Join(dir, "redis.log")
	text := strings.Join(slices.Concat([]string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(port),
		"dir " + strconv.Quote(dir),
		"logfile " + strconv.Quote(log),
		"daemonize no",
		`save ""`,
		"appendonly no",
	}, lines), "\n") + "\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, false, err
	}
	if err := os.WriteFile(log, nil, 0o600); err != nil { // a start is told apart from the one before
		return nil, false, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, false, err
	}
	p = &process{cmd: exec.Command(binary, conf), out: out}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, in, in
	err = p.cmd.Start()
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		return nil, false, err
	}
	if p.guard, err = watch(p.cmd.Process.Pid, dir); err == nil {
		err = p.ready(addr(port))
	}
	if err != nil {
		p.kill()
		said, _ := os.ReadFile(log)
		taken = bytes.Contains(said, []byte("Address already in use"))
		return nil, taken, fmt.Errorf("%w; its log:\n%s", err, said)
	}
	return p, false, nil
}

// ready waits until the server answers.
func (p *process) ready(addr string) error {
	var printed []byte
	for deadline := time.Now().Add(startTimeout); ; {
		if p.answers(addr) {
			return nil
		}
		// The end of its output is the end of the process. Waiting for it is also the pause between two looks.
		var buf [4096]byte
		_ = p.out.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, err := p.out.Read(buf[:])
		printed = append(printed, buf[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("it ended at once: %s", bytes.TrimSpace(printed))
		case time.Now().After(deadline):
			return fmt.Errorf("no answer within %v: %s", startTimeout, bytes.TrimSpace(printed))
		}
	}
}

// answers reports whether the process serves at addr: it, and not another that was quicker to take the port.
func (p *process) answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return false
	}
	said, _ := io.ReadAll(c)
	return bytes.HasPrefix(said, []byte("+PONG\r\n")) &&
		bytes.Contains(said, fmt.Appendf(nil, "\nprocess_id:%d\r\n", p.cmd.Process.Pid))
}

func (p *process) stop() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.kill()
		return
	}
	_ = p.out.SetReadDeadline(time.Now().Add(stopTimeout))
	if _, err := io.Copy(io.Discard, p.out); err != nil { // not its end, but the deadline
		_ = p.cmd.Process.Kill()
	}
	p.wait()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.wait()
}

func (p *process) wait() {
	_ = p.cmd.Wait() // how it ended is its owner's choice
	p.guard.end()
	_ = p.out.Close()
}

// guard ends a server whose owner was killed and could not do it: a shell that waits for the end of its input, which
// comes when the owner is gone, however it went. Unlike a parent-death signal it works on every Unix and doesn't hang on
// the thread that started the server.
type guard struct {
	cmd  *exec.Cmd
	hold *os.File // its input; nothing is ever written
}

// The guard is not to follow its owner when the terminal interrupts both.
const guardScript = `trap '' INT TERM HUP; read -r _; kill -9 "$1"; rm -rf "$2"`

// watch sets a guard over a server and the directory it leaves behind.
func watch(pid int, dir string) (*guard, error) {
	in, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.Command("sh", "-c", guardScript, "redistest-guard", strconv.Itoa(pid), dir)
	cmd.Stdin = in
	if err := cmd.Start(); err != nil {
		_ = hold.Close()
		return nil, fmt.Errorf("starting its guard: %w", err)
	}
	return &guard{cmd, hold}, nil
}

// Guard ends a process that a test has started, and removes its directory, when the test's own process is gone without having
// dismissed the guard.
func Guard(pid int, dir string) (dismiss func(), err error) {
	g, err := watch(pid, dir)
	if err != nil {
		return nil, err
	}
	return g.end, nil
}

// end dismisses the guard; of a nil one there is none to dismiss.
func (g *guard) end() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = g.hold.Close()
}
