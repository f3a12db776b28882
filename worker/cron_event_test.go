package worker_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// The events of a process that dispatches, skips and fails say all that the records do.
func TestWhatIsOnRecordOfATickIsAnEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := each(time.Hour)
		c.Zone = "Asia/Tokyo"
		r, f := cronRig(t, worker.Config{}, c)
		r.start()
		settle(time.Hour + time.Second)
		r.stopWell()
		time.Sleep(150*time.Hour + time.Minute) // beyond the window one record stands for many
		rdb := r.st.Runtime().Client()
		must(t, rdb.SAdd(t.Context(), "stint:{x}:parked", "foreign").Err())
		p := r.again(f, worker.Config{Node: "here"}, c)
		p.start()
		settle(40 * time.Millisecond) // the record tells of the latest try, the event of the first
		failed := of[worker.TickDispatched](p.events)
		if len(failed) != 1 || failed[0].Status != store.StatusFailed {
			t.Fatalf("%+v, want one failure", failed)
		}
		wantRecorded(t, failed[0], r.dispatches(store.DispatchFilter{Status: store.StatusFailed})[0])
		must(t, rdb.Del(t.Context(), "stint:{x}:parked").Err())
		settle(time.Hour)
		p.stopWell()
		byTick, byStatus := map[time.Time]store.Dispatch{}, map[string]int{}
		for _, d := range r.dispatches(store.DispatchFilter{Node: "here"}) {
			byTick[d.FireAt] = d
		}
		for _, e := range of[worker.TickDispatched](p.events)[1:] {
			wantRecorded(t, e, byTick[e.At.UTC()])
			byStatus[e.Status]++
		}
		if n := byStatus[store.StatusSkipped]; byStatus[store.StatusDispatched] != 2 || n < 24 || n+2 != len(byTick) {
			t.Errorf("by status %v, %d records", byStatus, len(byTick))
		}
	})
}

func wantRecorded(t *testing.T, e worker.TickDispatched, d store.Dispatch) {
	t.Helper()
	same := e.Entry == d.Entry && e.Instance == d.Instance && e.At.Equal(d.FireAt) && e.First.Equal(d.First) && e.DispatchedAt.Equal(d.DispatchedAt) &&
		e.Status == d.Status && e.Reason == d.Reason && e.Node == d.Node && e.Job == d.Job
	if !same || e.Late != d.DispatchedAt.Sub(d.FireAt) || e.At.Location().String() != "Asia/Tokyo" {
		t.Errorf("the event is %+v, the record %+v", e, d)
	}
}
