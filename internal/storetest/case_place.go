package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// The order in which jobs are served.
func placeCases() []Case {
	return named(highestPriorityFirstThenBySequence, releaseAndReapKeepThePlace, retryAndSnoozeTakeANewPlace,
		promotionTakesThePlaceOfItsMoment, requeueTakesANewPlace, placesSurviveAClockThatGoesBack, placesSurviveTheLossOfTheCounter)
}

// drain claims one job at a time until there is none, and returns them in order.
func (e *Env) drain(t *testing.T) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	for range 10_000 {
		got := e.Claim(t, 1)
		if len(got) == 0 {
			return ids
		}
		ids = append(ids, got[0].Job.ID)
	}
	t.Fatal("a queue without end")
	return nil
}

func highestPriorityFirstThenBySequence(t *testing.T, e *Env) {
	var jobs []store.NewJob
	for i := range 40 {
		jobs = append(jobs, store.NewJob{ID: uuid.New(), Priority: i * 7 % 11}) // 0 is the default, 5
	}
	for some := range slices.Chunk(jobs, 13) {
		e.Enqueue(t, some...)
	}
	slices.SortStableFunc(jobs, func(a, b store.NewJob) int {
		rank := func(j store.NewJob) int {
			if j.Priority == 0 {
				return store.DefPriority
			}
			return j.Priority
		}
		return rank(b) - rank(a)
	})
	var want []uuid.UUID
	for _, j := range jobs {
		want = append(want, j.ID)
	}
	wantIDs(t, "todo", e.Listed(t, store.Todo), want)
	wantIDs(t, "a claim of 15", jobIDs(e.Claim(t, 15)), want[:15])
	wantIDs(t, "the others one by one", e.drain(t), want[15:])
}

func releaseAndReapKeepThePlace(t *testing.T, e *Env) {
	ids := e.Add(t, 3)
	held := e.Claim(t, 3)
	ids = append(ids, e.Add(t, 1)...)
	e.Finish(t, store.Finish{Verb: store.Release}, held[1], held[0])
	wantIDs(t, "after a release", e.Listed(t, store.Todo), []uuid.UUID{ids[0], ids[1], ids[3]})
	e.Later(t, lease+time.Millisecond)
	e.Reap(t)
	wantIDs(t, "after a reap", e.Listed(t, store.Todo), ids)
	wantIDs(t, "claimed then", e.drain(t), ids)
}

func retryAndSnoozeTakeANewPlace(t *testing.T, e *Env) {
	ids := e.Add(t, 2)
	held := e.Claim(t, 2)
	ids = append(ids, e.one(t))
	e.Finish(t, store.Finish{Verb: store.Retry, Delay: time.Millisecond}, held[0])
	e.Finish(t, store.Finish{Verb: store.Snooze, Delay: time.Second}, held[1])
	e.Later(t, time.Second)
	wantIDs(t, "claimed then", e.drain(t), []uuid.UUID{ids[2], ids[0], ids[1]})
}

func promotionTakesThePlaceOfItsMoment(t *testing.T, e *Env) {
	due := e.Enqueue(t, store.NewJob{Delay: time.Minute}, store.NewJob{Delay: time.Minute, Priority: 9})
	first := e.one(t)
	e.Later(t, time.Minute)
	waiting := e.Enqueue(t, store.NewJob{}, store.NewJob{Priority: 9}) // what is due is promoted by the claim after this
	wantIDs(t, "claimed", e.drain(t), []uuid.UUID{waiting[1], due[1], first, waiting[0], due[0]})
}

func requeueTakesANewPlace(t *testing.T, e *Env) {
	id := e.hold(t)
	e.end(t, id, store.Bury)
	other := e.one(t)
	must(t, e.Store.Requeue(t.Context(), id.Job.ID, store.RequeueMode{}))
	wantIDs(t, "claimed", e.drain(t), []uuid.UUID{other, id.Job.ID})
}

// The sequence is a clock that never goes back, when the server's does.
func placesSurviveAClockThatGoesBack(t *testing.T, e *Env) {
	before := e.one(t)
	ahead := (e.Now(t).Add(time.Hour).UnixMilli() - 946684800000) * 256
	e.put(t, "HSET", e.Key(instance, "meta"), "seq", ahead)
	ids := append(e.Add(t, 2), e.one(t))
	wantIDs(t, "claimed", e.drain(t), append([]uuid.UUID{before}, ids...))
}

func placesSurviveTheLossOfTheCounter(t *testing.T, e *Env) {
	ids := e.Add(t, 3)
	e.Later(t, 20*time.Millisecond)
	if !e.Fake { // 3 sequence numbers are used up within a millisecond
		start := e.Now(t)
		for range 100_000 {
			if e.Now(t).After(start) {
				break
			}
		}
	}
	e.put(t, "HDEL", e.Key(instance, "meta"), "seq")
	ids = append(ids, e.one(t))
	wantIDs(t, "claimed", e.drain(t), ids)
}
