package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ackWait is how long replicas have to acknowledge a change: much more than any that is well takes, and less than go-redis'
// ReadTimeout of 3 s.
const ackWait = time.Second

// ReplicasError is the ErrServer of a change that fewer replicas than Options.WaitReplicas have acknowledged. Unlike other
// ErrServer it does not say that nothing was changed: the outcome is unknown, and repeating the request settles it.
type ReplicasError struct {
	Acknowledged, Wanted int
}

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("%v: %d of %d replicas have acknowledged within %v", ErrServer, e.Acknowledged, e.Wanted, ackWait)
}

// Is makes errors.Is(err, ErrServer) true.
func (e *ReplicasError) Is(target error) bool { return target == ErrServer }

// waits reports whether the script changes something that must not get lost. What a heartbeat writes is soon written again,
// and what an audit puts right is found again.
func (sc script) waits() bool {
	switch sc.op {
	case "enqueue", "exchange", "reap", "requeue", "delete", "cancel", "pause", "remove", "step", "deliver",
		"register", "dispatch", "enable", "unschedule":
		return true
	}
	return false
}

// checkReplicas refuses what WaitReplicas can't work with.
func (o Options) checkReplicas(rdb redis.UniversalClient) error {
	if o.WaitReplicas < 0 {
		return invalid("%d replicas to wait for", o.WaitReplicas)
	}
	if _, ring := rdb.(*redis.Ring); ring && o.WaitReplicas > 0 {
		return invalid("a Ring's replicas can't be waited for")
	}
	return nil
}

// send calls a script. acked says what became of the waiting for replicas, if there is any; the reply is then that of a
// script that was carried out.
func (s *Store) send(ctx context.Context, sc script, keys []string, args []any) (reply []any, acked, err error) {
	if s.embedded != nil {
		reply, err = sc.embedded.Run(ctx, s.rdb, keys, args...).Slice()
		return reply, nil, err
	}
	if s.opts.WaitReplicas == 0 || !sc.waits() {
		reply, err = sc.real.Run(ctx, s.rdb, keys, args...).Slice()
		return reply, nil, err
	}
	err = s.onMaster(ctx, keys[0], func(node pipes, asking bool) (err error) {
		if err := s.assure(ctx, node, asking, keys[0]); err != nil {
			return err
		}
		reply, acked, err = s.sendAndWait(ctx, node, asking, sc.real, keys, args)
		return err
	})
	var few *ReplicasError
	if errors.As(acked, &few) || errors.As(err, &few) {
		s.assured.Delete(keys[0])
	}
	return reply, acked, err
}

// assure keeps a request back while too few replicas are known to follow, until they do again. So nothing is claimed whose
// claim could not be answered, and no lease is ended meanwhile: to the jobs it is an outage, and no crash.
func (s *Store) assure(ctx context.Context, node pipes, asking bool, key string) error {
	if _, ok := s.assured.Load(key); ok {
		return nil
	}
	pipe := node.Pipeline()
	enough := s.wait(ctx, pipe, asking, key)
	_, _ = pipe.Exec(ctx) // each of them has its error
	if err := enough(); err != nil {
		return err
	}
	s.assured.Store(key, struct{}{})
	return nil
}

// sendAndWait calls a script and waits, over the same connection and in the same round trip, until the replicas have what it
// wrote, or found written.
func (s *Store) sendAndWait(ctx context.Context, node pipes, asking bool, lua *redis.Script, keys []string, args []any) (reply []any, acked, err error) {
	for _, call := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{lua.EvalSha, lua.Eval} {
		pipe := node.Pipeline()
		if asking {
			pipe.Do(ctx, "asking")
		}
		run := call(ctx, pipe, keys, args...)
		enough := s.wait(ctx, pipe, asking, keys[0])
		_, _ = pipe.Exec(ctx)
		if reply, err = run.Slice(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return reply, enough(), err
		}
	}
	return nil, nil, err
}

// wait lets a pipeline end with waiting for the replicas, and returns what reads the answer. WAIT is, from Redis 7.2 on, about what was written
// for its own connection last, which is long ago where a request finds that it was carried out before, over another one. So something is always
// written: whoever has that has what was written before it.
func (s *Store) wait(ctx context.Context, pipe redis.Pipeliner, asking bool, key string) (enough func() error) {
	if asking {
		pipe.Do(ctx, "asking")
	}
	mark := scriptMark.real.Eval(ctx, pipe, []string{s.keys.replicas(instanceOf(key))})
	wait := pipe.Do(ctx, "wait", s.opts.WaitReplicas, ackWait.Milliseconds())
	return func() error {
		if err := mark.Err(); err != nil {
			return err
		}
		n, err := wait.Int()
		if err == nil && n < s.opts.WaitReplicas {
			return &ReplicasError{Acknowledged: n, Wanted: s.opts.WaitReplicas}
		}
		return err
	}
}

// redirects is how often at most a Cluster may send a request elsewhere, and movePause how long a slot that is on its way is left alone.
const (
	redirects = 8
	movePause = 20 * time.Millisecond
)

// pipes is what a client of one server and one of a Cluster's nodes have in common.
type pipes interface{ Pipeline() redis.Pipeliner }

// onMaster calls f with a client of the node that has the key, and again where a Cluster says that another one has it. WAIT has
// no key by which a Cluster client would find the node.
func (s *Store) onMaster(ctx context.Context, key string, f func(node pipes, asking bool) error) error {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return f(s.rdb, false)
	}
	asked := "" // the address that we were sent to for this once
	for try := 1; ; try++ {
		node, err := nodeOf(ctx, cluster, key, asked)
		if err != nil {
			return err
		}
		err = f(node, asked != "")
		var there bool
		if asked, there = redis.IsAskError(err); there && try < redirects {
			continue
		}
		if _, moved := redis.IsMovedError(err); !moved && !redis.IsTryAgainError(err) || try == redirects {
			var said redis.Error
			if err != nil && !errors.As(err, &said) {
				cluster.ReloadState(ctx) // the node may be gone
			}
			return err
		}
		cluster.ReloadState(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(movePause):
		}
	}
}

// nodeOf returns the client of the master at addr, or of the one that has the key's slot.
func nodeOf(ctx context.Context, cluster *redis.ClusterClient, key, addr string) (node pipes, err error) {
	if addr != "" {
		found := make(chan pipes, 1)
		_ = cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			if c.Options().Addr == addr {
				found <- c
			}
			return nil
		})
		select {
		case node = <-found:
			return node, nil
		default: // not known yet
		}
	}
	return cluster.MasterForKey(ctx, key)
}
