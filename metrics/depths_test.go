package metrics_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/metrics"
	"github.com/stint-go/stint/worker"
)

func TestWithoutServingAnInstanceThereAreDepths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		for _, delay := range []time.Duration{0, 0, time.Hour} {
			p.enqueue("mail", worker.Delay(delay))
		}
		if err := p.st.Pause(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second)
		got := scrape(t, p.reg)
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
		p := fresh(t)
		for i := range 50 {
			p.enqueue(fmt.Sprint("tenant", i))
		}
		time.Sleep(time.Second)
		all := len(scrape(t, p.reg))
		for i := range 49 {
			p.deleteInstance(fmt.Sprint("tenant", i))
		}
		time.Sleep(2 * time.Second)
		got := scrape(t, p.reg)
		if len(got) > all/30 {
			t.Errorf("%d series of one instance, %d of 50", len(got), all)
		}
		wants(t, got, map[string]float64{"stint_jobs_enqueued_total{stint_instance=tenant49}": 1})
		p.enqueue("tenant0")
		wants(t, scrape(t, p.reg), map[string]float64{ // at once, while what the store said before it is still fresh
			"stint_jobs_enqueued_total{stint_instance=tenant49}": 1, "stint_jobs_enqueued_total{stint_instance=tenant0}": 2,
		})
	})
}

func TestTheCountersOfAnInstanceThatComesBackGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		enqueue := func() {
			t.Helper()
			p.enqueue("tenant")
			p.col.Observe(worker.JobStarted{Instance: "tenant", Waited: time.Second})
		}
		gone := func() { // it is deleted, and every scrape says so
			t.Helper()
			p.deleteInstance("tenant")
			time.Sleep(2 * time.Second)
			for range 2 {
				if n, there := scrape(t, p.reg)["stint_jobs_enqueued_total{stint_instance=tenant}"]; there {
					t.Errorf("it is gone, and has %v jobs enqueued", n)
				}
			}
		}
		for n := range 5 {
			enqueue()
			wants(t, scrape(t, p.reg), map[string]float64{
				"stint_jobs_enqueued_total{stint_instance=tenant}": float64(n + 1), "stint_job_wait_seconds{stint_instance=tenant}": float64(n + 1),
			})
			gone()
		}
		for i := range metrics.Remembered { // as many others come and go, and none stays for ever
			p.col.Observe(worker.JobEnqueued{Instance: fmt.Sprint("other", i)})
		}
		time.Sleep(2 * time.Second)
		scrape(t, p.reg)
		enqueue()
		wants(t, scrape(t, p.reg), map[string]float64{"stint_jobs_enqueued_total{stint_instance=tenant}": 1})
	})
}

func TestWhatIsCountedWhileTheStoreIsAskedIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		p.enqueue("mail")
		p.deleteInstance("mail")
		time.Sleep(time.Minute)
		mute := make(chan struct{})
		p.hook(redistest.Silent(mute))
		done := make(chan map[string]float64)
		go func() { done <- scrape(t, p.reg) }()
		time.Sleep(time.Second)
		p.col.Observe(worker.JobEnqueued{Instance: "mail"}) // of another process' making, after it was said that there is none
		close(mute)
		wants(t, <-done, map[string]float64{"stint_jobs_enqueued_total{stint_instance=mail}": 2})
	})
}

func TestAnEntryThatNobodyFiresIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		p.sup.Schedule(worker.Cron{Key: "hourly", Spec: "@every 1h", Instance: "reports"}, worker.Cron{Key: "daily", Spec: "@every 24h", Instance: "reports"},
			worker.Cron{Key: "held", Spec: "@every 1h", Instance: "held"})
		stop := start(t, p.sup)
		time.Sleep(90 * time.Minute)
		const overdue, held = "stint_cron_overdue_seconds{stint_instance=reports}", "stint_cron_overdue_seconds{stint_instance=held}"
		got := scrape(t, p.reg)
		if d, there := got[overdue]; !there || d != 0 {
			t.Errorf("all is dispatched, and overdue for %v s", d)
		}
		stop()
		if err := p.st.EnableEntry(t.Context(), "held", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		wants(t, scrape(t, p.reg), map[string]float64{overdue: (2*time.Hour + 30*time.Minute).Seconds(), held: 0})
	})
}

func TestScrapesAtTheSameTimeAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fresh(t)
		for i := range 3 {
			p.enqueue(fmt.Sprint("x", i))
		}
		fault := &redistest.Fault{}
		p.hook(fault)
		scrape(t, p.reg) // the scripts are known from here on
		time.Sleep(2 * time.Second)
		before := fault.Seen()
		done := make(chan struct{})
		for range 10 {
			go func() {
				_, _ = p.reg.Gather()
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
