package storetest

import (
	"context"
	"fmt"
	"net"
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
	Raw     redis.UniversalClient // the same server, past the fault hook
	Fault   *redistest.Fault      // between Store and the server
	Prefix  string
	Process uuid.UUID // that of Terms
	Fake    bool      // time is that of a bubble
	few     bool      // of what a case wants many of, see size

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
		heartbeatCases(), reapCases(), retentionCases(), awaitedCases(), scheduleCases(), pauseCases(),
		wakeCases(), waitCases(), cancelCases(), adminCases(), listCases(),
		uniqueCases(), deadlineCases(), limitCases(), suspectCases(), auditCases(), gapCases(), bulkCases(), deleteInstanceCases(), explainCases(), optionCases(),
		cronCases(), cronGoneCases(), cronBadCases(), ownerCases(), dispatchCases(), tickCases(), recordCases(), tickFailedCases(),
		stepCases(), parkCases(), childCases(), orphanCases(), againCases(), owedCases(), stepBoundCases(), untoldCases(), resumeCases(), sweepCases(), spoiltCases(),
		invalidCases(), brokenCases(), indexCases(), wrongTypeCases(), foreignCases(), subscribeCases())
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
	e := &Env{Store: st, Raw: raw, Prefix: prefix, Fake: true, few: true, Fault: new(redistest.Fault)}
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
	return world(t, dial(), dial(), new(redistest.Fault))
}

// Cluster returns a world on a Cluster, under a prefix of its own. The instances of parents and of children are at different nodes: it ends
// the test if they are not. Of what a case wants many of there are only many in a soak.
func Cluster(t testing.TB, c *redistest.Cluster) *Env {
	t.Helper()
	fault := new(redistest.Fault)
	e := world(t, c.Client(t, func(o *redis.ClusterOptions) { o.Dialer = fault.DialHook(new(net.Dialer).DialContext) }), c.Client(t), fault)
	e.few = !redistest.Soak()
	for _, children := range []string{childInstance, otherInstance} {
		if c.Owner(c.Slot(e.Key(instance, "jobs"))) == c.Owner(c.Slot(e.Key(children, "jobs"))) {
			t.Fatalf("the instances %s and %s are at the same node", instance, children)
		}
	}
	return e
}

// world returns one on what both clients are of, one of them with a fault on its connections.
func world(t testing.TB, hooked, raw redis.UniversalClient, fault *redistest.Fault) *Env {
	t.Helper()
	prefix := redistest.Prefix(t)
	st, err := store.Open(hooked, store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, st.Close()) })
	e := &Env{Store: st, Raw: raw, Prefix: prefix, Fault: fault}
	return e.ready(hooked)
}

func (e *Env) ready(hooked redis.UniversalClient) *Env {
	e.Runtime, e.Process = e.Store.Runtime(), uuid.New()
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

// size picks the number of jobs: many on a real server, few on the embedded one, which takes its time.
func (e *Env) size(few, many int) int {
	if e.few {
		return few
	}
	return many
}

// put writes into Redis behind the store's back.
func (e *Env) put(t testing.TB, cmd ...any) {
	t.Helper()
	if err := e.Raw.Do(context.WithoutCancel(t.Context()), cmd...).Err(); err != nil {
		t.Fatalf("%v: %v", fmt.Sprint(cmd[0]), err)
	}
}
