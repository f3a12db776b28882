package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// A server without memory refuses what is new; what makes room, and what was accepted, goes on.

func TestWorkGoesOnWhileTheServerIsOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	e := storetest.Real(t, server.Addr())
	ctx := t.Context()
	e.Add(t, 20)
	held := e.Claim(t, 6)
	noError(t, "limiting the memory", e.Raw.ConfigSet(ctx, "maxmemory", "1mb").Err())
	before := e.Stats(t)

	// A process that starts now finds what is there and works on it.
	fresh := storetest.Real(t, server.Addr())
	fresh.Store = open(t, fresh.Raw, e.Prefix)
	fresh.Runtime, fresh.Prefix, fresh.Process = fresh.Store.Runtime(), e.Prefix, e.Process
	for name, e := range map[string]*storetest.Env{"a process that ran already": e, "one that starts now": fresh} {
		t.Run(name, func(t *testing.T) {
			wantErr(t, "enqueuing", enqueue(e.Store, ctx), store.ErrServer)
			out := e.Exchange(t, e.Terms(), store.Exchange{
				Finishes: []store.Finish{{Lease: held[0], Verb: store.Complete, Result: []byte(`1`)}, {Lease: held[1], Verb: store.Retry, Delay: time.Hour}},
				Claims:   []uuid.UUID{held[0].Worker()}, Wait: true,
			})
			if len(out.Leases) != 1 || out.Ended[0] != store.Done || out.Ended[1] != store.Scheduled {
				t.Errorf("finishing and claiming: %+v", out)
			}
			held = held[2:]
			verdicts, _, err := e.Runtime.Heartbeat(ctx, e.Terms(), []store.Beat{{Lease: out.Leases[0], Progress: []byte(`1`)}}, nil)
			if err != nil || verdicts[0] != store.Held {
				t.Errorf("a heartbeat: %v, %v", verdicts, err)
			}
			if m := e.Reap(t); m.Missing != 0 {
				t.Errorf("a reap: %+v", m)
			}
			id := out.Leases[0].Job.ID
			_, err = e.Runtime.Await(ctx, "mail", id)
			noError(t, "awaiting", err)
			process := store.Process{ID: e.Process, Instances: []string{"mail"}}
			noError(t, "announcing", e.Runtime.Announce(ctx, process, time.Minute))
			noError(t, "leaving", e.Runtime.Leave(ctx, process))
			noError(t, "pausing", e.Store.Pause(ctx, "mail"))
			noError(t, "resuming", e.Store.Resume(ctx, "mail"))
			noError(t, "cancelling", e.Store.Cancel(ctx, id))
			e.Finish(t, store.Finish{Verb: store.Cancel}, out.Leases[0])
			noError(t, "requeuing", e.Store.Requeue(ctx, id, store.RequeueMode{}))
			noError(t, "deleting", e.Store.Delete(ctx, id))
			if page, err := e.Store.List(ctx, store.Filter{}); err != nil || len(page.Jobs) == 0 {
				t.Errorf("listing: %d jobs, %v", len(page.Jobs), err)
			}
			e.Check(t)
		})
	}
	if after := e.Stats(t); after.Total != before.Total-2 {
		t.Errorf("%d jobs, want %d: each of two deleted one and enqueued none", after.Total, before.Total-2)
	}
	noError(t, "giving memory", e.Raw.ConfigSet(ctx, "maxmemory", "0").Err())
	noError(t, "enqueuing when there is memory again", enqueue(e.Store, ctx))
}

func TestATickThatFindsNoMemoryHasFailedUntilThereIsSome(t *testing.T) {
	server := redistest.Start(t)
	e := storetest.Real(t, server.Addr())
	ctx := t.Context()
	definition := store.Definition{Key: "e", Spec: "* * * * *", RecordCount: 3, Job: store.NewJob{Payload: []byte(`1`)}}
	_, _, err := e.Runtime.Register(ctx, "mail", []store.Definition{definition}, false)
	noError(t, "registering", err)
	e.Later(t, time.Hour)
	read, err := e.Runtime.Entries(ctx, "mail", "", []string{"e"})
	noError(t, "reading the entry", err)
	tick := read.Now.Add(-time.Minute)
	ticks := func() []store.EntryTicks {
		return []store.EntryTicks{{Entry: read.Entries[0], Decisions: []store.Decision{{Tick: tick}}}}
	}
	dispatch := func() error {
		_, _, err := e.Runtime.Dispatch(ctx, new(store.Lane), "mail", "node", ticks())
		return err
	}
	noError(t, "limiting the memory", e.Raw.ConfigSet(ctx, "maxmemory", "1mb").Err())
	wantErr(t, "dispatching", dispatch(), store.ErrServer)
	last := tick
	for i := 10; i >= 0; i-- { // however many can't be, no more are kept than always
		tick = last.Add(-time.Duration(i) * time.Minute)
		_, _, err = e.Runtime.Undispatched(ctx, "mail", "node", "no memory", ticks())
		noError(t, "noting it", err)
	}
	if page, err := e.Store.Dispatches(ctx, store.DispatchFilter{}); err != nil || len(page.Dispatches) != 3 {
		t.Errorf("%+v, %v; want the latest three", page, err)
	}
	if d, err := e.Store.FindDispatch(ctx, "e", tick); err != nil || d.Status != store.StatusFailed {
		t.Errorf("%+v, %v; want it to have failed", d, err)
	}
	noError(t, "disabling", e.Store.EnableEntry(ctx, "e", false))
	noError(t, "limiting it no more", e.Raw.ConfigSet(ctx, "maxmemory", "0").Err())
	noError(t, "enabling", e.Store.EnableEntry(ctx, "e", true))
	e.Later(t, time.Hour)
	read, err = e.Runtime.Entries(ctx, "mail", "", []string{"e"})
	noError(t, "reading the entry", err)
	noError(t, "dispatching", dispatch())
	if d, err := e.Store.FindDispatch(ctx, "e", tick); err != nil || d.Status != store.StatusDispatched {
		t.Errorf("%+v, %v; want it upgraded", d, err)
	}
}
