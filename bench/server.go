package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout is far more than a redis-server takes to answer.
const startTimeout = 15 * time.Second

// server is a redis-server of our own on loopback: nothing but this program ever talks to it, so it may be flushed.
type server struct {
	addr   string
	dir    string
	client *redis.Client
	cmd    *exec.Cmd
	hold   io.Closer // its end is the server's
}

// The shell ends the server when its input ends, which it does when this program is gone, however it went.
const serverScript = `"$0" "$1/redis.conf" >/dev/null & echo $!; read -r _; kill -9 $!; rm -rf "$1"`

// startServer runs a redis-server that keeps nothing on disk, unless lines of its configuration say otherwise.
func startServer(ctx context.Context, lines ...string) (*server, error) {
	var errs []error
	for range 5 { // somebody else may take the port before the server does
		s, err := launch(ctx, lines)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("starting redis-server: %w", errors.Join(errs...))
}

func launch(ctx context.Context, lines []string) (*server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "stint-bench")
	if err != nil {
		return nil, err
	}
	conf := append([]string{"bind 127.0.0.1", "port " + strconv.Itoa(port), "dir " + dir, `save ""`, "appendonly no"}, lines...)
	if err := os.WriteFile(filepath.Join(dir, "redis.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	s.cmd = exec.Command("sh", "-c", serverScript, binary, dir)
	s.hold, err = s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr})
	pid, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = s.ready(ctx, strings.TrimSpace(pid))
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// ready waits until the very process answers.
func (s *server) ready(ctx context.Context, pid string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		info, err := s.info(ctx)
		switch {
		case err == nil && info["process_id"] == pid:
			return nil
		case err == nil:
			return fmt.Errorf("another server took %s", s.addr)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v: %w", startTimeout, err)
		}
	}
}

// stop ends the server and removes what it wrote.
func (s *server) stop() {
	_ = s.client.Close()
	_ = s.hold.Close()
	_ = s.cmd.Wait()
}

func (s *server) flush(ctx context.Context) error {
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	return s.client.ConfigResetStat(ctx).Err()
}

// info is what the server says of itself.
func (s *server) info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := s.client.Info(ctx, sections...).Result()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

// memory is what the server's data take, in bytes.
func (s *server) memory(ctx context.Context) (float64, error) {
	info, err := s.info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info["used_memory"], 64)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
