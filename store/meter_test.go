package store_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
)

// meter measures how long each command keeps a server busy: a hook that lets one through at a time and reads, before and after, how
// long the server's main thread has been on a processor. What others do on the machine counts for nothing, and no command hides behind
// another. Where the system does not tell, the time that has passed counts.
type meter struct {
	server *redistest.Server

	mu      sync.Mutex
	hold    time.Duration // commands that take longer are noted
	longest time.Duration
	which   string // took longest
	calls   int
	beyond  []string // those that took longer
}

// install puts the meter into a client. Nothing else may use the server then.
func (m *meter) install(t testing.TB, c redis.UniversalClient) {
	t.Helper()
	c.AddHook(m)
}

// reset forgets what was measured and returns a summary, and the commands that took longer than they may.
func (m *meter) reset() (summary string, beyond []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	summary, beyond = fmt.Sprintf("%d calls, the longest %v: %s", m.calls, m.longest, m.which), m.beyond
	m.longest, m.which, m.calls, m.beyond = 0, "", 0, nil
	return summary, beyond
}

// measured marks the context of a command that is being measured: what sets its connection up is a part of it.
type measured struct{}

func (m *meter) measure(ctx context.Context, what string, f func(context.Context) error) error {
	if ctx.Value(measured{}) != nil {
		return f(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.busy()
	err := f(context.WithValue(ctx, measured{}, true))
	took := m.busy() - before
	m.calls++
	if took > m.longest {
		m.longest, m.which = took, what
	}
	if took > m.hold {
		m.beyond = append(m.beyond, fmt.Sprintf("%s %v", what, took))
	}
	return err
}

// busy is how long the server's main thread has been on a processor, read when it has gone to sleep: the system brings the figure up
// to date only then, and the server still has to put its reply away when we have it.
func (m *meter) busy() time.Duration {
	task := fmt.Sprintf("/proc/%d/task/%[1]d/", m.server.PID())
	for range 10_000 {
		stat, err := os.ReadFile(task + "stat")
		if err != nil {
			return time.Duration(time.Now().UnixNano())
		}
		if _, after, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(after, "S") {
			break
		}
	}
	text, err := os.ReadFile(task + "schedstat")
	var ran int64
	if err == nil {
		_, err = fmt.Sscan(string(text), &ran)
	}
	if err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(ran)
}

func (m *meter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		what := cmd.Name()
		if args := cmd.Args(); len(args) > 3 {
			what = fmt.Sprintf("%s %.8v with %d arguments", what, args[1], len(args))
		}
		return m.measure(ctx, what, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (m *meter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		what := fmt.Sprintf("%d commands in a pipeline", len(cmds))
		return m.measure(ctx, what, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}
