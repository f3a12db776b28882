package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// People report of systems like this: statistics block Redis for seconds.
func TestStatsCostTheSameHoweverManyJobsThereAre(t *testing.T) {
	server := redistest.Start(t)
	e := storetest.Real(t, server.Addr())
	ctx := t.Context()
	commands := func() map[string]string {
		e.Stats(t)
		noError(t, "resetting", e.Raw.ConfigResetStat(ctx).Err())
		e.Stats(t)
		calls := map[string]string{}
		for line := range strings.Lines(e.Raw.Info(ctx, "commandstats").Val()) {
			name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
			if n, _, _ := strings.Cut(rest, ","); ok && strings.HasPrefix(line, "cmdstat_") && !strings.HasPrefix(name, "config") {
				calls[name] = n
			}
		}
		return calls
	}
	inEach := func(n int) {
		e.Add(t, 3*n)
		held := e.Claim(t, n)
		e.Finish(t, store.Finish{Verb: store.Complete}, held[:n/2]...)
		e.Finish(t, store.Finish{Verb: store.Retry, Delay: time.Hour}, held[n/2:n/2+n/4]...)
	}
	inEach(10)
	few := commands()
	for range 10 {
		inEach(1000)
	}
	many := commands()
	if fmt.Sprint(few) != fmt.Sprint(many) {
		t.Errorf("with 30 jobs the commands are %v, with 30,000 %v", few, many)
	}
	// None of them is of those whose cost grows with what a key holds.
	for name := range many {
		constant := []string{"smembers", "evalsha", "exists", "type", "time", "zrange", "zcard", "hlen", "hget", "info", "client|setinfo", "hello"}
		if !slices.Contains(constant, name) {
			t.Errorf("counting uses %s", name)
		}
	}
}

func TestANodeThatIsAwayHidesTheStatsOfItsOwnInstancesOnly(t *testing.T) {
	e := storetest.Real(t, redistest.Start(t).Addr())
	for _, instance := range []string{"a", "far", "z"} {
		e.EnqueueTo(t, instance, aJob())
	}
	noError(t, "breaking a key", e.Raw.Set(t.Context(), e.Key("z", "dead"), "not ours", 0).Err())
	e.Runtime.Client().AddHook(silentHook("{far}"))
	all, err := e.Store.Stats(t.Context())
	if len(all) != 1 || all[0].Instance != "a" || all[0].Todo != 1 {
		t.Errorf("stats are %+v, want those of the one that answers and is well", all)
	}
	wantErr(t, "counting", err, io.EOF)
	if _, ok := errors.AsType[*store.KeyError](err); !ok {
		t.Errorf("counting: %v; want the key named, too", err)
	}
}

func TestANodeThatIsAwayHidesItsOwnEntriesOnly(t *testing.T) {
	e := storetest.Real(t, redistest.Start(t).Addr())
	const near, far = 120, 30 // more than a round trip is for
	for i := range near + far {
		instance := fmt.Sprintf("near-%d", i)
		if i >= near {
			instance = fmt.Sprintf("far-%d", i)
		}
		_, _, err := e.Runtime.Register(t.Context(), instance, []store.Definition{{
			Key: instance, Spec: "@daily", Zone: "UTC", Window: time.Hour, Job: store.NewJob{Payload: []byte("1")},
		}}, false)
		noError(t, "registering", err)
	}
	e.Runtime.Client().AddHook(silentHook("{far-"))
	all, err := e.Store.Entries(t.Context())
	if len(all) != near || all[0].Instance != "near-0" {
		t.Errorf("%d entries, want the %d of those that answer", len(all), near)
	}
	wantErr(t, "listing entries", err, io.EOF)
}

// silentHook lets nobody answer for an instance in a pipeline, as a node of a Cluster that is away.
type silentHook string

func (h silentHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h silentHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h silentHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if strings.Contains(fmt.Sprint(cmd.Args()), string(h)) {
				cmd.SetErr(io.EOF)
				err = io.EOF
			}
		}
		return err
	}
}
