package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/promtest"
	"github.com/stint-go/stint/internal/redistest"
)

// TestMain lets this binary be the program itself.
func TestMain(m *testing.M) {
	if os.Getenv(programVar) != "" {
		main()
		return
	}
	os.Exit(redistest.Main(m))
}

const programVar = "STINT_TEST_SERVICE"

// process is the program, running.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	end  func() error // waits for its end
}

// launch starts the program on a port of its own choice.
func launch(t *testing.T, redisAddr string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0", "-redis", redisAddr, "-report", "@yearly"}, args...)...)
	cmd.Env = append(os.Environ(), programVar+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, end: sync.OnceValue(cmd.Wait)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = p.end()
		if t.Failed() {
			t.Logf("its log:\n%s", &log)
		}
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(said), "listening on ")
	if !ok {
		t.Fatalf("it says %q, %v", said, err)
	}
	p.addr = addr
	return p
}

// ask makes a request and returns the answer.
func (p *process) ask(method, path, body string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// enqueue posts a text and returns its id.
func (p *process) enqueue(body, query string) string {
	p.t.Helper()
	code, answer := p.ask("POST", "/texts"+query, body)
	var got struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &got); err != nil || code != http.StatusAccepted {
		p.t.Fatalf("%d %s", code, answer)
	}
	return got.ID
}

// await asks until the answer contains a text, for half a minute at most.
func (p *process) await(path, want string) string {
	p.t.Helper()
	var answer string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, answer = p.ask("GET", path, ""); strings.Contains(answer, want) {
			return answer
		}
	}
	p.t.Fatalf("%s is %q, want %q", path, answer, want)
	return ""
}

func TestTextsAreCountedAndToldOf(t *testing.T) {
	p := launch(t, "")
	p.await("/readyz", "ok")
	id := p.enqueue("To be, or not to be,", "")
	if got := p.await("/texts/"+id, `"done"`); got != "{\"state\":\"done\",\"words\":6,\"distinct\":4}\n" {
		t.Errorf("%s", got)
	}
	if got := p.await("/texts/"+p.enqueue("\xff", ""), `"dead"`); !strings.Contains(got, errNotText.Error()) {
		t.Errorf("%s", got)
	}
	for path, want := range map[string]int{"/texts/nonsense": 400, "/texts/0195f3c4-7f2a-7b1e-9a55-1f6c3f1f0a01": 404, "/healthz": 200} {
		if code, body := p.ask("GET", path, ""); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := p.ask("POST", "/texts", strings.Repeat("x", 1<<20)); code != 413 {
		t.Errorf("a text that is too long: %d", code)
	}
	_, metrics := p.ask("GET", "/metrics", "")
	for _, want := range []string{
		`stint_jobs_finished_total{outcome="completed",stint_instance="texts/count"} 1`,
		`stint_jobs_finished_total{outcome="buried",stint_instance="texts/count"} 1`,
		`stint_workers{pool="",state="idle",stint_instance="texts/count"} 20`,
		`stint_store_call_seconds_count{op="exchanging"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestABookIsCountedByItsChapters(t *testing.T) {
	p := launch(t, "")
	p.await("/readyz", "ok")
	code, answer := p.ask("POST", "/books", "To be, or not to be,\n\nthat is the question:\n\nto be")
	var got struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &got); err != nil || code != http.StatusAccepted {
		t.Fatalf("%d %s", code, answer)
	}
	if got := p.await("/books/"+got.ID, `"done"`); got != "{\"state\":\"done\",\"words\":12,\"distinct\":4}\n" {
		t.Errorf("%s", got)
	}
}

// A real Prometheus has the counts of steps, children and ticks of three processes, and that no tick is overdue.
func TestPrometheusCountsStepsAndTicksOfThreeProcesses(t *testing.T) {
	rdb := redistest.Start(t)
	var all []*process
	var targets []string
	for range 3 {
		p := launch(t, rdb.Addr(), "-report", "@every 1s")
		all, targets = append(all, p), append(targets, p.addr)
	}
	for _, p := range all {
		p.await("/readyz", "ok")
	}
	prom := promtest.Start(t, targets)
	prom.Await(t, `count(stint_steps_total{stint_instance="books/count",outcome="committed"})`, "", func(v map[string]float64) bool { return v[""] == 3 })
	const n, chapters = 40, 5
	for i := range n {
		body := strings.Repeat("some words\n\n", chapters-1) + "and the end"
		if code, answer := all[i%3].ask("POST", "/books", body); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, answer)
		}
	}
	by := func(promql, label string, want map[string]float64) {
		t.Helper()
		got := prom.Await(t, promql, label, func(v map[string]float64) bool { return maps.Equal(v, want) })
		if !maps.Equal(got, want) {
			t.Errorf("%s is %v, want %v", promql, got, want)
		}
	}
	const of = `{stint_instance="books/count"}`
	by(`sum by (outcome) (stint_jobs_finished_total`+of+`) > 0`, "outcome", map[string]float64{"completed": n, "parked": n})
	by(`sum by (outcome) (stint_steps_total`+of+`)`, "outcome", map[string]float64{"committed": n, "replayed": n + n*chapters, "dropped": 0})
	by(`sum(stint_children_dispatched_total`+of+`)`, "", map[string]float64{"": n * chapters})
	by(`sum(stint_children_swept_total`+of+`)`, "", map[string]float64{"": 0})
	by(`sum(stint_jobs_finished_total{stint_instance="texts/count",outcome="completed"})`, "", map[string]float64{"": n * chapters})
	by(`max(stint_jobs{stint_instance="books/count",state="parked"})`, "", map[string]float64{"": 0})

	ticks := prom.Await(t, `sum by (status) (stint_cron_ticks_total{stint_instance="reports"})`, "status", func(v map[string]float64) bool { return v["dispatched"] >= 3 })
	if ticks["dispatched"] < 3 || ticks["failed"] > 0 {
		t.Errorf("ticks by status are %v", ticks)
	}
	got := prom.Await(t, `sum(stint_cron_lag_seconds_count) == bool sum(stint_cron_ticks_total{status="dispatched"})`, "", func(v map[string]float64) bool { return v[""] == 1 })
	if got[""] != 1 {
		t.Error("not each tick that was dispatched has a lag")
	}
	by(`max(stint_cron_overdue_seconds) < bool 60`, "", map[string]float64{"": 1})
}

func TestSIGTERMDrains(t *testing.T) {
	rdb := redistest.Start(t)
	p := launch(t, rdb.Addr())
	p.await("/readyz", "ok")
	running, waiting := p.enqueue("one two", "?pause=2s"), ""
	p.await("/metrics", `stint_jobs_claimed_total{stint_instance="texts/count"} 1`)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.await("/readyz", "draining")
	if code, _ := p.ask("GET", "/healthz", ""); code != http.StatusOK {
		t.Errorf("it is not alive while it drains: %d", code)
	}
	waiting = p.enqueue("three", "") // it is still accepted, and for somebody else to run
	if err := p.end(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	other := launch(t, rdb.Addr())
	if got := other.await("/texts/"+running, `"state"`); !strings.Contains(got, `"words":2`) {
		t.Errorf("what ran is %s", got)
	}
	other.await("/texts/"+waiting, `"words":1`)
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	p := launch(t, "")
	if err := run(t.Context(), p.addr, "", "@hourly"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
}

// A real Prometheus scrapes three processes that share a Redis, and PromQL gives the counts of what was done.
func TestPrometheusCountsWhatThreeProcessesDid(t *testing.T) {
	rdb := redistest.Start(t)
	var all []*process
	var targets []string
	for range 3 {
		p := launch(t, rdb.Addr())
		all, targets = append(all, p), append(targets, p.addr)
	}
	for _, p := range all {
		p.await("/readyz", "ok")
	}
	prom := promtest.Start(t, targets)
	prom.Await(t, `count(stint_jobs_enqueued_total{stint_instance="texts/count"})`, "", func(v map[string]float64) bool { return v[""] == 3 })

	const good, bad = 250, 50
	var asking sync.WaitGroup
	for i, p := range all {
		asking.Go(func() {
			for n := range good + bad {
				body := "some words"
				if n < bad {
					body = "\xff"
				}
				if code, answer := p.ask("POST", "/texts", body); code != http.StatusAccepted {
					t.Errorf("process %d: %d %s", i, code, answer)
				}
			}
		})
	}
	asking.Wait()

	by := func(promql, label string, want map[string]float64) {
		t.Helper()
		got := prom.Await(t, promql, label, func(v map[string]float64) bool { return maps.Equal(v, want) })
		if !maps.Equal(got, want) {
			t.Errorf("%s is %v, want %v", promql, got, want)
		}
	}
	by("sum by (outcome) (stint_jobs_finished_total) > 0", "outcome", map[string]float64{"completed": 3 * good, "buried": 3 * bad})
	by("sum(stint_jobs_enqueued_total)", "", map[string]float64{"": 3 * (good + bad)})
	by("sum(stint_jobs_claimed_total)", "", map[string]float64{"": 3 * (good + bad)})
	by("max by (state) (stint_jobs) > 0", "state", map[string]float64{"done": 3 * good, "dead": 3 * bad})
	by("sum(stint_job_run_seconds_count)", "", map[string]float64{"": 3 * (good + bad)})
	by(`sum(stint_job_wait_seconds_bucket{le="+Inf"})`, "", map[string]float64{"": 3 * (good + bad)})
	by("sum by (stint_instance) (stint_workers)", "stint_instance", map[string]float64{instance: 60, books: 30, reports: 30})
	by("max by (stint_instance) (stint_live_workers)", "stint_instance", map[string]float64{instance: 60, books: 30, reports: 30})
	by("sum(stint_events_dropped_total + on() group_left() sum(stint_outages_total or vector(0)))", "", map[string]float64{"": 0})
	by("count by (instance) (stint_build_info)", "instance", map[string]float64{targets[0]: 1, targets[1]: 1, targets[2]: 1})
	got := prom.Query(t, "histogram_quantile(0.5, sum by (le) (stint_job_life_seconds_bucket))", "")
	if q := got[""]; q <= 0 || q > 60 {
		t.Errorf("half of the jobs lived for %v s", got)
	}
	if t.Failed() {
		_, body := all[0].ask("GET", "/metrics", "")
		fmt.Println(body)
	}
}

// A Prometheus that takes native histograms gets them.
func TestPrometheusTakesNativeHistograms(t *testing.T) {
	p := launch(t, "")
	p.await("/readyz", "ok")
	for range 20 {
		p.enqueue("some words", "")
	}
	prom := promtest.Start(t, []string{p.addr}, "native-histograms")
	got := prom.Await(t, "histogram_count(sum(stint_job_run_seconds))", "", func(v map[string]float64) bool { return v[""] == 20 })
	if got[""] != 20 {
		t.Errorf("%v observations, want 20", got)
	}
}
