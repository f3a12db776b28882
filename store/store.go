package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options of a Store; the zero value is ready for use.
type Options struct {
	// Prefix stands before every key and channel: 1 to 128 letters, digits and . _ - / :, by default "stint".
	Prefix string
	// WaitReplicas is how many replicas have to have a change before it is answered; 0, the default, waits for none, and a negative
	// one is ErrInvalid. It is for what is enqueued, claimed, kept of a step, finished, delivered to a parent, reaped, requeued, deleted,
	// cancelled, paused or resumed, and for entries of cron and their ticks, and costs the time that it takes a replica to answer. Fewer
	// within a second are a *ReplicasError: the outcome is unknown, and the runtime
	// repeats the request until enough replicas have it, as it does in an outage of Redis. Each other request waits with it until
	// they follow again, so nothing is claimed, and no lease ended, that could not be answered; heartbeats go on.
	//
	// It narrows what a failover can lose: what was answered is on so many replicas. It can't close the gap: Redis may promote another
	// replica than those that have it, and a replica has it in memory, not on disk. An id that no lane stands for (Cancel, Delete,
	// Requeue, Pause) is, when repeated after an error, answered by what is there then, mostly ErrTerminal or ErrNotFound. Heartbeats,
	// audits and the registry of processes and instances are not waited for.
	//
	// The client's ReadTimeout has to be longer than a second, as is go-redis' default. The server's user needs +wait. A Ring is
	// refused. The embedded server has no replicas and ignores it.
	WaitReplicas int
	// OnCall, when set, is called after each call to the server: its name, how long it took and how it ended. It runs
	// on the caller's goroutine, from several at once.
	OnCall func(op string, took time.Duration, err error)
}

// Store is everything that knows Redis. It is safe for concurrent use.
type Store struct {
	rdb      redis.UniversalClient
	keys     keyspace
	opts     Options
	embedded *embedded // nil unless the server is our own
	sole     atomic.Bool

	mu      sync.Mutex
	checked bool                 // the server has been found good
	known   map[string]time.Time // when instances were announced
	cached  map[string][]string  // keys by instance

	lanes lanes

	assured sync.Map // the instances, by their first key, whose replicas follow
}

// formatVersion is that of the layout in keys.go and of the records. A store of another one is refused.
const formatVersion = "3"

// Open returns a Store over the caller's client, which may be a plain, a Sentinel or a Cluster one. It does no I/O: the
// server is checked before the first command. Close never closes the client.
//
// When the context of a call ends while the server does not answer, the call returns when the client's ReadTimeout is over, unless the
// client has ContextTimeoutEnabled set: then it heeds the deadline of a context. Package worker's Client returns at once either way.
func Open(rdb redis.UniversalClient, o Options) (*Store, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("the Redis client is nil")
	}
	if o.Prefix == "" {
		o.Prefix = "stint"
	}
	if err := validName("prefix", o.Prefix); err != nil {
		return nil, err
	}
	if err := o.checkReplicas(rdb); err != nil {
		return nil, err
	}
	return &Store{
		rdb: rdb, keys: keyspace{o.Prefix}, opts: o,
		known: map[string]time.Time{}, cached: map[string][]string{},
	}, nil
}

// Close ends the embedded server, if this is its store: calls under way end first, later ones are ErrServer. The client given
// to Open stays open.
func (s *Store) Close() error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.close()
}

// do runs one operation: the server is checked first, OnCall hears of it, errors get the operation's name.
func (s *Store) do(ctx context.Context, op string, f func() error) error {
	start := time.Now()
	err := s.call(ctx, f)
	if err != nil {
		err = fmt.Errorf("%s: %w", op, typed(err))
	}
	if s.opts.OnCall != nil {
		s.called(op, time.Since(start), err)
	}
	return err
}

// call runs an operation on a server that was found good, and is not closed meanwhile if it is ours.
func (s *Store) call(ctx context.Context, f func() error) error {
	if e := s.embedded; e != nil {
		if err := e.begin(); err != nil {
			return err
		}
		defer e.end()
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	return f()
}

// named turns the WRONGTYPE that a plain command met into the error that names the key. The scripts do that by themselves.
func (s *Store) named(ctx context.Context, err error, key, want string) error {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	kind, unknown := s.rdb.Type(ctx, key).Result()
	if unknown != nil {
		return err
	}
	return &KeyError{Key: key, Type: kind, Want: want}
}

// called calls OnCall, whose panic must not become the operation's.
func (s *Store) called(op string, took time.Duration, err error) {
	defer func() {
		if v := recover(); v != nil {
			slog.Default().Error("OnCall panicked", "op", op, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	s.opts.OnCall(op, took, err)
}

// check makes sure, once, that the server can serve: its version, and the format of what it holds.
func (s *Store) check(ctx context.Context) error {
	s.mu.Lock()
	done := s.checked
	s.mu.Unlock()
	if done {
		return nil
	}
	if s.embedded == nil {
		info, err := s.rdb.Info(ctx, "server").Result()
		if err != nil {
			return fmt.Errorf("checking the server: %w", err)
		}
		if err := checkVersion(info); err != nil {
			return err
		}
	}
	v, err := s.rdb.Get(ctx, s.keys.format()).Result() // written only if need be: there may be no memory
	if errors.Is(err, redis.Nil) {
		if err := s.rdb.SetNX(ctx, s.keys.format(), formatVersion, 0).Err(); err != nil {
			return fmt.Errorf("checking the format: %w", err)
		}
		v, err = s.rdb.Get(ctx, s.keys.format()).Result()
	}
	switch {
	case err != nil:
		return fmt.Errorf("checking the format: %w", s.named(ctx, err, s.keys.format(), "string"))
	case v != formatVersion:
		return fmt.Errorf("%w: it holds format %.20q under the prefix %q, this library reads %q", ErrServer, v, s.keys.prefix, formatVersion)
	}
	s.mu.Lock()
	s.checked = true
	s.mu.Unlock()
	return nil
}

// checkVersion reads the answer of INFO: Redis 7.0 or later. Valkey reports the Redis version it is compatible with.
func checkVersion(info string) error {
	for line := range strings.Lines(info) {
		v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:")
		if !ok {
			continue
		}
		major, _, _ := strings.Cut(v, ".")
		if n, err := strconv.Atoi(major); err != nil || n < 7 {
			return fmt.Errorf("%w: it is version %s; 7.0 or later is needed", ErrServer, v)
		}
		return nil
	}
	return fmt.Errorf("%w: it does not tell its version", ErrServer)
}

// maxCached is for how many instances the keys are kept at hand.
const maxCached = 10_000

// instanceKeys returns KEYS of an instance's scripts; the slice has no room to be appended to.
func (s *Store) instanceKeys(instance string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, ok := s.cached[instance]
	if !ok {
		keys = s.keys.instance(instance)
		keys = keys[:len(keys):len(keys)]
		if len(s.cached) < maxCached { // whoever asks for names that don't exist must not fill our memory
			s.cached[instance] = keys
		}
	}
	return keys
}

// announceAgain is when an instance that is in use is announced again: the set of instances is a key of its own, and may be lost
// when the jobs are not.
const announceAgain = 30 * time.Second

// announce puts an instance into the set of those that exist, before its first job is there.
func (s *Store) announce(ctx context.Context, instance string, again bool) error {
	s.mu.Lock()
	at, ok := s.known[instance]
	s.mu.Unlock()
	if ok && !again && time.Since(at) < announceAgain {
		return nil
	}
	err := s.rdb.SAdd(ctx, s.keys.instances(), instance).Err()
	var refusal redis.Error
	if errors.As(err, &refusal) { // a server that has no memory left may know it already
		if there, _ := s.rdb.SIsMember(ctx, s.keys.instances(), instance).Result(); there {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("announcing %s: %w", instance, s.named(ctx, err, s.keys.instances(), "set"))
	}
	s.mu.Lock()
	s.known[instance] = time.Now()
	s.mu.Unlock()
	return nil
}
