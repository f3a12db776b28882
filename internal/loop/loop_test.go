package loop_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/loop"
)

// reports collects what an Outages tells.
type reports struct {
	loop.Outages
	began, ended []loop.Outage
}

var errOwn = errors.New("the loop's own affair")

func newReports() *reports {
	r := &reports{}
	r.Began = func(o loop.Outage) { r.began = append(r.began, o) }
	r.Ended = func(o loop.Outage) { r.ended = append(r.ended, o) }
	r.Scope = func(n loop.Name, err error) string {
		if errors.Is(err, errOwn) {
			return n.Loop
		}
		return ""
	}
	return r
}

func TestPassesComeWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, passes := time.Now(), []time.Duration{}
		l := loop.Start(t.Context(), loop.Config{Pass: func(context.Context) (time.Duration, error) {
			passes = append(passes, time.Since(start))
			return time.Minute, nil
		}})
		time.Sleep(150 * time.Second)
		l.Stop()
		if len(passes) != 3 || passes[0] != 0 || passes[2] != 2*time.Minute {
			t.Fatalf("passes at %v, want 0s, 1m and 2m", passes)
		}
	})
}

func TestAKickBringsThePassForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := 0
		l := loop.Start(t.Context(), loop.Config{Pass: func(context.Context) (time.Duration, error) {
			passes++
			return time.Hour, nil
		}})
		synctest.Wait()
		l.Kick()
		synctest.Wait()
		if passes != 2 {
			t.Errorf("%d passes after a kick, want 2", passes)
		}
		l.Stop()
	})
}

func TestAFailureBacksOffAndIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, start := newReports(), time.Now()
		var passes []time.Duration
		l := loop.Start(t.Context(), loop.Config{Name: loop.Name{Loop: "x"}, Outages: &r.Outages,
			Pass: func(context.Context) (time.Duration, error) {
				passes = append(passes, time.Since(start))
				if time.Since(start) < time.Minute {
					return 0, errors.New("gone")
				}
				return time.Hour, nil
			}})
		time.Sleep(2 * time.Minute)
		l.Stop()
		if n := len(passes); n < 15 || n > 35 {
			t.Errorf("%d passes in a minute of failures, want 15 to 35", n)
		}
		if len(r.began) != 1 || r.began[0].Err.Error() != "gone" || r.began[0].Name.Loop != "x" {
			t.Errorf("began %v, want one outage", r.began)
		}
		if len(r.ended) != 1 || r.ended[0].Failures != len(passes)-1 || r.Any() {
			t.Errorf("ended %v after %d passes, want one outage", r.ended, len(passes))
		}
	})
}

func TestAPanicIsAFailureWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, passes := newReports(), 0
		l := loop.Start(t.Context(), loop.Config{Outages: &r.Outages, Pass: func(context.Context) (time.Duration, error) {
			if passes++; passes == 1 {
				panic("oops")
			}
			return time.Hour, nil
		}})
		time.Sleep(time.Second)
		l.Stop()
		if passes != 2 || len(r.began) != 1 || len(r.ended) != 1 {
			t.Fatalf("%d passes, began %v, ended %v; want 2, 1 and 1", passes, r.began, r.ended)
		}
		var p *loop.PanicError
		if !errors.As(r.began[0].Err, &p) || p.Value != "oops" || !strings.Contains(string(p.Stack), "loop_test.go") {
			t.Errorf("reported %v, want the panic and where it was", r.began[0].Err)
		}
	})
}

func TestAGoexitIsAFailureAndTheLoopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, passes, start := newReports(), 0, time.Now()
		var again time.Duration
		l := loop.Start(t.Context(), loop.Config{Outages: &r.Outages, Pass: func(context.Context) (time.Duration, error) {
			switch passes++; passes {
			case 1, 2:
				runtime.Goexit()
			case 3:
				again = time.Since(start)
			}
			return time.Hour, nil
		}})
		time.Sleep(time.Minute)
		l.Stop()
		if passes != 3 || len(r.began) != 1 || len(r.ended) != 1 || r.Any() {
			t.Fatalf("%d passes, began %v, ended %v; want 3, 1 and 1", passes, r.began, r.ended)
		}
		if !strings.Contains(r.began[0].Err.Error(), "Goexit") || r.ended[0].Failures != 2 {
			t.Errorf("reported %v and %d failures, want the Goexit and 2", r.began[0].Err, r.ended[0].Failures)
		}
		if again < loop.MinPause { // half of the first pause and half of the second, at least
			t.Errorf("the third pass came after %v: no pause in between", again)
		}
	})
}

func TestStopEndsALoopWhosePassExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReports()
		l := loop.Start(t.Context(), loop.Config{Outages: &r.Outages, Pass: func(ctx context.Context) (time.Duration, error) {
			<-ctx.Done()
			runtime.Goexit()
			return 0, nil
		}})
		time.Sleep(time.Second)
		l.Stop()
		if r.Any() || len(r.began) != 0 {
			t.Errorf("began %v, want none", r.began)
		}
	})
}

func TestStopEndsPassPauseAndSleep(t *testing.T) {
	pause := func(context.Context) (time.Duration, error) { return 0, errors.New("gone") }
	sleep := func(context.Context) (time.Duration, error) { return time.Hour, nil }
	pass := func(ctx context.Context) (time.Duration, error) { <-ctx.Done(); return 0, ctx.Err() }
	for name, f := range map[string]func(context.Context) (time.Duration, error){"pause": pause, "sleep": sleep, "pass": pass} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReports()
				l := loop.Start(t.Context(), loop.Config{Outages: &r.Outages, Pass: f})
				synctest.Wait()
				start := time.Now()
				l.Stop()
				if took := time.Since(start); took != 0 {
					t.Errorf("stopping took %v, want 0s", took)
				}
				if r.Any() {
					t.Error("a loop that is gone still counts as failing")
				}
			})
		})
	}
}

func TestStopInterruptsAPassThatHearsNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		l := loop.Start(t.Context(), loop.Config{
			Pass:      func(context.Context) (time.Duration, error) { <-end; return 0, nil },
			Interrupt: func() { close(end) },
		})
		synctest.Wait()
		l.Stop()
	})
}

func TestOneOutageForAllLoopsThatMeetIt(t *testing.T) {
	r := newReports()
	a, b := loop.Name{Loop: "a"}, loop.Name{Loop: "b", Instance: "images"}
	r.OK(a)
	r.Failed(a, errors.New("refused"))
	r.Failed(b, errors.New("reset"))
	r.Failed(a, errors.New("refused"))
	if len(r.began) != 1 || r.began[0].Name != a {
		t.Fatalf("began %v, want one outage, of a", r.began)
	}
	r.OK(a)
	if len(r.ended) != 0 {
		t.Fatalf("ended %v while b still fails", r.ended)
	}
	r.OK(b)
	if len(r.ended) != 1 || r.ended[0].Failures != 3 {
		t.Fatalf("ended %v, want one outage of 3 failures", r.ended)
	}
	r.Failed(b, errors.New("refused"))
	if len(r.began) != 2 {
		t.Fatalf("began %v, want a second outage", r.began)
	}
}

func TestALoopsOwnAffairIsAnOutageOfItsOwn(t *testing.T) {
	r := newReports()
	a, b := loop.Name{Loop: "a"}, loop.Name{Loop: "b"}
	r.Failed(a, errOwn)
	r.Failed(b, errors.New("refused"))
	if len(r.began) != 2 {
		t.Fatalf("began %v, want two outages", r.began)
	}
	r.OK(a)
	if len(r.ended) != 1 || !errors.Is(r.ended[0].Err, errOwn) {
		t.Fatalf("ended %v, want that of a", r.ended)
	}
	r.Failed(b, errOwn) // it got through, to meet another trouble
	if len(r.began) != 3 || len(r.ended) != 2 {
		t.Fatalf("began %v, ended %v, want 3 and 2", r.began, r.ended)
	}
	r.OK(b)
	if len(r.ended) != 3 || r.Any() {
		t.Fatalf("ended %v, want all", r.ended)
	}
}

func TestPausesGrowWithinTheirBounds(t *testing.T) {
	for n := range 100 {
		for range 20 {
			want := min(loop.MinPause<<min(max(n-1, 0), 16), loop.MaxPause)
			if d := loop.Pause(n, loop.MaxPause); d < want/2 || d > want {
				t.Fatalf("pause %d is %v, want %v to %v", n, d, want/2, want)
			}
			if d := loop.Pause(n, 250*time.Millisecond); d > 250*time.Millisecond {
				t.Fatalf("pause %d is %v, over the limit", n, d)
			}
		}
	}
}
