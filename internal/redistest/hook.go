package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"
)

var _ redis.Hook = (*Fault)(nil)

// DialHook puts the connection level under each new connection. Its result also serves as a client's Dialer.
func (f *Fault) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if f.isUnplugged() {
			return nil, faulty("no connection while unplugged")
		}
		nc, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: nc, fault: f}
		if !f.adopt(c) {
			_ = nc.Close()
			return nil, faulty("no connection while unplugged")
		}
		if raw, ok := nc.(syscall.Conn); ok { // go-redis looks through it whether an idle connection is still open
			return struct {
				*conn
				syscall.Conn
			}{c, raw}, nil
		}
		return c, nil
	}
}

// ProcessHook counts a command and carries out what is planned for it.
func (f *Fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if setsUp(cmd.Name()) {
			return next(ctx, cmd)
		}
		p, err := f.arrive(cmd)
		if p == nil && err == nil {
			return next(ctx, cmd)
		}
		if p != nil && p.lose {
			if err := next(ctx, cmd); !answered(err) {
				f.rearm(p)
				return err
			}
			err = faulty("the reply was lost")
		}
		if p != nil {
			close(p.struck)
		}
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook does the same for a pipeline or a transaction.
func (f *Fault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		whole := len(cmds) > 0 && cmds[0].Name() == "multi" // a transaction, with its MULTI and EXEC
		for i, cmd := range cmds {
			if setsUp(cmd.Name()) || whole && (i == 0 || i == len(cmds)-1) {
				continue
			}
			p, err := f.arrive(cmd)
			if p == nil && err == nil {
				continue
			}
			from := i
			if whole || p == nil {
				from = 0
			}
			return f.strikePipeline(ctx, cmds, from, i, p, err, next)
		}
		return next(ctx, cmds)
	}
}

// strikePipeline carries out plan p on the commands from from on, because of the one at index hit. Without a plan, all
// fail with err.
func (f *Fault) strikePipeline(ctx context.Context, cmds []redis.Cmder, from, hit int, p *plan, err error, next redis.ProcessPipelineHook) error {
	switch {
	case p != nil && p.lose:
		if all := next(ctx, cmds); !answered(cmds[hit].Err()) {
			f.rearm(p)
			return all
		}
		err = faulty("the reply was lost")
	case from > 0:
		_ = next(ctx, cmds[:from]) // each command has its own error
	}
	if p != nil {
		close(p.struck)
	}
	for _, cmd := range cmds[from:] {
		cmd.SetErr(err)
	}
	for _, cmd := range cmds { // as go-redis does: the first error is that of the whole
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// arrive counts a command at the level of the hook. It returns what is planned for it and, if it is not to be sent, the
// error that it gets.
func (f *Fault) arrive(cmd redis.Cmder) (*plan, error) {
	f.mu.Lock()
	f.seen++
	gone := f.unplugged
	f.mu.Unlock()
	if gone {
		return nil, faulty("unplugged")
	}
	p := f.take(atHook, func() []string {
		words := make([]string, len(cmd.Args()))
		for i, arg := range cmd.Args() {
			switch arg := arg.(type) {
			case string:
				words[i] = arg
			case []byte:
				words[i] = string(arg[:min(len(arg), maxArg)])
			default:
				words[i] = fmt.Sprint(arg)
			}
		}
		return normal(words)
	})
	if p != nil && !p.lose {
		return p, faulty("the command was not sent")
	}
	return p, nil
}

// answered reports whether the server has carried a command out, or refused it, going by the command's error.
func answered(err error) bool {
	if err == nil {
		return true
	}
	var refused redis.Error
	return errors.As(err, &refused) && !redis.HasErrorPrefix(err, "NOSCRIPT")
}

func (f *Fault) isUnplugged() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unplugged
}
