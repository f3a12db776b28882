// Package promtest runs Prometheus for tests: a server of the test's own on a free loopback port, and promtool. A test that needs
// one of them and finds it missing is skipped; with STINT_REQUIRE_PROMETHEUS=1 in the environment it fails instead.
package promtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/redistest"
)

// Bounds, many times what is needed.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
)

// Promtool runs promtool in a directory and returns what it says. A failure is for the caller to report.
func Promtool(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), find(t, "promtool"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Server is a Prometheus that scrapes.
type Server struct {
	url    string
	client http.Client
}

// Start runs a Prometheus that scrapes the targets, each host:port with /metrics, every second, as the job "app", until the test
// has ended. It returns when the server is ready. features are names for --enable-feature.
func Start(t testing.TB, targets []string, features ...string) *Server {
	t.Helper()
	binary, dir := find(t, "prometheus"), t.TempDir()
	quoted, _ := json.Marshal(targets) // JSON is YAML
	conf := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: app, static_configs: [{targets: %s}]}]\n", quoted)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 5 { // somebody may take the port between our look and its
		var s *Server
		if s, err = start(t, binary, dir, conf, features); err == nil {
			return s
		}
	}
	t.Fatalf("starting prometheus: %v", err)
	return nil
}

func start(t testing.TB, binary, dir, conf string, features []string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	_ = l.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "--config.file="+conf, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr,
		"--enable-feature="+strings.Join(features, ","))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	dismiss, err := redistest.Guard(cmd.Process.Pid, dir)
	stop := func() {
		cancel()
		_ = cmd.Wait()
		if dismiss != nil {
			dismiss()
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	s := &Server{url: "http://" + addr, client: http.Client{Timeout: 10 * time.Second}}
	if err := s.ready(); err != nil {
		stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w; its log:\n%s", err, said)
	}
	t.Cleanup(stop)
	return s, nil
}

func (s *Server) ready() error {
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var resp *http.Response
		if resp, err = s.client.Get(s.url + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("it is not ready: %s", resp.Status)
		}
	}
	return err
}

// Query asks PromQL for the present and returns the value of each series by its label `by`, or the one value under "".
func (s *Server) Query(t testing.TB, promql, by string) map[string]float64 {
	t.Helper()
	resp, err := s.client.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(promql))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v: %s", promql, err, body)
	}
	values := map[string]float64{}
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %v", promql, err)
		}
		values[r.Metric[by]] = v
	}
	return values
}

// Await asks until the answer satisfies, for a minute at most, and returns the last.
func (s *Server) Await(t testing.TB, promql, by string, satisfies func(map[string]float64) bool) map[string]float64 {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		got := s.Query(t, promql, by)
		if satisfies(got) || time.Now().After(deadline) {
			return got
		}
	}
}

// find returns the path of a program of Prometheus' package. Without it it ends the test.
func find(t testing.TB, program string) string {
	t.Helper()
	binary, err := exec.LookPath(program)
	if err == nil {
		return binary
	}
	if os.Getenv("STINT_REQUIRE_PROMETHEUS") == "1" {
		t.Fatalf("%s is not installed, and STINT_REQUIRE_PROMETHEUS=1 says that it must be", program)
	}
	t.Skipf("%s is not installed; make test installs it", program)
	return ""
}
