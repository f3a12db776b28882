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
	"github.com/stint-go/stint/worker/workertest"
)

func TestWithoutServingAnInstanceThereAreDepths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		client := worker.NewClient(st, worker.ClientConfig{})
		for _, delay := range []time.Duration{0, 0, time.Hour} {
			if _, err := client.Enqueue(t.Context(), "mail", nil, worker.Delay(delay)); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.Pause(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second)
		got := scrape(t, registry(t, metrics.New(st)))
		wants(t, got, map[string]float64{
			"stint_jobs{state=todo,stint_instance=mail}": 2, "stint_jobs{state=scheduled,stint_instance=mail}": 1, "stint_jobs{state=dead,stint_instance=mail}": 0,
			"stint_oldest_todo_age_seconds{stint_instance=mail}": 7, "stint_paused{stint_instance=mail}": 1,
			"stint_live_workers{stint_instance=mail}": 0, "stint_live_processes{}": 0, "stint_store_up{}": 1,
		})
		if _, ok := got["stint_live_workers{stint_instance=mail}"]; !ok {
			t.Error("that nobody serves the instance is not told")
		}
	})
}

func TestTheSeriesOfAnInstanceThatIsGoneAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		col := metrics.New(st)
		reg := registry(t, col)
		client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
		for i := range 50 {
			if _, err := client.Enqueue(t.Context(), fmt.Sprint("tenant", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		all := len(scrape(t, reg))
		for i := range 49 {
			if err := st.DeleteInstance(t.Context(), fmt.Sprint("tenant", i), true); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		got := scrape(t, reg)
		if len(got) > all/30 {
			t.Errorf("%d series of one instance, %d of 50", len(got), all)
		}
		wants(t, got, map[string]float64{"stint_jobs_enqueued_total{stint_instance=tenant49}": 1})
		if _, err := client.Enqueue(t.Context(), "tenant0", nil); err != nil {
			t.Fatal(err)
		}
		wants(t, scrape(t, reg), map[string]float64{ // at once, while what the store said before it is still fresh
			"stint_jobs_enqueued_total{stint_instance=tenant49}": 1, "stint_jobs_enqueued_total{stint_instance=tenant0}": 2,
		})
	})
}

func TestTheCountersOfAnInstanceThatComesBackGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		col := metrics.New(st)
		reg := registry(t, col)
		client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
		enqueue := func() {
			t.Helper()
			if _, err := client.Enqueue(t.Context(), "tenant", nil); err != nil {
				t.Fatal(err)
			}
			col.Observe(worker.JobStarted{Instance: "tenant", Waited: time.Second})
		}
		gone := func() { // it is deleted, and every scrape says so
			t.Helper()
			if err := st.DeleteInstance(t.Context(), "tenant", true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			for range 2 {
				if n, there := scrape(t, reg)["stint_jobs_enqueued_total{stint_instance=tenant}"]; there {
					t.Errorf("it is gone, and has %v jobs enqueued", n)
				}
			}
		}
		for n := range 5 {
			enqueue()
			wants(t, scrape(t, reg), map[string]float64{
				"stint_jobs_enqueued_total{stint_instance=tenant}": float64(n + 1), "stint_job_wait_seconds{stint_instance=tenant}": float64(n + 1),
			})
			gone()
		}
		for i := range metrics.Remembered { // as many others come and go, and none stays for ever
			col.Observe(worker.JobEnqueued{Instance: fmt.Sprint("other", i)})
		}
		time.Sleep(2 * time.Second)
		scrape(t, reg)
		enqueue()
		wants(t, scrape(t, reg), map[string]float64{"stint_jobs_enqueued_total{stint_instance=tenant}": 1})
	})
}

func TestWhatIsCountedWhileTheStoreIsAskedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		col := metrics.New(st)
		reg := registry(t, col)
		client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
		if _, err := client.Enqueue(t.Context(), "mail", nil); err != nil {
			t.Fatal(err)
		}
		if err := st.DeleteInstance(t.Context(), "mail", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		mute := make(chan struct{})
		st.Runtime().Client().(*redis.Client).AddHook(redistest.Silent(mute))
		done := make(chan map[string]float64)
		go func() { done <- scrape(t, reg) }()
		time.Sleep(time.Second)
		col.Observe(worker.JobEnqueued{Instance: "mail"}) // of another process' making, after it was said that there is none
		close(mute)
		wants(t, <-done, map[string]float64{"stint_jobs_enqueued_total{stint_instance=mail}": 2})
	})
}

func TestAnEntryThatNobodyFiresIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		sup, err := worker.New(st, worker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		sup.Schedule(worker.Cron{Key: "hourly", Spec: "@every 1h", Instance: "reports"}, worker.Cron{Key: "daily", Spec: "@every 24h", Instance: "reports"},
			worker.Cron{Key: "held", Spec: "@every 1h", Instance: "held"})
		stop := start(t, sup)
		time.Sleep(90 * time.Minute)
		reg := registry(t, metrics.New(st))
		const overdue, held = "stint_cron_overdue_seconds{stint_instance=reports}", "stint_cron_overdue_seconds{stint_instance=held}"
		got := scrape(t, reg)
		if d, there := got[overdue]; !there || d != 0 {
			t.Errorf("all is dispatched, and overdue for %v s", d)
		}
		stop()
		if err := st.EnableEntry(t.Context(), "held", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		wants(t, scrape(t, reg), map[string]float64{overdue: (2*time.Hour + 30*time.Minute).Seconds(), held: 0})
	})
}

func TestAScrapeWaitsNoLongerThanItMayWhateverRedisDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		col := metrics.New(st)
		reg := registry(t, col)
		client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
		if _, err := client.Enqueue(t.Context(), "mail", nil); err != nil {
			t.Fatal(err)
		}
		mute := make(chan struct{})
		st.Runtime().Client().(*redis.Client).AddHook(redistest.Silent(mute))
		for range 3 { // the question that is out is not asked again
			start := time.Now()
			got := scrape(t, reg)
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
		wants(t, scrape(t, reg), map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=mail}": 1})
	})
}

func TestScrapesAtTheSameTimeAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		client := worker.NewClient(st, worker.ClientConfig{})
		for i := range 3 {
			if _, err := client.Enqueue(t.Context(), fmt.Sprint("x", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		fault := &redistest.Fault{}
		st.Runtime().Client().(*redis.Client).AddHook(fault)
		reg := registry(t, metrics.New(st))
		scrape(t, reg) // the scripts are known from here on
		time.Sleep(2 * time.Second)
		before := fault.Seen()
		done := make(chan struct{})
		for range 10 {
			go func() {
				_, _ = reg.Gather()
				done <- struct{}{}
			}()
		}
		for range 10 {
			<-done
		}
		if n := fault.Seen() - before; n != 6 { // instances, three of them, processes, entries of which there are none
			t.Errorf("10 scrapes of 3 instances cost %d commands, want 6", n)
		}
	})
}

func TestAForeignKeyHidesOnlyItsOwnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := &metrics.Calls{}
		st, err := store.OpenEmbedded(store.Options{OnCall: calls.Observe})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		col := metrics.New(st)
		client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
		for _, instance := range []string{"good", "spoilt", "gone"} {
			if _, err := client.Enqueue(t.Context(), instance, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.Runtime().Client().Set(t.Context(), "stint:{spoilt}:dead", "not ours", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := st.DeleteInstance(t.Context(), "gone", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		reg := registry(t, col, calls)
		scrape(t, reg)
		got := scrape(t, reg)
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
		st := workertest.Store(t)
		col := metrics.New(st)
		client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
		if _, err := client.Enqueue(t.Context(), "mail", nil); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"stint:instances", "stint:processes", "stint:entries"} {
			rdb := st.Runtime().Client()
			if err := errors.Join(rdb.Del(t.Context(), key).Err(), rdb.Set(t.Context(), key, "not ours", 0).Err()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		got := scrape(t, registry(t, col))
		wants(t, got, map[string]float64{"stint_store_up{}": 1, "stint_store_spoilt{}": 3, "stint_jobs_enqueued_total{stint_instance=mail}": 1})
		for _, name := range []string{"stint_jobs{state=todo,stint_instance=mail}", "stint_live_processes{}"} {
			if _, there := got[name]; there {
				t.Errorf("%s is told and can't be known", name)
			}
		}
	})
}

// afar is a node of a Cluster that is away: what has one of its keys gets no answer.
type afar string

func (a afar) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a afar) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (a afar) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(fmt.Sprint(cmd.Args()), string(a)) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return next(ctx, cmd)
	}
}

func TestANodeThatIsAwayHidesOnlyWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		col := metrics.New(st)
		reg := registry(t, col)
		client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
		for _, instance := range []string{"far", "near"} {
			if _, err := client.Enqueue(t.Context(), instance, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, away := range []afar{"stint:{far}:", "stint:processes", "stint:entries"} {
			st.Runtime().Client().(*redis.Client).AddHook(away)
			time.Sleep(2 * time.Second)
			got := scrape(t, reg)
			wants(t, got, map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=near}": 1,
				"stint_jobs_enqueued_total{stint_instance=far}": 1})
			if _, there := got["stint_jobs{state=todo,stint_instance=far}"]; there {
				t.Error("what nobody answers for is told")
			}
		}
	})
}

// wild does something else with commands while it is set.
type wild struct{ instead atomic.Pointer[func()] }

func (w *wild) DialHook(next redis.DialHook) redis.DialHook { return next }
func (w *wild) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if instead := w.instead.Load(); instead != nil {
			(*instead)()
		}
		return next(ctx, cmd)
	}
}
func (w *wild) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestAHookThatPanicsOrEndsItsGoroutineCostsAScrapeNoMoreThanTheDepths(t *testing.T) {
	for name, does := range map[string]func(){"panics": func() { panic("a hook's") }, "ends its goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := workertest.Store(t)
				col := metrics.New(st)
				reg := registry(t, col)
				client := worker.NewClient(st, worker.ClientConfig{OnEvent: col.Observe})
				if _, err := client.Enqueue(t.Context(), "mail", nil); err != nil {
					t.Fatal(err)
				}
				hook := &wild{}
				st.Runtime().Client().(*redis.Client).AddHook(hook)
				for range 3 {
					hook.instead.Store(&does)
					time.Sleep(2 * time.Second)
					wants(t, scrape(t, reg), map[string]float64{"stint_store_up{}": 0, "stint_jobs_enqueued_total{stint_instance=mail}": 1})
					hook.instead.Store(nil)
					time.Sleep(2 * time.Second)
					wants(t, scrape(t, reg), map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=mail}": 1})
				}
			})
		})
	}
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

func TestWhileTheStoreIsSlowTheLastAnswerServesForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		client := worker.NewClient(st, worker.ClientConfig{})
		if _, err := client.Enqueue(t.Context(), "mail", nil); err != nil {
			t.Fatal(err)
		}
		reg := registry(t, metrics.New(st))
		scrape(t, reg)
		mute := make(chan struct{})
		defer close(mute)
		st.Runtime().Client().(*redis.Client).AddHook(redistest.Silent(mute))
		for range 3 {
			time.Sleep(15 * time.Second) // and 3 s of the scrape
			wants(t, scrape(t, reg), map[string]float64{"stint_store_up{}": 1, "stint_jobs{state=todo,stint_instance=mail}": 1})
		}
		time.Sleep(15 * time.Second)
		got := scrape(t, reg)
		wants(t, got, map[string]float64{"stint_store_up{}": 0})
		if _, there := got["stint_jobs{state=todo,stint_instance=mail}"]; there {
			t.Error("it tells what it can't know")
		}
	})
}

func TestTheLastAnswerServesUntilTheRedisClientGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		if _, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(t.Context(), "mail", nil); err != nil {
			t.Fatal(err)
		}
		reg := registry(t, metrics.New(st))
		scrape(t, reg)
		fault := &redistest.Fault{}
		fault.Unplug()
		st.Runtime().Client().(*redis.Client).AddHook(distant(12 * time.Second))
		st.Runtime().Client().(*redis.Client).AddHook(fault)
		time.Sleep(5 * time.Second)
		const todo = "stint_jobs{state=todo,stint_instance=mail}"
		wants(t, scrape(t, reg), map[string]float64{"stint_store_up{}": 1, todo: 1})
		time.Sleep(15 * time.Second)
		got := scrape(t, reg)
		if n, there := got[todo]; got["stint_store_up{}"] != 0 || there {
			t.Errorf("it is up: %v, and has %v jobs", got["stint_store_up{}"], n)
		}
	})
}
