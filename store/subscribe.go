package store

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// MessageKind says what a Message is about.
type MessageKind int

// The kinds of messages.
const (
	Nothing    MessageKind = iota // the wait is over, nothing came
	Subscribed                    // Channel is heard from now on, at first and after each reconnection
	Wake                          // Instance has work
	CancelJob                     // Job is to be cancelled
	Ended                         // Job has ended
)

// Message is what a Subscription receives.
type Message struct {
	Kind     MessageKind
	Channel  string
	Instance string
	Job      uuid.UUID
}

// Subscription hears channels over a connection of its own, which is made anew when it is lost. What is said while it is
// lost is not heard. Its receiver must not stop receiving: messages pile up in the server otherwise.
type Subscription struct {
	rdb redis.UniversalClient

	mu       sync.Mutex
	ps       *redis.PubSub
	channels map[string]struct{}
	closed   bool

	lastSeen time.Time // when something was last heard
	pinged   bool      // and whether a ping was sent since
}

// pingAfter is how long a Subscription may be silent until it asks whether the connection still stands, and how long the
// answer may take.
const pingAfter = 5 * time.Second

// ProcessChannel is where a process is woken and told of cancellations.
func (r *Runtime) ProcessChannel(process uuid.UUID) string { return r.s.keys.process(process) }

// EndedChannel is where the end of a job is announced that somebody Awaits.
func (r *Runtime) EndedChannel(job uuid.UUID) string { return r.s.keys.ended(job) }

// Subscribe returns a Subscription to the channels. A connection that can't be made is made with the next Receive or Add.
func (r *Runtime) Subscribe(channels ...string) *Subscription {
	s := &Subscription{rdb: r.s.rdb, channels: map[string]struct{}{}, lastSeen: time.Now()}
	for _, c := range channels {
		s.channels[c] = struct{}{}
	}
	if e := r.s.embedded; e != nil { // it is not to be closed under a connection that is being made
		if e.begin() != nil {
			channels = nil
		} else {
			defer e.end()
		}
	}
	s.ps = s.rdb.Subscribe(context.Background(), channels...)
	return s
}

func (s *Subscription) current() *redis.PubSub {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ps
}

// renew replaces a connection that does not answer: go-redis would wait on it for ever.
func (s *Subscription) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	_ = s.ps.Close()
	s.ps = s.rdb.Subscribe(context.Background(), slices.Collect(maps.Keys(s.channels))...)
}

// Add subscribes to more channels. After an error they are subscribed to with the next connection.
func (s *Subscription) Add(ctx context.Context, channels ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range channels {
		s.channels[c] = struct{}{}
	}
	return s.ps.Subscribe(ctx, channels...)
}

// Remove ends the subscription to channels.
func (s *Subscription) Remove(ctx context.Context, channels ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range channels {
		delete(s.channels, c)
	}
	return s.ps.Unsubscribe(ctx, channels...)
}

// errSilent ends a connection that does not answer.
var errSilent = errors.New("the connection does not answer")

// Receive returns the next message, or one of kind Nothing after wait, and an error when the connection was lost. The next call
// connects again. It does not hear a context; Close makes it return. One caller at a time.
func (s *Subscription) Receive(wait time.Duration) (Message, error) {
	got, err := s.current().ReceiveTimeout(context.Background(), wait)
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return Message{}, s.probe()
	}
	s.lastSeen, s.pinged = time.Now(), false
	if err != nil {
		return Message{}, err
	}
	return s.parse(got), nil
}

// probe pings a connection that was silent for a while, and gives it up when the ping is not answered either.
func (s *Subscription) probe() error {
	silent := time.Since(s.lastSeen)
	switch {
	case silent < pingAfter:
		return nil
	case !s.pinged:
		s.pinged = true
		return s.current().Ping(context.Background())
	case silent < 2*pingAfter:
		return nil
	}
	s.lastSeen, s.pinged = time.Now(), false
	s.renew()
	return errSilent
}

func (s *Subscription) parse(got any) Message {
	switch m := got.(type) {
	case *redis.Subscription:
		if m.Kind == "subscribe" {
			return Message{Kind: Subscribed, Channel: m.Channel}
		}
	case *redis.Message:
		out := Message{Channel: m.Channel}
		word, rest, _ := strings.Cut(m.Payload, " ")
		switch word {
		case "wake":
			out.Kind, out.Instance = Wake, rest
		case "cancel":
			out.Kind = CancelJob
			copy(out.Job[:], rest)
		case "ended":
			out.Kind = Ended
			id, _ := hex.DecodeString(m.Channel[strings.LastIndexByte(m.Channel, ':')+1:])
			copy(out.Job[:], id)
		}
		return out
	}
	return Message{}
}

// Close ends the subscription and makes a Receive return with an error.
func (s *Subscription) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.ps.Close()
}
