// Package workertest helps to test handlers, without a server and in fake time: a job that waits for three days is tested in
// a moment, in a bubble of package testing/synctest.
//
//	func TestAReminderGoesOutAfterThreeDays(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			st := workertest.Store(t)
//			sup, _ := worker.New(st, worker.Config{Lease: time.Hour})
//			var sent time.Time
//			worker.Handle(sup, "remind", func(context.Context, string) error { sent = time.Now(); return nil })
//			workertest.Start(t, sup)
//
//			start := time.Now()
//			_, _ = worker.NewClient(st, worker.ClientConfig{}).Enqueue(t.Context(), "remind", "you", worker.Delay(72*time.Hour))
//			workertest.Drain(t, st)
//			if sent.Sub(start) < 72*time.Hour {
//				t.Error("too early")
//			}
//		})
//	}
//
// In a bubble time stands still while anything runs and jumps when all is waiting, for Redis' clock, leases, retries and the
// handlers themselves alike. What a supervisor does every few seconds it does in fake time too: the long lease leaves the
// most of it out, which is what makes days short. All of it also works outside a bubble, in real time.
package workertest
