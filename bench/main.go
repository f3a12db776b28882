// Bench measures this library beside its peers, on a redis-server that it starts itself.
//
//	go run .                                  everything, 5 rounds
//	go run . -rounds 1                        everything, quickly
//	go run . -list                            what there is to measure
//	go run . -only throughput -rounds 3       the measures of one trial
//	go run . -only throughput -sides '^stint$' -commands -cpuprofile cpu.out
//
// It prints a line for each round, then the table, and writes results.json. It ends with 1 if something could not be
// measured, or if a job was lost or ran twice; a budget that is missed is said and is no failure of the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxRun bounds a whole run.
const maxRun = 40 * time.Minute

func main() {
	var err error
	if what := os.Getenv(childEnv); what != "" {
		err = runChild(what)
	} else {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	rounds := 5
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil {
		rounds = n
	}
	flag.IntVar(&rounds, "rounds", rounds, "how often each trial is done, in turns; below 5 the long ones are shortened; ROUNDS is its default")
	only := flag.String("only", "", "a regular expression for the trials or measures to take")
	sides := flag.String("sides", "", "a regular expression for the variants to run")
	out := flag.String("out", "results.json", "where the results are written")
	docs := flag.String("docs", "", "where performance.md and the plots are that get the results (default ../docs, if everything is measured at full length)")
	seconds := flag.Float64("seconds", 0, "about how long a round of processing is (default 2, or 1 if there are less than 5 rounds)")
	list := flag.Bool("list", false, "list trials and measures, and do nothing")
	commands := flag.Bool("commands", false, "say after each round what Redis spent its time with")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this program")
	flag.Parse()
	if rounds < 1 {
		return fmt.Errorf("%d rounds: at least 1 is needed", rounds)
	}
	wanted, err := regexp.Compile("(?i)" + *only)
	if err != nil {
		return err
	}
	if *list {
		for _, m := range measures {
			fmt.Printf("%-16s %s\n", m.from.name, m.name)
		}
		return nil
	}
	b := newBench(os.Stdout)
	defer b.close()
	b.rounds, b.quick, b.commands, b.seconds = rounds, rounds < 5, *commands, *seconds
	if b.seconds == 0 {
		b.seconds = 2
		if b.quick {
			b.seconds = 1
		}
	}
	if b.sides, err = regexp.Compile("(?i)" + *sides); err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, maxRun)
	defer cancel()
	if *docs == "" && !b.quick && *only == "" && *sides == "" {
		*docs = "../docs"
	}
	return b.all(ctx, wanted, *out, *docs)
}

// all takes the measures that are wanted and reports them.
func (b *bench) all(ctx context.Context, wanted *regexp.Regexp, out, docs string) error {
	setting, err := b.setting(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(b.log, setting)
	var taken []measure
	due := map[*trial]bool{}
	for _, m := range measures {
		if wanted.MatchString(m.name) || wanted.MatchString(m.from.name) {
			taken, due[m.from] = append(taken, m), true
		}
	}
	ended := b.conductAll(ctx, due) // what there is by then is reported in any case
	rows := []row{b.faultRow("lost"), b.faultRow("doubled")}
	for _, m := range taken {
		rows = append(rows, b.take(m))
	}
	fmt.Fprintln(b.log)
	print(b.log, rows)
	if docs != "" && ended == nil {
		if err := b.document(docs, setting, rows); err != nil {
			return err
		}
	}
	return errors.Join(ended, b.conclude(rows, out))
}

// conclude writes the results and says in a word how it went.
func (b *bench) conclude(rows []row, out string) error {
	missed, failed := 0, 0
	for _, r := range rows {
		if r.OK != nil && !*r.OK {
			missed++
		}
	}
	for _, got := range b.got {
		failed += len(got.failed)
	}
	fmt.Fprintf(b.log, "\n%d of the budgets missed; %.0f s in all\n", missed, time.Since(b.began).Seconds())
	if err := save(out, rows); err != nil {
		return err
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d variants could not be measured", failed)
	case b.faults[ours]["lost"]+b.faults[ours]["doubled"] > 0:
		return fmt.Errorf("jobs were lost or ran twice")
	}
	return nil
}

// setting says what is measured, and on what.
func (b *bench) setting(ctx context.Context) (string, error) {
	srv, err := b.server(ctx, false)
	if err != nil {
		return "", err
	}
	info, err := srv.info(ctx, "server")
	if err != nil {
		return "", err
	}
	parts := []string{
		fmt.Sprintf("%s %s/%s on %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		"Redis " + info["redis_version"],
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, d := range build.Deps {
			if name, ok := compared[d.Path]; ok {
				parts = append(parts, name+" "+d.Version)
			}
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil { // where there is none, nothing is said
		parts = append(parts, "load average before "+strings.Fields(string(load) + " ?")[0])
	}
	return strings.Join(append(parts, fmt.Sprintf("%d rounds", b.rounds), time.Now().UTC().Format(time.DateOnly)), ", "), nil
}

// compared are the modules whose versions matter.
var compared = map[string]string{"github.com/hibiken/asynq": "asynq", "github.com/redis/go-redis/v9": "go-redis"}
