package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestAScrapeWaitsNoLongerThanItMayWhateverRedisDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		p.enqueue("mail")
		mute := make(chan struct{})
		p.hook(redistest.Silent(mute))
		for range 3 { // the question that is out is not asked again
			start := time.Now()
			got := scrape(t, p.reg)
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("a scrape took %v", took)
			}
			wants(t, got, map[string]float64{"stint_store_up{}": 0, "stint_jobs_enqueued_total{stint_instance=mail}": 1})
			if _, ok := got["stint_jobs{state=todo,stint_instance=mail}"]; ok {
				t.Error("it tells what it can't know")
			}
		}
		close(mute)
		time.Sleep(time.Minute)
		wants(t, scrape(t, p.reg), map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=mail}": 1})
	})
}

func TestWhileTheStoreIsSlowTheLastAnswerServesForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		p.enqueue("mail")
		scrape(t, p.reg)
		mute := make(chan struct{})
		defer close(mute)
		p.hook(redistest.Silent(mute))
		for range 3 {
			time.Sleep(15 * time.Second) // and 3 s of the scrape
			wants(t, scrape(t, p.reg), map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=mail}": 1})
		}
		time.Sleep(15 * time.Second)
		got := scrape(t, p.reg)
		wants(t, got, map[string]float64{"stint_store_up{}": 0})
		if _, there := got["stint_jobs{state=todo,stint_instance=mail}"]; there {
			t.Error("it tells what it can't know")
		}
	})
}

// distant makes each round trip take that long.
type distant time.Duration

func (d distant) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d distant) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { time.Sleep(time.Duration(d)); return next(ctx, cmd) }
}
func (d distant) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmds)
	}
}

func TestTheLastAnswerServesUntilTheRedisClientGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		p.enqueue("mail")
		scrape(t, p.reg)
		fault := &redistest.Fault{}
		fault.Unplug()
		p.hook(distant(12 * time.Second))
		p.hook(fault)
		time.Sleep(5 * time.Second)
		const todo = "stint_jobs{state=todo,stint_instance=mail}"
		wants(t, scrape(t, p.reg), map[string]float64{"stint_store_up{}": 1, todo: 1})
		time.Sleep(15 * time.Second)
		got := scrape(t, p.reg)
		if n, there := got[todo]; got["stint_store_up{}"] != 0 || there {
			t.Errorf("it is up: %v, and has %v jobs", got["stint_store_up{}"], n)
		}
	})
}

func TestAThousandInstancesOnADistantServerAreToldInTime(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	st, err := store.Open(rdb, store.Options{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	for i := range n {
		if _, err := st.Runtime().Enqueue(t.Context(), new(store.Lane), fmt.Sprint("tenant", i), []store.NewJob{{ID: uuid.New(), Payload: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
	}
	rdb.AddHook(distant(10 * time.Millisecond)) // one after the other they would take 10 s; a scrape waits for 3
	told := 0
	for k, v := range scrape(t, registry(t, metrics.New(st))) {
		if strings.HasPrefix(k, "stint_jobs{state=todo,") && v == 1 {
			told++
		}
	}
	if told != n {
		t.Errorf("%d instances are told of, want %d", told, n)
	}
}

func TestAForeignKeyHidesOnlyItsOwnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := metered(t, worker.Config{})
		for _, instance := range []string{"good", "spoilt", "gone"} {
			p.enqueue(instance)
		}
		if err := p.st.Runtime().Client().Set(t.Context(), "stint:{spoilt}:dead", "not ours", 0).Err(); err != nil {
			t.Fatal(err)
		}
		p.deleteInstance("gone")
		time.Sleep(time.Second)
		scrape(t, p.reg)
		got := scrape(t, p.reg)
		wants(t, got, map[string]float64{
			"stint_jobs{state=todo,stint_instance=good}": 1, "stint_jobs_enqueued_total{stint_instance=spoilt}": 1,
			"stint_store_up{}": 1, "stint_store_spoilt{}": 1, // the store answers
			"stint_store_errors_total{op=counting,reason=foreign_key}": 1, "stint_store_errors_total{op=counting,reason=refused}": 0,
		})
		if n, there := got["stint_live_workers{stint_instance=good}"]; !there || n != 0 {
			t.Error("whether somebody serves the one that is well is not told")
		}
		if _, there := got["stint_jobs_enqueued_total{stint_instance=gone}"]; there {
			t.Error("the one that is deleted has series for as long as the other is spoilt")
		}
	})
}

func TestAForeignKeyInThePlaceOfAllInstancesIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		p.enqueue("mail")
		for _, key := range []string{"stint:instances", "stint:processes", "stint:entries"} {
			rdb := p.st.Runtime().Client()
			if err := errors.Join(rdb.Del(t.Context(), key).Err(), rdb.Set(t.Context(), key, "not ours", 0).Err()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		got := scrape(t, p.reg)
		wants(t, got, map[string]float64{"stint_store_up{}": 1, "stint_store_spoilt{}": 3, "stint_jobs_enqueued_total{stint_instance=mail}": 1})
		for _, name := range []string{"stint_jobs{state=todo,stint_instance=mail}", "stint_live_processes{}"} {
			if _, there := got[name]; there {
				t.Errorf("%s is told and can't be known", name)
			}
		}
	})
}

// afar is a node of a Cluster that is away: what has one of its keys gets no answer.
func afar(keys string) redistest.Intercept {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.Contains(fmt.Sprint(cmd.Args()), keys) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return next(ctx, cmd)
	}
}

func TestANodeThatIsAwayHidesOnlyWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		for _, instance := range []string{"far", "near"} {
			p.enqueue(instance)
		}
		for _, away := range []string{"stint:{far}:", "stint:processes", "stint:entries"} {
			p.hook(afar(away))
			time.Sleep(2 * time.Second)
			got := scrape(t, p.reg)
			wants(t, got, map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=near}": 1,
				"stint_jobs_enqueued_total{stint_instance=far}": 1})
			if _, there := got["stint_jobs{state=todo,stint_instance=far}"]; there {
				t.Error("what nobody answers for is told")
			}
		}
	})
}

func TestAHookThatPanicsOrEndsItsGoroutineCostsAScrapeNoMoreThanTheDepths(t *testing.T) {
	for name, does := range map[string]func(){"panics": func() { panic("a hook's") }, "ends its goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := fresh(t)
				p.enqueue("mail")
				var instead atomic.Pointer[func()]
				p.hook(redistest.Intercept(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if wild := instead.Load(); wild != nil {
						(*wild)()
					}
					return next(ctx, cmd)
				}))
				for range 3 {
					instead.Store(&does)
					time.Sleep(2 * time.Second)
					wants(t, scrape(t, p.reg), map[string]float64{"stint_store_up{}": 0, "stint_jobs_enqueued_total{stint_instance=mail}": 1})
					instead.Store(nil)
					time.Sleep(2 * time.Second)
					wants(t, scrape(t, p.reg), map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=mail}": 1})
				}
			})
		})
	}
}
