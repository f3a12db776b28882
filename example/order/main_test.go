package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// TestMain lets this binary be the program itself.
func TestMain(m *testing.M) {
	if os.Getenv(programVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const programVar = "STINT_TEST_ORDER"

// program runs the example to its end, or to its crash, and returns what it printed.
func program(t *testing.T, args ...string) (out string, killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), programVar+"=1")
	b, err := cmd.CombinedOutput()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if killed = status.Signaled() && status.Signal() == syscall.SIGKILL; err != nil && !killed {
		t.Fatalf("%v: %v\n%s", args, err, b)
	}
	return string(b), killed
}

func TestWhereverTheProcessIsKilledEachCommittedEffectIsDoneOnce(t *testing.T) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t) // of its own: a process works on all orders that there are
			effects := filepath.Join(t.TempDir(), "effects.log")
			args := []string{"-redis", server.Addr(), "-order", step, "-effects", effects, "-pause", "100ms"}
			if out, killed := program(t, append(args, "-crash-at", step)...); !killed {
				t.Fatalf("it was not killed:\n%s", out)
			}
			out, killed := program(t, args...)
			if killed || !strings.Contains(out, "goes on") || !strings.Contains(out, "is done: receipt "+step+", label-"+step+".png") {
				t.Fatalf("the second run:\n%s", out)
			}
			b, err := os.ReadFile(effects)
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"charge", "reserve", "render", "notify"} {
				n := strings.Count("\n"+string(b), "\n"+what+" ")
				if what == "render" && step == "render" && n == 2 {
					continue // the child ran at that moment, and was killed between its effect and its end
				}
				if n != 1 {
					t.Errorf("%s was done %d times, want once:\n%s", what, n, b)
				}
			}
		})
	}
}

func TestACrashAtAStepThatThereIsNotIsRefused(t *testing.T) {
	err := run(t.Context(), options{redis: "127.0.0.1:1", order: "7", crashAt: "chrage"})
	if err == nil || !strings.Contains(err.Error(), "chrage") || !strings.Contains(err.Error(), "charge, reserve") {
		t.Errorf("%v, want an error that names the steps", err)
	}
}

func TestTheOrderSurvivesACrashAtEveryStep(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		workertest.CrashEverywhere(t, func(_ testing.TB, sup *worker.Supervisor) {
			register(sup, &shop{options{effects: filepath.Join(dir, "effects.log"), pause: 5 * time.Minute}})
		}, "order", order{"7", 42})
	})
}
