package store_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// replicated is a master with a replica of the test's own, and a store that waits for it.
type replicated struct {
	*testing.T
	master, replica *redistest.Server
	rdb             *redis.Client // of the master
	store           *store.Store
	runtime         *store.Runtime
	fault           *redistest.Fault
	terms           store.Terms
}

func newReplicated(t *testing.T) *replicated {
	r := &replicated{T: t, master: redistest.Start(t, redistest.Config("repl-diskless-sync-delay 0")), fault: new(redistest.Fault)}
	r.follow()
	r.rdb = r.master.Client(t)
	r.rdb.AddHook(r.fault)
	var err error
	if r.store, err = store.Open(r.rdb, store.Options{WaitReplicas: 1}); err != nil {
		t.Fatal(err)
	}
	r.runtime = r.store.Runtime()
	keep := store.Retention{Age: time.Hour}
	r.terms = store.Terms{Instance: "mail", Process: uuid.New(), Lease: time.Minute, Period: time.Second, MaxCrashes: 3, Done: keep, Dead: keep}
	return r
}

// follow starts a replica and returns when it follows, as the master sees it.
func (r *replicated) follow() {
	r.Helper()
	if r.replica == nil {
		host, port, _ := strings.Cut(r.master.Addr(), ":")
		r.replica = redistest.Start(r.T, redistest.Config("replicaof "+host+" "+port))
	} else {
		r.replica.Restart()
	}
	c := r.master.Client(r.T)
	for deadline := time.Now().Add(30 * time.Second); ; {
		info, err := c.Info(r.Context(), "replication").Result()
		if err == nil && strings.Contains(info, "state=online") {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("the replica does not follow: %v\n%s", err, info)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

// failOver kills the master and returns a store over what the replica has then.
func (r *replicated) failOver() *store.Store {
	r.Helper()
	r.master.Kill()
	c := r.replica.Client(r.T)
	if err := c.Do(r.Context(), "replicaof", "no", "one").Err(); err != nil {
		r.Fatal(err)
	}
	st, err := store.Open(c, store.Options{})
	if err != nil {
		r.Fatal(err)
	}
	return st
}

func (r *replicated) enqueue(lane *store.Lane, jobs ...store.NewJob) error {
	refused, err := r.runtime.Enqueue(r.Context(), lane, "mail", jobs)
	return errors.Join(append(refused, err)...)
}

// accepts enqueues jobs while the replica follows. Where the machine has kept it from answering in time the request is repeated, as the runtime
// does: it is the same request.
func (r *replicated) accepts(lane *store.Lane, jobs ...store.NewJob) {
	r.Helper()
	var err error
	for range 30 {
		err = r.enqueue(lane, jobs...)
		if _, behind := errors.AsType[*store.ReplicasError](err); !behind {
			break
		}
	}
	r.must(err)
}

func aJob() store.NewJob { return store.NewJob{ID: uuid.New(), Payload: []byte(`{}`)} }

func (r *replicated) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// wantBehind fails the test unless err says that the replica did not acknowledge.
func (r *replicated) wantBehind(what string, err error) {
	r.Helper()
	few, ok := errors.AsType[*store.ReplicasError](err)
	if !ok || !errors.Is(err, store.ErrServer) || *few != (store.ReplicasError{Acknowledged: 0, Wanted: 1}) {
		r.Errorf("%s without a replica: %v, want 0 of 1 replicas", what, err)
	}
}

func (r *replicated) want(st *store.Store, want store.Stats) {
	r.Helper()
	all, err := st.Stats(r.Context())
	r.must(err)
	want.Instance = "mail"
	if len(all) == 1 {
		all[0].OldestTodo = 0
	}
	if len(all) != 1 || all[0] != want {
		r.Errorf("there are %+v, want %+v", all, want)
	}
}

func TestWhatIsAnsweredIsOnTheReplicaWhenTheMasterDies(t *testing.T) {
	r := newReplicated(t)
	var lane store.Lane
	var jobs []store.NewJob
	for range 100 {
		jobs = append(jobs, aJob())
		r.accepts(&lane, jobs[len(jobs)-1])
	}
	r.must(r.rdb.ConfigSet(t.Context(), "maxmemory", "1mb").Err()) // what ends jobs, or makes room, goes on
	got, err := r.runtime.Exchange(t.Context(), &lane, r.terms, store.Exchange{Claims: []uuid.UUID{uuid.New(), uuid.New()}})
	r.must(err)
	_, err = r.runtime.Exchange(t.Context(), &lane, r.terms, store.Exchange{Finishes: []store.Finish{{Lease: got.Leases[0], Verb: store.Complete}}})
	r.must(err)
	r.must(r.store.Cancel(t.Context(), jobs[99].ID))
	r.must(r.store.Delete(t.Context(), jobs[98].ID))
	r.must(r.store.Pause(t.Context(), "mail"))

	r.want(r.failOver(), store.Stats{Total: 99, Todo: 96, Doing: 1, Done: 1, Cancelled: 1, Paused: true})
}

func TestNothingIsAnsweredWithoutTheReplicaAndNothingIsDoubledAfterwards(t *testing.T) {
	r := newReplicated(t)
	ctx := t.Context()
	var lane, other store.Lane
	r.accepts(&lane, aJob(), aJob())
	claim := store.Exchange{Claims: []uuid.UUID{uuid.New()}}
	r.replica.Kill()

	r.wantBehind("claiming", func() error { _, err := r.runtime.Exchange(ctx, &other, r.terms, claim); return err }())
	late := aJob()
	for range 2 {
		r.wantBehind("enqueuing", r.enqueue(&lane, late))
	}
	r.wantBehind("pausing", r.store.Pause(ctx, "mail"))
	_, err := r.runtime.Reap(ctx, r.terms)
	r.wantBehind("reaping", err)
	r.want(r.store, store.Stats{Total: 2, Todo: 1, Doing: 1}) // the first request went out before we knew

	r.follow()
	r.accepts(&lane, late)
	got, err := r.runtime.Exchange(ctx, &other, r.terms, claim)
	r.must(err)
	if len(got.Leases) != 1 || got.Leases[0].Job.Attempt != 1 {
		t.Errorf("the claim gave %d leases, want the one of its first try", len(got.Leases))
	}
	r.want(r.failOver(), store.Stats{Total: 3, Todo: 2, Doing: 1})
}

func TestAStepIsNotKeptWithoutTheReplica(t *testing.T) {
	r := newReplicated(t)
	var lane store.Lane
	r.accepts(&lane, aJob())
	got, err := r.runtime.Exchange(t.Context(), &lane, r.terms, store.Exchange{Claims: []uuid.UUID{uuid.New()}})
	r.must(err)
	step := store.StepWrite{Name: "charge", Kind: store.LocalStep, Value: []byte(`"a receipt"`)}
	commit := func() error { // each over a connection of its own: to no other has the server written what a repetition does not write again
		st, err := store.Open(r.master.Client(t), store.Options{WaitReplicas: 1})
		r.must(err)
		_, err = st.Runtime().Commit(t.Context(), got.Leases[0], store.StepLimits{Count: store.MaxSteps, Bytes: store.MaxStepBytes}, step)
		return err
	}
	pause(t, r.replica, true) // it stays connected
	for range 2 {
		r.wantBehind("keeping a step", commit())
	}
	pause(t, r.replica, false)
	for range 30 { // until the replica has caught up
		if err = commit(); err == nil {
			break
		}
		r.wantBehind("keeping it again", err)
	}
	r.must(err)
	page, err := r.failOver().Steps(t.Context(), got.Leases[0].Job.ID, "")
	if err != nil || len(page.Steps) != 1 || string(page.Steps[0].Result) != `"a receipt"` {
		t.Errorf("the replica has the steps %+v, %v", page.Steps, err)
	}
}

func TestARequestWhoseAnswerWasLateIsRepeatedAndWaitsForTheReplicaAgain(t *testing.T) {
	r := newReplicated(t)
	var lane store.Lane
	r.accepts(&lane, aJob())
	pause(t, r.replica, true)
	job := aJob()
	r.wantBehind("enqueuing", r.enqueue(&lane, job))
	r.wantBehind("repeating it", r.enqueue(&lane, job))
	r.want(r.store, store.Stats{Total: 2, Todo: 2})
	pause(t, r.replica, false)
	var err error
	for range 30 { // until the replica has caught up
		if err = r.enqueue(&lane, job); err == nil {
			break
		}
		r.wantBehind("repeating it again", err)
	}
	r.must(err)
	r.want(r.failOver(), store.Stats{Total: 2, Todo: 2})
}

func TestALostReplyIsSettledOnItsLaneWithReplicasToo(t *testing.T) {
	r := newReplicated(t)
	var lane store.Lane
	r.accepts(&lane, aJob())
	for range 4 {
		job := aJob()
		r.fault.LoseReplyNth(1, redistest.Named("eval"))
		if err := r.enqueue(&lane, job); !errors.Is(err, redistest.ErrFault) {
			t.Fatalf("enqueuing: %v, want the fault", err)
		}
		r.accepts(&lane, job)
	}
	r.want(r.store, store.Stats{Total: 5, Todo: 5})
}

func TestAServerThatHasForgottenTheScriptsIsGivenThemAgain(t *testing.T) {
	r := newReplicated(t)
	var lane store.Lane
	for range 3 {
		r.must(r.rdb.ScriptFlush(t.Context()).Err()) // of our own server
		r.accepts(&lane, aJob())
	}
	r.want(r.store, store.Stats{Total: 3, Todo: 3})
}

func TestTheReplicasOfTheRightNodeOfAClusterAreWaitedFor(t *testing.T) {
	c := redistest.StartCluster(t, 3, redistest.Config("repl-diskless-sync-delay 0"))
	st, err := store.Open(c.Client(t), store.Options{WaitReplicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	const instance = "mail"
	owner := c.Nodes[c.Owner(c.Slot("stint:{mail}:jobs"))]
	_, err = st.Runtime().Enqueue(t.Context(), new(store.Lane), instance, []store.NewJob{aJob()})
	if _, ok := errors.AsType[*store.ReplicasError](err); !ok {
		t.Fatalf("enqueuing where no node has a replica: %v", err)
	}
	id, err := owner.Client(t).Do(t.Context(), "cluster", "myid").Text()
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, redistest.Config("cluster-enabled yes", "cluster-config-file nodes.conf"))
	joinCluster(t, replica.Client(t), owner.Addr(), id)

	var lane store.Lane
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	job := aJob()
	for err = errors.New("not yet"); err != nil && ctx.Err() == nil; { // until it follows
		_, err = st.Runtime().Enqueue(ctx, &lane, instance, []store.NewJob{job})
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := replica.Client(t).DBSize(t.Context()).Result(); err != nil || n == 0 { // that of keys it would send elsewhere
		t.Errorf("the replica has %d keys, %v", n, err)
	}

	// From Redis 7.2 on WAIT is about what was written for its connection: who changes nothing has to write something all the same.
	noError(t, "resuming what is not paused", st.Resume(ctx, instance))
	watch := &replicationWatch{replica: replica.Client(t)}
	rdb := c.Client(t)
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(watch) })
	st, err = store.Open(rdb, store.Options{WaitReplicas: 1})
	noError(t, "opening", err)
	noError(t, "resuming it again", st.Resume(ctx, instance))
	if watch.waits != 2 || watch.idle > 0 { // whether the replica follows, and what was asked
		t.Errorf("it was waited for %d times, %d times for nothing", watch.waits, watch.idle)
	}
}

// replicationWatch counts the pipelines that wait for a replica, and those of them by which it was sent nothing.
type replicationWatch struct {
	replica     *redis.Client
	waits, idle int
}

func (w *replicationWatch) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (w *replicationWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (w *replicationWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[len(cmds)-1].Name() != "wait" {
			return next(ctx, cmds)
		}
		w.replica.ConfigResetStat(ctx)
		err := next(ctx, cmds)
		w.waits++
		if !strings.Contains(w.replica.Info(ctx, "commandstats").Val(), "cmdstat_set:") {
			w.idle++
		}
		return err
	}
}

// joinCluster makes a node a replica of the master with the id.
func joinCluster(t *testing.T, c *redis.Client, addr, id string) {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	if err := c.Do(t.Context(), "cluster", "meet", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := c.Do(t.Context(), "cluster", "replicate", id).Err()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // between two tries
	}
}

func TestANegativeNumberOfReplicasIsRefused(t *testing.T) {
	_, err := store.Open(redis.NewClient(&redis.Options{}), store.Options{WaitReplicas: -1})
	if !errors.Is(err, store.ErrInvalid) {
		t.Errorf("opening: %v, want ErrInvalid", err)
	}
	if _, err := store.OpenEmbedded(store.Options{WaitReplicas: -1}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("opening the embedded one: %v, want ErrInvalid", err)
	}
}

func TestTheEmbeddedServerIgnoresReplicas(t *testing.T) {
	st, err := store.OpenEmbedded(store.Options{WaitReplicas: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Runtime().Enqueue(t.Context(), new(store.Lane), "mail", []store.NewJob{aJob()}); err != nil {
		t.Error(err)
	}
}

// pause stops a server, as a machine that sleeps does, or lets it go on.
func pause(t *testing.T, s *redistest.Server, on bool) {
	t.Helper()
	p, err := os.FindProcess(s.PID())
	if err == nil {
		err = p.Signal(map[bool]os.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[on])
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheRulesInTheDocsAreEnoughToWaitForReplicas(t *testing.T) {
	r := newReplicated(t)
	rules := rulesOf(t, "../docs/operations.md")
	for _, with := range []bool{false, true} {
		if with {
			rules = append(rules, block(t, "../docs/operations.md", "acl-replicas")...)
		}
		args := []any{"acl", "setuser", "stint", "reset"}
		for _, rule := range rules {
			args = append(args, rule)
		}
		r.must(r.rdb.Do(t.Context(), args...).Err())
		st, err := store.Open(r.master.Client(t, func(o *redis.Options) {
			o.Username, o.Password, o.DisableIdentity = "stint", "secret", true
		}), store.Options{WaitReplicas: 1})
		r.must(err)
		if err := enqueue(st, t.Context()); with != (err == nil) || !with && !errors.Is(err, store.ErrServer) {
			t.Errorf("enqueuing, with the rule %v: %v", with, err)
		}
	}
}

// To the runtime replicas that are away are an outage: it goes on where it was when they are back.
func TestWorkThatMetAnOutageOfTheReplicaIsDoneOnceAfterwards(t *testing.T) {
	r := newReplicated(t)
	started, goOn := make(chan uuid.UUID, 10), make(chan struct{})
	failed := make(chan struct{}, 100)
	sup, err := worker.New(r.store, worker.Config{OnEvent: func(e worker.Event) {
		if _, ok := e.(worker.LoopFailed); ok {
			failed <- struct{}{}
		}
	}})
	r.must(err)
	worker.Handle(sup, "mail", func(ctx context.Context, _ int) error {
		job, _ := worker.JobFrom(ctx)
		started <- job.ID
		<-goOn
		return nil
	})
	workertest.Start(t, sup)
	client := worker.NewClient(r.store, worker.ClientConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, err := client.Enqueue(ctx, "mail", 1)
	r.must(err)
	<-started

	r.replica.Kill()
	close(goOn)
	var second uuid.UUID
	enqueued := make(chan error)
	go func() {
		var err error
		second, err = client.Enqueue(ctx, "mail", 2)
		enqueued <- err
	}()
	select {
	case <-failed: // the end of the first job can't be handed in
	case <-ctx.Done():
		t.Fatal("no loop has failed")
	}
	select {
	case err := <-enqueued:
		t.Fatalf("enqueuing without the replica has returned: %v", err)
	default:
	}
	r.follow()
	r.must(<-enqueued)
	for _, id := range []uuid.UUID{first, second} {
		j, err := client.Wait(ctx, id)
		if err != nil || j.State != store.Done || j.Attempt != 1 || j.Crashes != 0 {
			t.Errorf("job is %s after %d attempts and %d crashes, %v", j.State, j.Attempt, j.Crashes, err)
		}
	}
	if id := <-started; id != second || len(started) > 0 {
		t.Errorf("%s was started, and %d more", id, len(started))
	}
}
