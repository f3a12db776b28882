package storetest

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// Env is a fresh world for one case: a store under a random prefix, and what it takes to look behind it.
type Env struct {
	Store   *store.Store
	Runtime *store.Runtime
	Raw     *redis.Client    // the same server, past the fault hook
	Fault   *redistest.Fault // between Store and the server
	Prefix  string
	Process uuid.UUID // that of Terms
	Fake    bool      // time is that of a bubble

	// Tampered is set by a case that leaves the data as no operation would, on purpose: the check at its end is not made.
	Tampered bool
}

// Case is one promise, or one aspect of it.
type Case struct {
	Name string // says what must happen
	Run  func(t *testing.T, e *Env)
}

// Cases returns the whole suite.
func Cases() []Case {
	return slices.Concat(stateCases(), placeCases(), attemptCases(), firstCases(), fenceCases(), finishCases(), boundCases(), laneCases(), lostCases(),
		heartbeatCases(), reapCases(), retentionCases(), scheduleCases(), pauseCases(),
		wakeCases(), cancelCases(), adminCases(), listCases(),
		uniqueCases(), deadlineCases(), limitCases(), suspectCases(), auditCases(), gapCases(), bulkCases(), explainCases(), optionCases(),
		cronCases(), cronGoneCases(), cronBadCases(), ownerCases(), dispatchCases(), tickCases(), recordCases(),
		stepCases(), parkCases(), childCases(), orphanCases(), againCases(), owedCases(), stepBoundCases(), untoldCases(), resumeCases(), sweepCases(), spoiltCases(),
		invalidCases(), brokenCases(), foreignCases(), subscribeCases())
}

// named makes cases of functions and calls them what they are called.
func named(fs ...func(t *testing.T, e *Env)) []Case {
	cases := make([]Case, len(fs))
	for i, f := range fs {
		name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
		cases[i] = Case{name[strings.LastIndexByte(name, '.')+1:], f}
	}
	return cases
}

// Embedded returns a world on the embedded server. It is to be called inside a bubble.
func Embedded(t testing.TB) *Env {
	t.Helper()
	prefix := redistest.Prefix(t)
	st, err := store.OpenEmbedded(store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, st.Close()) })
	hooked := st.Runtime().Client().(*redis.Client)
	o := *hooked.Options()
	raw := redis.NewClient(&redis.Options{Addr: o.Addr, Dialer: o.Dialer, MaintNotificationsConfig: off()})
	t.Cleanup(func() { must(t, raw.Close()) })
	e := &Env{Store: st, Raw: raw, Prefix: prefix, Fake: true}
	return e.ready(hooked)
}

// Real returns a world on the server at addr, under a prefix of its own.
func Real(t testing.TB, addr string) *Env {
	t.Helper()
	dial := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr, MaintNotificationsConfig: off()})
		t.Cleanup(func() { must(t, c.Close()) })
		return c
	}
	hooked, raw, prefix := dial(), dial(), redistest.Prefix(t)
	st, err := store.Open(hooked, store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, st.Close()) })
	e := &Env{Store: st, Raw: raw, Prefix: prefix}
	return e.ready(hooked)
}

func (e *Env) ready(hooked *redis.Client) *Env {
	e.Runtime, e.Process, e.Fault = e.Store.Runtime(), uuid.New(), new(redistest.Fault)
	hooked.AddHook(e.Fault)
	return e
}

func off() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Key returns the full name of an instance's key.
func (e *Env) Key(instance, name string) string { return e.Prefix + ":{" + instance + "}:" + name }

// Later lets time pass, for all that the server has noted: leases, due times, deadlines, ends, windows, waiting.
func (e *Env) Later(t testing.TB, d time.Duration) {
	t.Helper()
	if e.Fake {
		time.Sleep(d)
		return
	}
	e.shift(t, d)
}

// Back lets the server's clock go back, for the same: it moves what was noted into the future.
func (e *Env) Back(t testing.TB, d time.Duration) {
	t.Helper()
	e.shift(t, -d)
}

// shift moves what the server has noted into the past.
func (e *Env) shift(t testing.TB, d time.Duration) {
	t.Helper()
	if err := shift(context.WithoutCancel(t.Context()), e.Raw, e.Prefix, d); err != nil {
		t.Fatalf("moving what was noted in time: %v", err)
	}
}

// Now returns the server's clock, in whole milliseconds.
func (e *Env) Now(t testing.TB) time.Time {
	t.Helper()
	now, err := e.Raw.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.Truncate(time.Millisecond).UTC()
}

// size picks the number of jobs: large on a real server, smaller on the embedded one, which takes its time.
func (e *Env) size(embedded, realServer int) int {
	if e.Fake {
		return embedded
	}
	return realServer
}

// put writes into Redis behind the store's back.
func (e *Env) put(t testing.TB, cmd ...any) {
	t.Helper()
	if err := e.Raw.Do(context.WithoutCancel(t.Context()), cmd...).Err(); err != nil {
		t.Fatalf("%v: %v", fmt.Sprint(cmd[0]), err)
	}
}
