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
// long the server's main thread has been on a processor. The time that others on the machine take counts for nothing, and no command hides
// behind another. Where the system does not tell, the time that has passed counts.
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
	before := m.read()
	err := f(context.WithValue(ctx, measured{}, true))
	after := m.read()
	took := after.ran - before.ran - (after.stolen - before.stolen)
	m.calls++
	if took > m.longest {
		m.longest, m.which = took, what
	}
	hold := m.hold
	if waited := after.waited - before.waited; waited > time.Millisecond { // others have emptied the caches meanwhile
		hold *= 2
	}
	if took > hold {
		m.beyond = append(m.beyond, fmt.Sprintf("%s %v", what, took))
	}
	return err
}

// account is what the system knows of the server's main thread, and of the machine.
type account struct {
	ran    time.Duration // that it has been on a processor
	waited time.Duration // that it was ready and was given none
	stolen time.Duration // that the machine's own host was busy with others, on one processor or another; it counts as run
}

// read reads the account when the thread has gone to sleep: the system brings it up to date only then, and the server still has to put
// its reply away when we have it.
func (m *meter) read() account {
	task := fmt.Sprintf("/proc/%d/task/%[1]d/", m.server.PID())
	for range 10_000 {
		stat, err := os.ReadFile(task + "stat")
		if err != nil {
			return account{ran: time.Duration(time.Now().UnixNano())}
		}
		if _, after, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(after, "S") {
			break
		}
	}
	var ran, waited, user, nice, system, idle, iowait, irq, softirq, steal int64
	text, err := os.ReadFile(task + "schedstat")
	if err == nil {
		_, err = fmt.Sscan(string(text), &ran, &waited)
	}
	if err != nil {
		return account{ran: time.Duration(time.Now().UnixNano())}
	}
	if all, err := os.ReadFile("/proc/stat"); err == nil {
		_, _ = fmt.Sscanf(string(all), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
	}
	const tick = 10 * time.Millisecond
	return account{time.Duration(ran), time.Duration(waited), time.Duration(steal) * tick}
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
