// Package worker runs jobs: an application registers plain functions by the name of an instance, and a Supervisor
// claims that instance's jobs from a store and runs them, as many at once as it was told to.
//
//	st, err := store.Open(redisClient, store.Options{})
//	sup, err := worker.New(st, worker.Config{})
//	worker.Handle(sup, "images/resize", func(ctx context.Context, in Resize) error { ... })
//	err = sup.Run(ctx) // until ctx ends; then what runs is finished first
//
// Jobs come from a [Client], in the same process or in any other:
//
//	id, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(ctx, "images/resize", Resize{Path: "a.png"})
//
// # What a handler can count on
//
// A job is claimed by one worker at a time, under a lease that heartbeats extend for as long as the handler runs. If the
// process dies the lease runs out and the job runs again; so a handler may run more than once, and what it does outside
// should bear that. Everything that a handler writes through this package is fenced: after its lease was lost, none of it
// changes anything.
//
// The context of a handler has the values of the one given to Run, but not its end. It ends with one of these causes,
// which [context.Cause] tells: [ErrTimeout], [ErrCancelled], [ErrLeaseLost], [ErrShutdown],
// [ErrParked].
//
// # Who runs how much
//
// Each instance has workers of its own, as many as [Concurrency] says, or shares those of a [Pool] with others ([In]). For all
// processes together, [GlobalLimit] bounds how many of its jobs run at once and [Rate] how often one is started.
//
// # How a handler steers
//
// By the error it returns, through any wrapping:
//
//	nil                   the job is done
//	retry.Permanent(err)  the job is dead, with that reason
//	retry.After(d, err)   it runs again after d
//	worker.Snooze(d)      it runs again after d; this attempt does not count
//	what a wait returned  it is parked until what it waits for is there (see below)
//	anything else         it runs again after what the policy says, or is dead when the policy gives up
//
// A panic and a runtime.Goexit are errors like any other (see [PanicError], [ErrGoexit]) and harm nothing but the attempt.
// The same goes for middleware, policies and listeners.
//
// # Cron
//
// [Supervisor.Schedule] declares entries, in every process: at each tick of an entry there is one job, in one instance. A handler learns of
// its tick by [TickFrom]. The store has a record of each tick, and lists, disables, removes and runs entries by hand.
//
// # Steps
//
// A handler that must not do its effects again after a crash makes steps of them: [Step] and [Do] keep a result before they return,
// and later attempts get it without running the step. [Async] runs a step as a job of its own, in any instance; [Future.Wait], [WaitAll] and
// [Sleep] park the job, which then holds no worker, and return [ErrParked]: the handler returns, and is called anew when what it waits for is
// there. [Cursor] keeps a position in a long loop. docs/steps.md is the guide.
//
// # When Redis is away
//
// Nothing ends: what talks to Redis says so once, tries again with growing pauses, and says once when it gets through.
// Handlers go on until their lease can no longer be theirs; what they have finished is handed in when Redis is back.
package worker
