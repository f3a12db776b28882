package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/promtest"
	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

func TestTheAlertRulesDoWhatTheirTestsSay(t *testing.T) {
	if out, err := promtest.Promtool(t, ".", "check", "rules", "alerts.yml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := promtest.Promtool(t, ".", "test", "rules", "alerts_test.yml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

var alertName = regexp.MustCompile(`(?:alert|alertname): (\w+)`)

func TestEachAlertIsTested(t *testing.T) {
	names := func(file string) (all []string) {
		for _, m := range alertName.FindAllStringSubmatch(read(t, file), -1) {
			if !slices.Contains(all, m[1]) {
				all = append(all, m[1])
			}
		}
		slices.Sort(all)
		return all
	}
	if rules, tests := names("alerts.yml"), names("alerts_test.yml"); !slices.Equal(rules, tests) {
		t.Errorf("the rules are %v, tested are %v", rules, tests)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The first thing of a kind that is counted raises its alert, as a collector tells it: a counter that begins with it would not be seen to grow.
func TestAlertsAreRaisedByWhatACollectorTells(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("rule_files: [alerts.yml]\nevaluation_interval: 1m\ntests:\n")
	for alert, happens := range map[string]func(p *process, calls *metrics.Calls){
		"": func(*process, *metrics.Calls) {},
		"StintCrashLoop": func(p *process, _ *metrics.Calls) {
			for range 6 {
				p.col.Observe(worker.JobReaped{Instance: "mail", State: store.Todo})
			}
		},
		"StintDeadGrowing": func(p *process, _ *metrics.Calls) {
			for range 11 {
				p.col.Observe(worker.JobFinished{Instance: "mail", Outcome: worker.Buried, State: store.Dead})
			}
		},
		"StintLeasesLost":    func(p *process, _ *metrics.Calls) { p.col.Observe(worker.LeaseLost{Instance: "mail"}) },
		"StintEventsDropped": func(p *process, _ *metrics.Calls) { p.col.Observe(worker.EventsDropped{Count: 1}) },
		"StintRedisRefusesWrites": func(_ *process, calls *metrics.Calls) {
			calls.Observe("enqueuing", time.Second, fmt.Errorf("enqueuing: %w", store.ErrServer))
		},
		"StintReplicasMissing": func(_ *process, calls *metrics.Calls) {
			calls.Observe("enqueuing", time.Second, fmt.Errorf("enqueuing: %w", &store.ReplicasError{Wanted: 1}))
		},
		"StintForeignKeys": func(p *process, _ *metrics.Calls) {
			if err := p.st.Runtime().Client().Set(context.Background(), "stint:{mail}:dead", "not ours", 0).Err(); err != nil {
				t.Error(err)
			}
		},
	} {
		var before, after map[string]float64
		synctest.Test(t, func(t *testing.T) {
			p, calls := metered(t, worker.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			worker.Handle(p.sup, "mail", func(context.Context, none) error { return nil })
			workertest.Start(t, p.sup)
			p.enqueue("mail")
			time.Sleep(2 * time.Second)
			before = scrape(t, p.reg)
			happens(p, calls)
			time.Sleep(2 * time.Second)
			after = scrape(t, p.reg)
		})
		rules.WriteString("  - interval: 1m\n    input_series:\n")
		for series, now := range after {
			past := "_"
			if v, there := before[series]; there {
				past = strconv.FormatFloat(v, 'f', -1, 64)
			}
			fmt.Fprintf(&rules, "      - { series: '%s', values: '%sx20 %sx20' }\n", quote(series), past, strconv.FormatFloat(now, 'f', -1, 64))
		}
		raised := ""
		if alert != "" {
			raised = `{ labels: '{alertname="` + alert + `"}', value: 1 }`
		}
		const ask = `    promql_expr_test: [{ expr: 'count by (alertname) (ALERTS{alertstate="firing"})', eval_time: 24m, exp_samples: [%s] }]` + "\n"
		fmt.Fprintf(&rules, ask, raised)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"alerts.yml": read(t, "alerts.yml"), "told_test.yml": rules.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := promtest.Promtool(t, dir, "test", "rules", "told_test.yml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// quote turns the name that scrape gives a series into Prometheus' own, as it is scraped from one process.
func quote(series string) string {
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	all := []string{`job="app"`, `instance="a:1"`}
	for l := range strings.SplitSeq(labels, ",") {
		if k, v, ok := strings.Cut(l, "="); ok {
			all = append(all, k+"="+strconv.Quote(v))
		}
	}
	return name + "{" + strings.Join(all, ",") + "}"
}

var (
	metricName = regexp.MustCompile(`\bstint_[a-z0-9_]+`)
	descName   = regexp.MustCompile(`fqName: "(\w+)"`)
)

// described returns the names of all metrics.
func described(t *testing.T) []string {
	t.Helper()
	descs := make(chan *prometheus.Desc, 100)
	metrics.New(workertest.Store(t)).Describe(descs)
	calls := &metrics.Calls{}
	calls.Observe("x", time.Second, store.ErrServer)
	calls.Describe(descs)
	close(descs)
	var names []string
	for d := range descs {
		names = append(names, descName.FindStringSubmatch(d.String())[1])
	}
	return names
}

func TestRulesDashboardAndDocsSpeakOfMetricsThatThereAre(t *testing.T) {
	there := described(t)
	for _, file := range []string{"alerts.yml", "alerts_test.yml", "dashboard.json", "../docs/metrics.md", "../docs/operations.md"} {
		for _, name := range metricName.FindAllString(read(t, file), -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} { // of a histogram
				base = strings.TrimSuffix(base, suffix)
			}
			if base != "stint_instance" && !slices.Contains(there, base) {
				t.Errorf("%s speaks of %s, which there is not", file, name)
			}
		}
	}
	docs := read(t, "../docs/metrics.md")
	for _, name := range there {
		if !strings.Contains(docs, "`"+name+"`") {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
}

// The dashboard as far as one can know it without Grafana: it is read, its panels have places, and each question is PromQL.
func TestTheDashboardHoldsTogether(t *testing.T) {
	var board struct {
		Title, UID string
		Templating struct{ List []struct{ Name string } }
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) < 10 {
		t.Errorf("it is called %q, %q and has %d panels", board.Title, board.UID, len(board.Panels))
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q has no title, no question, or another's number", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("panel %q covers %q, or is outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$job", ".*").Replace(target.Expr)
			quoted, _ := json.Marshal(expr)
			rules.WriteString("  - record: a:b\n    expr: " + string(quoted) + "\n    labels: {panel: " + string(must(json.Marshal(p.Title+target.Expr))) + "}\n")
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/rules.yml", []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtest.Promtool(t, dir, "check", "rules", "rules.yml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
