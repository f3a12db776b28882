package worker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func ExampleParseSpec() {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		panic(err)
	}
	spec, err := worker.ParseSpec("30 2 * * sun", paris)
	if err != nil {
		panic(err)
	}
	fmt.Println(spec)
	for _, tick := range spec.Upcoming(time.Date(2026, 3, 20, 0, 0, 0, 0, paris), 3) { // on the 29th 02:30 does not exist
		fmt.Println(tick)
	}
	_, err = worker.ParseSpec("0 9 * * mon-fry", nil)
	fmt.Println(err)
	// Output:
	// at 02:30 on Sunday, Europe/Paris time
	// 2026-03-22 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-04-05 02:30:00 +0200 CEST
	// invalid: cron spec "0 9 * * mon-fry", at position 9, the day of the week: there is no "fry"
}

func ExampleSupervisor_Schedule() {
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		panic(err)
	}
	defer st.Close()
	sup, err := worker.New(st, worker.Config{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	worker.Handle(sup, "beats", func(ctx context.Context, _ any) error {
		tick, ok := worker.TickFrom(ctx)
		fmt.Println(tick.Entry, ok)
		cancel()
		return nil
	}, worker.Concurrency(1))
	sup.Schedule(worker.Cron{Key: "beat", Spec: "@every 500ms", Instance: "beats"})
	if err := sup.Run(ctx); err != nil {
		panic(err)
	}
	// Output: beat true
}
