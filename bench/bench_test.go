package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		fmt.Fprintln(os.Stderr, runChild(what))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A small round of each kind of side: jobs run, once each, and are measured. Nothing is said of how fast.
func TestEachSideRunsEveryJobOnce(t *testing.T) {
	b := smallBench(t)
	b.seconds = 0.01 // more jobs than workers, queues and requests in flight can hold, on the fastest side too
	for _, v := range []variant{stint0, stintTen, asynq0, floorMany, floorEach, floorSets} {
		s, err := load{counted: true}.run(t.Context(), b, v)
		if err != nil {
			t.Errorf("%s: %v", v.name, err)
			continue
		}
		for _, name := range []string{"jobs/s", "redis µs", "go µs", "allocs", "bytes", "commands", "trips", "memory B"} {
			if len(s[name]) != 1 || !(s[name][0] > 0) { // NaN, of a round that was over too early, isn't
				t.Errorf("%s: %s is %v, want one number above 0", v.name, name, s[name])
			}
		}
		if s["lost"][0] != 0 || s["doubled"][0] != 0 {
			t.Errorf("%s: %v lost, %v doubled", v.name, s["lost"], s["doubled"])
		}
	}
}

func TestWhatASideLosesAndDoublesIsCounted(t *testing.T) {
	b := smallBench(t)
	faulty := variant{name: "faulty", of: ours, open: func(at site) (side, error) {
		sd, err := listFloor(popEach)(at)
		return faultySide{sd}, err
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // the rest takes milliseconds
	defer cancel()
	tr := &trial{name: "faulty", variants: []variant{faulty}, run: load{}.run}
	b.conduct(ctx, tr)
	if b.got[tr].failed[faulty.name] == nil {
		t.Error("it has not failed, though not all jobs have run")
	}
	for _, what := range []string{"lost", "doubled"} {
		if r := b.faultRow(what); *r.OK || *r.Ours != 1 {
			t.Errorf("%v jobs %s, ok is %v; want 1 and false", *r.Ours, what, *r.OK)
		}
	}
}

// faultySide runs job 8 twice, and job 7 not at all.
type faultySide struct{ side }

func (f faultySide) work(workers int, handle func([]byte)) (func() error, error) {
	return f.side.work(workers, func(p []byte) {
		switch number(p) {
		case 7:
			return
		case 8:
			handle(p)
		}
		handle(p)
	})
}

func smallBench(t *testing.T) *bench {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("STINT_REQUIRE_REDIS") == "1" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed; make test installs it")
	}
	b := newBench(io.Discard)
	t.Cleanup(b.close)
	b.rounds, b.seconds, b.quick, b.sides = 1, 0, true, regexp.MustCompile("")
	return b
}

func TestEveryMeasureIsOfATrialThatRunsItsVariants(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range measures {
		if seen[m.name] {
			t.Errorf("there are two measures %q", m.name)
		}
		seen[m.name] = true
		if !slices.Contains(trials, m.from) {
			t.Errorf("%q: its trial %q is not run", m.name, m.from.name)
		}
		for _, name := range []string{m.ours, m.peer} {
			if name != "" && !slices.ContainsFunc(m.from.variants, func(v variant) bool { return v.name == name }) {
				t.Errorf("%q: the trial %q has no variant %q", m.name, m.from.name, name)
			}
		}
	}
}

func TestCommandsAreCountedHoweverTheyAreCut(t *testing.T) {
	text := []byte("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\n*2\r\n$1\r\n*1\r\n\r\n*1\r\n$0\r\n\r\n")
	for size := 1; size <= len(text); size++ {
		var s scanner
		var n int64
		for some := range slices.Chunk(text, size) {
			n += s.commands(some)
		}
		if n != 3 {
			t.Errorf("in chunks of %d: %d commands, want 3", size, n)
		}
	}
}

func TestPayloadsAreJSONOfTheSameLengthAndTellTheirNumber(t *testing.T) {
	for _, i := range []int{0, 1, 42, 999_999_999} {
		p := payload(i)
		if len(p) != payloadLen || !json.Valid(p) || number(p) != i {
			t.Errorf("payload(%d) is %s, of number %d", i, p, number(p))
		}
	}
	if n := number([]byte(`"x"`)); n != -1 {
		t.Errorf("something else is number %d", n)
	}
}

func TestFigures(t *testing.T) {
	all := []sample{{"a": {3}}, {"a": {1, 2}}, {"a": {10}, "b": {1}}}
	for name, c := range map[string]struct {
		v    value
		want figure
	}{
		"median":   {median("a"), figure{2, 1, 10}},
		"p99":      {percentile("a", 99), figure{10, 1, 10}},
		"worst":    {worst("a"), figure{10, 1, 10}},
		"total":    {total("a"), figure{16, 16, 16}},
		"no total": {total("c"), figure{}},
	} {
		if got, ok := c.v(all); !ok || got != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, c.want)
		}
	}
	if got, ok := median("c")(all); ok {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestABudgetIsMissedByTheLeastAndByWhatWasNotMeasured(t *testing.T) {
	tr := &trial{name: "t"}
	b := newBench(io.Discard)
	for _, c := range []struct {
		budget     budget
		ours, peer float64
		holds      bool
	}{
		{times(10), 100, 10, true},
		{times(10), 99.99, 10, false},
		{atMostTimes(0.2), 2, 10, true},
		{atMostTimes(0.2), 2.001, 10, false},
		{atMost(5), 5, 10, true},
		{atMost(5), 5.001, 10, false},
	} {
		b.got[tr] = &brought{map[string][]sample{us: {{"x": {c.ours}}}, them: {{"x": {c.peer}}}}, nil}
		m := measure{"m", "u", c.budget, tr, us, them, median("x")}
		if r := b.take(m); *r.OK != c.holds {
			t.Errorf("%v against %v, %s: %v", c.ours, c.peer, c.budget.text, *r.OK)
		}
		b.got[tr].failed = map[string]error{us: io.EOF}
		if r := b.take(m); *r.OK || r.Ours != nil {
			t.Errorf("%s holds for what has failed", c.budget.text)
		}
	}
}

func TestResultsAreAnArrayOfRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	b := newBench(io.Discard)
	if err := save(path, []row{b.faultRow("lost"), b.take(measure{name: "m", unit: "u", from: throughput, value: median("x")})}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(string(text)), "")
	want := `[{"name":"jobslostinallrounds","unit":"","ours":0,"peer":0,"ratio":null,"budget":"0","ok":true},` +
		`{"name":"m","unit":"u","ours":null,"peer":null,"ratio":null,"budget":null,"ok":null}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What comes while a chunk is delayed is not held up by it.
func TestTheProxyDelaysEachChunkAndNothingElse(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		c, err := server.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	const delay, chunks = 200 * time.Millisecond, 100
	go func() { _ = proxy(front, server.Addr().String(), delay) }()
	c, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	go func() {
		for range chunks {
			_, _ = c.Write([]byte("x"))
			time.Sleep(time.Millisecond) // so that they are chunks
		}
	}()
	var first time.Duration
	for i := range chunks {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = time.Since(began)
		}
	}
	if all := time.Since(began); first < delay || all > chunks*delay/4 {
		t.Errorf("the first came after %v, want at least %v; all after %v, want about as long, not %v", first, delay, all, chunks*delay)
	}
}

func TestPlotsAreDrawnFromWhatWasMeasured(t *testing.T) {
	b := newBench(io.Discard)
	if p := b.plots(); len(p) != 0 {
		t.Errorf("plots of nothing: %v", p)
	}
	for i, tr := range byWaiting {
		s := sample{"redis µs": {8 + float64(i)}, "memory B": {270}}
		b.got[tr] = &brought{map[string][]sample{us: {s}, them: {s}}, nil}
	}
	dir := t.TempDir()
	doc := filepath.Join(dir, "performance.md")
	for _, text := range []string{"nothing", "before\n" + resultsBegin + "\nold\n" + resultsEnd + "\nafter\n"} {
		if err := os.WriteFile(doc, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.document(dir, "here", []row{b.faultRow("lost")}); (err != nil) != (text == "nothing") {
			t.Errorf("documenting into %q: %v", text, err)
		}
	}
	text, err := os.ReadFile(doc)
	if err != nil || !strings.Contains(string(text), "| jobs lost in all rounds |") || strings.Contains(string(text), "old") ||
		!strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") {
		t.Errorf("performance.md is %q, %v", text, err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "performance-waiting.svg"))
	if err != nil || strings.Contains(string(svg), "NaN") || strings.Count(string(svg), "<path") < 10 {
		t.Errorf("the plot is %s, %v", svg, err)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "*.svg")); len(found) != 1 {
		t.Errorf("plots: %v, want one", found)
	}
}
