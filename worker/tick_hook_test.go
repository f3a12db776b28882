package worker_test

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// hooks notes what the hooks of several processes see.
type hooks struct {
	mu         sync.Mutex
	said       map[time.Time][]string // what was added, by tick
	done, idle map[time.Time][]string // of those that dispatched it, and of those that did not
}

// of is the hook of a process.
func (h *hooks) of(node string) worker.TickHook {
	n := 0
	return func(instance string, tick worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
		h.mu.Lock()
		defer h.mu.Unlock()
		n++
		mark := fmt.Sprint(node, n, instance, tick.Entry)
		h.said[tick.At] = append(h.said[tick.At], mark)
		return map[string]string{"mark": mark}, func(e *worker.TickDispatched) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if e == nil {
				h.idle[tick.At] = append(h.idle[tick.At], mark)
				return
			}
			if e.Status != store.StatusDispatched || !e.At.Equal(tick.At) || e.Node != node {
				panic(fmt.Sprintf("%v is told %+v", tick, e))
			}
			h.done[tick.At] = append(h.done[tick.At], mark+e.Job.String())
		}
	}
}

func TestTheHookOfWhoDispatchesATickHasItsMetadataInTheJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := hooks{said: map[time.Time][]string{}, done: map[time.Time][]string{}, idle: map[time.Time][]string{}}
		c := each(10 * time.Minute)
		c.Options = []worker.EnqueueOption{worker.Metadata("of", "the entry")}
		a, f := cronRig(t, worker.Config{Node: "a", OnTick: h.of("a")}, c)
		b := a.again(f, worker.Config{Node: "b", OnTick: h.of("b")}, c)
		a.start()
		b.start()
		settle(3*time.Hour + time.Second)
		a.stopWell()
		b.stopWell()
		all := a.dispatches(store.DispatchFilter{})
		if len(all) != 18 {
			t.Fatalf("%d ticks, want 18", len(all))
		}
		both := 0
		for _, d := range all {
			job, err := a.st.Get(t.Context(), d.Job)
			if err != nil {
				t.Fatal(err)
			}
			mark := job.Metadata["mark"]
			if !strings.HasPrefix(mark, d.Node) || !strings.HasSuffix(mark, "xe") || job.Metadata["of"] != "the entry" {
				t.Errorf("the job of %v, dispatched by %s, has %v", d.FireAt, d.Node, job.Metadata)
			}
			at := d.FireAt
			if got := h.done[at]; !slices.Equal(got, []string{mark + d.Job.String()}) {
				t.Errorf("of %v it was told %q, want %s alone", at, got, mark)
			}
			if len(h.done[at])+len(h.idle[at]) != len(h.said[at]) {
				t.Errorf("of %v %q were asked, %q and %q were told", at, h.said[at], h.done[at], h.idle[at])
			}
			both += len(h.idle[at])
		}
		if len(h.done) != 18 {
			t.Errorf("told of %v", slices.Collect(maps.Keys(h.done)))
		}
		if both == 0 {
			t.Error("no other process was ever first")
		}
	})
}

func TestAHookOfTicksThatMisbehavesCostsItsMetadataAlone(t *testing.T) {
	for name, hook := range map[string]worker.TickHook{
		"panics": func(string, worker.Tick) (map[string]string, func(*worker.TickDispatched)) { panic("oops") },
		"exits": func(string, worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
			runtime.Goexit()
			return nil, nil
		},
		"panics later": func(string, worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
			return nil, func(*worker.TickDispatched) { panic("oops") }
		},
		"has no text": func(string, worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
			return map[string]string{"k": "\xff"}, nil
		},
		"has too much": func(string, worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
			return map[string]string{"k": strings.Repeat("x", 1<<10)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, f := cronRig(t, worker.Config{OnTick: hook, Logger: slog.New(slog.DiscardHandler)}, each(10*time.Minute))
				r.start()
				settle(time.Hour + time.Second)
				if len(f.ticks) != 6 {
					t.Errorf("%d ticks ran, want 6", len(f.ticks))
				}
				for _, d := range r.dispatches(store.DispatchFilter{}) {
					if job, err := r.st.Get(t.Context(), d.Job); err != nil || len(job.Metadata) != 0 {
						t.Errorf("%v, %v", job.Metadata, err)
					}
				}
				r.stopWell()
			})
		})
	}
}

// As a handler that does not return, it is left alone when the time to stop is over.
func TestAHookOfTicksThatDoesNotReturnLetsRunEnd(t *testing.T) {
	for what, hook := range map[string]func(forever chan struct{}) (map[string]string, func(*worker.TickDispatched)){
		"before": func(forever chan struct{}) (map[string]string, func(*worker.TickDispatched)) {
			<-forever
			return nil, nil
		},
		"after": func(forever chan struct{}) (map[string]string, func(*worker.TickDispatched)) {
			return nil, func(*worker.TickDispatched) { <-forever }
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				forever := make(chan struct{})
				cfg := worker.Config{DrainTimeout: 3 * time.Second, GraceTimeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
					OnTick: func(string, worker.Tick) (map[string]string, func(*worker.TickDispatched)) { return hook(forever) }}
				r, _ := cronRig(t, cfg, each(10*time.Minute))
				r.start()
				settle(11 * time.Minute)
				if took, err := r.stopTook(); took > 6*time.Second || err != nil {
					t.Errorf("the stop took %v, %v; want 5 s", took, err)
				}
				close(forever)
			})
		})
	}
}

// A request is encoded after the hook has returned, and again if its reply is lost.
func TestWhatAHookReturnsForATickMayChangeAfterwards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := each(10*time.Minute), each(10*time.Minute)
		a.Key, b.Key = "a", "b"
		same := map[string]string{}
		r, _ := cronRig(t, worker.Config{OnTick: func(_ string, tick worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
			same["entry"] = tick.Entry
			return same, nil
		}}, a, b)
		r.start()
		settle(time.Hour + time.Second)
		all := r.dispatches(store.DispatchFilter{})
		if len(all) != 12 {
			t.Errorf("%d ticks, want 12", len(all))
		}
		for _, d := range all {
			if job := r.job(d.Job); job.Metadata["entry"] != d.Entry {
				t.Errorf("the job of a tick of %s has %v", d.Entry, job.Metadata)
			}
		}
		r.stopWell()
	})
}
