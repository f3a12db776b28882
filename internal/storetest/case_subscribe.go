package storetest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
)

// A subscription outlives its connection.
func subscribeCases() []Case {
	return named(aSubscriptionHearsItsChannelsAlone, aSubscriptionComesBackAfterItsConnectionIsLost, closeEndsAReceive,
		aSubscriptionGivesUpAConnectionThatDoesNotAnswer)
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
		if e.subscribers(t, channel(1)) == 0 {
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

// hole is a connection that swallows what is sent, once its switch is on.
type hole struct {
	net.Conn
	on *atomic.Bool
}

func (h hole) Write(b []byte) (int, error) {
	if h.on.Load() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}

func aSubscriptionGivesUpAConnectionThatDoesNotAnswer(t *testing.T, e *Env) {
	if !e.Fake {
		return // it takes a quarter of a minute; outages_test.go has a real server behind a black hole
	}
	var on atomic.Bool
	o := *e.Raw.(*redis.Client).Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return hole{c, &on}, nil
	}
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	st, err := store.Open(rdb, store.Options{Prefix: e.Prefix})
	must(t, err)
	channel := st.Runtime().ProcessChannel(e.Process)
	sub := st.Runtime().Subscribe(channel)
	defer sub.Close()
	hear := func(d time.Duration) (subscribed, failed int) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			switch m, err := sub.Receive(time.Second); {
			case err != nil:
				failed++
			case m.Kind == store.Subscribed:
				subscribed++
			}
		}
		return subscribed, failed
	}
	if subscribed, failed := hear(5 * time.Minute); subscribed != 1 || failed != 0 {
		t.Errorf("a quiet connection was given up %d times and made %d times", failed, subscribed)
	}
	on.Store(true)
	if _, failed := hear(16 * time.Second); failed == 0 {
		t.Error("a dead connection was not given up within 16 s")
	}
	on.Store(false)
	if subscribed, _ := hear(16 * time.Second); subscribed == 0 {
		t.Error("it is not subscribed again")
	}
	e.say(t, channel, "wake "+instance)
	if m, err := sub.Receive(time.Second); err != nil || m.Kind != store.Wake || m.Instance != instance {
		t.Errorf("heard %+v, %v; want to be woken", m, err)
	}
}
