package worker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// none is the payload of handlers that need none.
type none = struct{}

// rig is a fresh world: an embedded store whose commands can be made to fail, and a supervisor that is yet to run.
type rig struct {
	t      testing.TB
	st     *store.Store
	fault  *redistest.Fault
	sup    *worker.Supervisor
	events *eventLog
	logs   *lines

	stop func()
	ran  chan error
}

// bubble runs f in a bubble of fake time, in which no goroutine may be left over at the end.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// newRig is to be called inside a bubble. It fills in the parts of cfg that listen.
func newRig(t testing.TB, cfg worker.Config) *rig {
	t.Helper()
	st, err := store.OpenEmbedded(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, st: st, fault: &redistest.Fault{}}
	r.hook(r.fault)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r.listen(cfg)
	return r
}

// listen makes the rig's supervisor, with its own ears.
func (r *rig) listen(cfg worker.Config) {
	r.t.Helper()
	r.events, r.logs = &eventLog{}, &lines{}
	if cfg.OnEvent == nil {
		cfg.OnEvent = r.events.add
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(r.logs, nil))
	}
	var err error
	if r.sup, err = worker.New(r.st, cfg); err != nil {
		r.t.Fatal(err)
	}
}

// second returns another process of the rig's world, yet to run.
func (r *rig) second(cfg worker.Config) *rig {
	r.t.Helper()
	other := &rig{t: r.t, st: r.st, fault: r.fault}
	other.listen(cfg)
	return other
}

// start runs the supervisor; stopped makes it stop and returns what Run does.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), rigKey{}, "a value of Run's context"))
	ran, sup := make(chan error, 1), r.sup
	r.stop, r.ran = cancel, ran
	go func() {
		ran <- sup.Run(ctx)
		close(ran)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-ran // in case that the test has failed before it waited
	})
}

type rigKey struct{}

func (r *rig) stopped() error {
	r.stop()
	return <-r.ran
}

// stopWell is for the end of tests that are about something else.
func (r *rig) stopWell() {
	r.t.Helper()
	r.stop()
	r.ranWell()
}

// ranWell waits for the end of a supervisor that was told to stop.
func (r *rig) ranWell() {
	r.t.Helper()
	if err := <-r.ran; err != nil {
		r.t.Errorf("Run returned %v, want nil", err)
	}
}

// enqueue adds one job and returns its id.
func (r *rig) enqueue(instance string, payload any, edit ...func(*store.NewJob)) uuid.UUID {
	r.t.Helper()
	b, err := json.Marshal(payload)
	if err != nil {
		r.t.Fatal(err)
	}
	j := store.NewJob{ID: uuid.New(), Payload: b}
	for _, f := range edit {
		f(&j)
	}
	for _, err := range r.enqueueAll(instance, j) {
		must(r.t, err)
	}
	return j.ID
}

func (r *rig) enqueueAll(instance string, jobs ...store.NewJob) []error {
	r.t.Helper()
	var lane store.Lane
	for n := 0; ; n++ { // a connection may have been lost since it was used last
		errs, err := r.st.Runtime().Enqueue(context.Background(), &lane, instance, jobs)
		if err == nil {
			return errs
		}
		if n == 20 {
			r.t.Fatal(err)
		}
	}
}

// enqueueMany adds n jobs without a payload.
func (r *rig) enqueueMany(instance string, n int) {
	r.t.Helper()
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = store.NewJob{ID: uuid.New(), Payload: json.RawMessage("null")}
	}
	for some := range slices.Chunk(jobs, store.MaxCall) {
		for _, err := range r.enqueueAll(instance, some...) {
			must(r.t, err)
		}
	}
}

func after(d time.Duration) func(*store.NewJob) { return func(j *store.NewJob) { j.Delay = d } }

func (r *rig) job(id uuid.UUID) store.Job {
	r.t.Helper()
	j, err := r.st.Get(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return j
}

// theOnly returns the one job of an instance.
func (r *rig) theOnly(instance string) store.Job {
	r.t.Helper()
	page, err := r.st.List(context.Background(), store.Filter{Instance: instance})
	if err != nil || len(page.Jobs) != 1 {
		r.t.Fatalf("%d jobs of %s, %v", len(page.Jobs), instance, err)
	}
	return page.Jobs[0]
}

// wantState checks where a job is and what it says.
func (r *rig) wantState(id uuid.UUID, state store.State, attempt int, lastError string) {
	r.t.Helper()
	j := r.job(id)
	if j.State != state || j.Attempt != attempt || !strings.HasPrefix(j.LastError, lastError) || lastError == "" && j.LastError != "" {
		r.t.Errorf("the job is %s after %d attempts with %q, want %s, %d and %q", j.State, j.Attempt, j.LastError, state, attempt, lastError)
	}
}

// theID is a job's or a worker's that a test names itself.
var theID = uuid.MustParse("0195f3c4-7f2a-7b1e-9a55-1f6c3f1f0a01")

// wantDoingNow asks past the rig's latency.
func (r *rig) wantDoingNow(want int64) {
	r.t.Helper()
	hooked := r.st.Runtime().Client().(*redis.Client)
	raw := redis.NewClient(hooked.Options())
	defer raw.Close()
	if n, err := raw.ZCard(context.Background(), "stint:{x}:doing").Result(); err != nil || n != want {
		r.t.Errorf("%d jobs are doing (%v), want %d", n, err, want)
	}
}

func (r *rig) stats(instance string) store.Stats {
	r.t.Helper()
	all, err := r.st.Stats(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range all {
		if s.Instance == instance {
			return s
		}
	}
	return store.Stats{}
}

// deafen does something of which no process is told: the subscription is gone, and comes back after a pause.
func (r *rig) deafen(f func()) {
	r.t.Helper()
	r.fault.Unplug()
	r.fault.Plug()
	for range 20 { // the connections that were cut fail once
		if r.st.Runtime().Client().Ping(context.Background()).Err() == nil {
			break
		}
	}
	f()
}

// came says whether a fault has happened.
func came(struck <-chan struct{}) bool {
	select {
	case <-struck:
		return true
	default:
		return false
	}
}

// spoil puts what is not ours in the place of a key; mend takes it away.
func (r *rig) spoil(key string) (mend func()) {
	r.t.Helper()
	rdb := r.st.Runtime().Client()
	must(r.t, rdb.Set(context.Background(), key, "foreign", 0).Err())
	return func() {
		r.t.Helper()
		must(r.t, rdb.Del(context.Background(), key).Err())
	}
}

// hook has h come between the rig and its server.
func (r *rig) hook(h redis.Hook) { r.st.Runtime().Client().(*redis.Client).AddHook(h) }

// intercept is hook for single commands.
func (r *rig) intercept(f redistest.Intercept) { r.hook(f) }

// latency makes each command's reply arrive late.
func (r *rig) latency(d time.Duration) {
	r.intercept(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		time.Sleep(d)
		return err
	})
}

// settle lets time pass and everything come to rest. What handlers wrote can be read then.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
