package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

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
	r.repeat("keeping it again", commit)
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
	r.accepts(&lane, job)
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
	noError(t, "enqueuing", enqueue(st, t.Context()))
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
