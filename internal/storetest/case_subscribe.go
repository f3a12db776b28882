package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// A subscription outlives its connection.
func subscribeCases() []Case {
	return named(aSubscriptionHearsItsChannelsAlone, aSubscriptionComesBackAfterItsConnectionIsLost, closeEndsAReceive)
}

func (e *Env) say(t *testing.T, channel, message string) {
	t.Helper()
	if err := e.Raw.Publish(t.Context(), channel, message).Err(); err != nil {
		t.Fatal(err)
	}
}

func aSubscriptionHearsItsChannelsAlone(t *testing.T, e *Env) {
	ctx := t.Context()
	jobs := workers(3)
	channel := func(i int) string { return e.Runtime.EndedChannel(jobs[i]) }
	a := e.listen(t, channel(0))
	must(t, a.sub.Add(ctx, channel(1), channel(2)))
	for range 2 {
		a.hear(t, store.Subscribed)
	}
	must(t, a.sub.Remove(ctx, channel(1)))
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if e.Raw.PubSubNumSub(ctx, channel(1)).Val()[channel(1)] == 0 {
			break
		}
	}
	e.say(t, channel(1), "ended")
	e.say(t, channel(2), "ended")
	if m := a.hear(t, store.Ended); m.Job != jobs[2] {
		t.Errorf("heard of %s, want %s", m.Job, jobs[2])
	}
	e.say(t, channel(0), "ended")
	if m := a.hear(t, store.Ended); m.Job != jobs[0] || m.Channel != channel(0) {
		t.Errorf("heard of %+v, want %s", m, jobs[0])
	}
}

func aSubscriptionComesBackAfterItsConnectionIsLost(t *testing.T, e *Env) {
	job := uuid.New()
	channels := []string{e.Runtime.EndedChannel(job), e.Runtime.ProcessChannel(e.Process)}
	sub := e.Runtime.Subscribe(channels...)
	defer sub.Close()
	subscribed, failed := 0, 0
	receive := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); subscribed < want; {
			m, err := sub.Receive(50 * time.Millisecond)
			if err != nil {
				failed++
				time.Sleep(10 * time.Millisecond)
			}
			if m.Kind == store.Subscribed {
				subscribed++
			}
			if time.Now().After(deadline) {
				t.Fatalf("subscribed %d times, want %d; %d errors", subscribed, want, failed)
			}
		}
	}
	receive(2)
	e.Fault.Unplug()
	for range 3 {
		if _, err := sub.Receive(50 * time.Millisecond); err != nil {
			failed++
		}
		time.Sleep(10 * time.Millisecond)
	}
	if failed == 0 {
		t.Error("a lost connection is no error")
	}
	e.Fault.Plug()
	receive(4)
}

func closeEndsAReceive(t *testing.T, e *Env) {
	a := e.listen(t, e.Runtime.ProcessChannel(e.Process))
	must(t, a.sub.Close())
	a.group.Wait() // it receives for an hour otherwise
	if a.err == nil {
		t.Error("a receive after Close is no error")
	}
}
