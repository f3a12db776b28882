package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// maxAsks is how many calls of a script travel together: few enough that those of others, which the server keeps waiting meanwhile,
// hardly notice.
const maxAsks = 100

// ask is a call of a script that only reads, one of several.
type ask struct {
	keys []string
	args []any
}

// runAll calls a script that only reads for each of the asks, of at most maxAsks, in one round trip, and hands their replies to take, in
// order. Where foreign keys are in the way of some, or nobody answers for them, as of a node of a Cluster that is away, it has handed over the
// others, and returns all *KeyErrors and the first other error, joined.
func (s *Store) runAll(ctx context.Context, sc script, asks []ask, take func(i int, p reader)) error {
	sent := s.pipe(ctx, sc, asks)
	var spoilt, failed error
	for i, a := range asks {
		var p reader
		var reply []any
		var err error
		if sent == nil || redis.IsTryAgainError(sent[i].Err()) { // its slot is on its way; alone it is asked again until that is over
			p, err = s.run(ctx, sc, a.keys, a.args...)
		} else if reply, err = sent[i].Slice(); err == nil {
			p, err = decoded(reply)
		}
		switch {
		case foreign(err):
			spoilt = errors.Join(spoilt, err)
		case err != nil:
			failed = cmp.Or(failed, err)
		default:
			take(i, p)
		}
	}
	return errors.Join(spoilt, failed)
}

// pipe sends the asks. A pipeline does not load a script that the server does not know yet, as a call alone does: those that were refused
// for that are sent once more, with the script. It sends none to the embedded server, whose connections have no room for what nobody reads
// yet: both ends of a long pipeline would wait for each other. Nor is it far.
func (s *Store) pipe(ctx context.Context, sc script, asks []ask) []*redis.Cmd {
	if s.embedded != nil {
		return nil
	}
	sent := make([]*redis.Cmd, len(asks))
	for _, call := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{sc.real.EvalSha, sc.real.Eval} {
		pipe := s.rdb.Pipeline()
		for i, a := range asks {
			if sent[i] == nil || redis.HasErrorPrefix(sent[i].Err(), "NOSCRIPT") {
				sent[i] = call(ctx, pipe, a.keys, a.args...)
			}
		}
		_, _ = pipe.Exec(ctx) // each of them has its error
	}
	return sent
}
