package storetest

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// spy sees the store's commands.
type spy struct {
	mu      sync.Mutex
	scripts int // calls of scripts
	widest  int // most arguments of one
	before  map[string]func()
}

func (e *Env) spy() *spy {
	s := &spy{before: map[string]func(){}}
	e.Runtime.Client().AddHook(s)
	return s
}

// pagesEnd calls f when a change of many jobs has been through a page, and the next has not been picked: before its third script.
func (s *spy) pagesEnd(f func()) {
	again := func() { s.before["evalsha"] = f }
	s.before["evalsha"] = func() { s.before["evalsha"] = again }
}

func (s *spy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.mu.Lock()
		if n := len(cmd.Args()); cmd.Name() == "evalsha" {
			s.scripts++
			s.widest = max(s.widest, n)
		}
		f := s.before[cmd.Name()]
		delete(s.before, cmd.Name())
		s.mu.Unlock()
		if f != nil {
			f()
		}
		return next(ctx, cmd)
	}
}

func (s *spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
