package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// Who awaits a job's end hears of it, and can read its result for a while.
func awaitedCases() []Case {
	return named(anAwaitedJobStaysAMinuteAndIsAnnounced, anAwaitedJobIsAnnouncedHoweverItEnds)
}

func anAwaitedJobStaysAMinuteAndIsAnnounced(t *testing.T, e *Env) {
	terms := e.Terms()
	terms.Done, terms.Dead = store.Retention{}, store.Retention{}
	for _, v := range []store.Verb{store.Complete, store.Cancel, store.Bury} {
		e.Add(t, 2)
		held := e.Claim(t, 2)
		id := held[0].Job.ID
		sub := e.listen(t, e.Runtime.EndedChannel(id))
		if s, err := e.Runtime.Await(t.Context(), instance, id); s != store.Doing || err != nil {
			t.Errorf("awaiting: %q, %v; want doing", s, err)
		}
		e.finishAll(t, terms, v, held...)
		if m := sub.hear(t, store.Ended); m.Job != id {
			t.Errorf("the end of %s was announced, want %s", m.Job, id)
		}
		e.reap(t, terms)
		j := e.Job(t, id)
		if !j.State.Terminal() || v == store.Complete && string(j.Result) != `1` {
			t.Errorf("within the minute it is %s with %q", j.State, j.Result)
		}
		e.WantGone(t, held[1].Job.ID)
		e.Later(t, time.Minute/2)
		e.reap(t, terms)
		e.Want(t, j.State, id)
		e.Later(t, time.Minute/2+time.Second)
		e.reap(t, terms)
		e.WantGone(t, id)
		if n := e.Raw.ZCard(t.Context(), e.Key(instance, "awaited")).Val(); n != 0 {
			t.Errorf("%d jobs are awaited still, want none", n)
		}
	}
	wantErr(t, "awaiting nothing", errOf(e.Runtime.Await(t.Context(), instance, uuid.New())), store.ErrNotFound)
}

func anAwaitedJobIsAnnouncedHoweverItEnds(t *testing.T, e *Env) {
	ctx := t.Context()
	ends := map[string]func(id uuid.UUID){
		"cancelled while todo": func(id uuid.UUID) { must(t, e.Store.Cancel(ctx, id)) },
		"deleted":              func(id uuid.UUID) { must(t, e.Store.Delete(ctx, id)) },
		"crashed too often": func(id uuid.UUID) {
			for range 3 {
				must(t, errOf(e.Runtime.Await(ctx, instance, id)))
				e.crash(t)
			}
		},
		"cancelled while doing, reaped": func(id uuid.UUID) {
			e.claimOne(t)
			must(t, e.Store.Cancel(ctx, id))
			e.Later(t, lease+time.Millisecond)
			e.Reap(t)
		},
		"quarantined": func(id uuid.UUID) {
			e.put(t, "HDEL", e.Key(instance, "jobs"), id[:])
			e.Claim(t, 1)
		},
	}
	for name, end := range ends {
		id := e.one(t)
		sub := e.listen(t, e.Runtime.EndedChannel(id))
		if _, err := e.Runtime.Await(ctx, instance, id); err != nil {
			t.Fatal(err)
		}
		end(id)
		if m := sub.hear(t, store.Ended); m.Job != id {
			t.Errorf("%s: the end of %s was announced, want %s", name, m.Job, id)
		}
	}
}
