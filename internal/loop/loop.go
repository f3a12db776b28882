// Package loop is the one way in which something runs periodically: it survives a panic, tells of an outage once when it
// starts and once when it ends, and backs off in between.
package loop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Bounds of the pause after a failure: it doubles from the first to the last, and is drawn from its upper half.
const (
	MinPause = 100 * time.Millisecond
	MaxPause = 5 * time.Second
)

// Pause returns how long to wait after the n-th failure in a row, the first being 1: at most the limit.
func Pause(n int, limit time.Duration) time.Duration {
	d := MinPause << min(max(n-1, 0), 16)
	d = max(min(d, limit), 2)
	return d/2 + rand.N(d/2)
}

// Config of a Loop.
type Config struct {
	Name Name
	// Pass does what the loop is for, once, and says how long to wait until the next time. A failure, or a panic, brings
	// the next pass after a Pause instead. ctx ends with the loop.
	Pass func(ctx context.Context) (time.Duration, error)
	// MaxPause bounds the pause after a failure; 0 means the package's.
	MaxPause time.Duration
	// Outages hears how each pass went; may be nil.
	Outages *Outages
	// Interrupt, when set, is called once by Cancel: it makes a Pass return that does not hear its context.
	Interrupt func()
}

// Loop is a goroutine that makes pass after pass until it is stopped.
type Loop struct {
	Config
	ctx    context.Context
	cancel context.CancelFunc
	kick   chan struct{}
	done   chan struct{}

	began time.Time
	due   atomic.Int64 // when the next pass is to begin, or the present one has begun, since began

	failures int // in a row; the loop's goroutine only
}

// Start starts a loop, whose first pass comes at once. The values of ctx are those of the passes; when it ends the loop
// does.
func Start(ctx context.Context, c Config) *Loop {
	l := &Loop{Config: c, kick: make(chan struct{}, 1), done: make(chan struct{}), began: time.Now()}
	if l.MaxPause <= 0 {
		l.MaxPause = MaxPause
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	go l.run()
	return l
}

// Kick brings the next pass forward to now, or to the end of the one that runs. It doesn't shorten a pause.
func (l *Loop) Kick() {
	select {
	case l.kick <- struct{}{}:
	default: // one is noted already
	}
}

// Behind is for how long the loop has been at one pass, or has been late for one: 0 while it waits for its time.
func (l *Loop) Behind() time.Duration {
	select {
	case <-l.done:
		return 0
	default:
		return max(time.Since(l.began)-time.Duration(l.due.Load()), 0)
	}
}

// Cancel ends the loop without waiting for it. It is called once, by Stop where that is used.
func (l *Loop) Cancel() {
	l.cancel()
	if l.Interrupt != nil {
		l.Interrupt()
	}
}

// Wait returns when the last pass has returned.
func (l *Loop) Wait() { <-l.done }

// Stop ends the loop and waits for it.
func (l *Loop) Stop() {
	l.Cancel()
	l.Wait()
}

func (l *Loop) run() {
	over := false
	defer func() {
		if !over && l.ctx.Err() == nil { // a pass called runtime.Goexit: the loop goes on without this goroutine
			l.Outages.Failed(l.Name, errGoexit)
			l.failures++
			go l.run()
			return
		}
		l.Outages.Gone(l.Name)
		close(l.done)
	}()
	if l.failures > 0 {
		l.sleep(Pause(l.failures, l.MaxPause), nil)
	}
	for l.ctx.Err() == nil {
		l.due.Store(int64(time.Since(l.began)))
		wait, err := l.pass()
		if l.ctx.Err() != nil {
			break // whatever it was, it was because we stop
		}
		var kick <-chan struct{} = l.kick
		if err == nil {
			l.failures = 0
			l.Outages.OK(l.Name)
		} else {
			l.failures++
			l.Outages.Failed(l.Name, err)
			wait, kick = Pause(l.failures, l.MaxPause), nil
		}
		l.sleep(wait, kick)
	}
	over = true
}

var errGoexit = errors.New("a pass called runtime.Goexit")

func (l *Loop) sleep(wait time.Duration, kick <-chan struct{}) {
	if wait <= 0 {
		return
	}
	l.due.Store(int64(time.Since(l.began) + wait))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-kick:
	case <-l.ctx.Done():
	}
}

// pass runs Pass and makes a panic an error.
func (l *Loop) pass() (wait time.Duration, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return l.Pass(l.ctx)
}

// PanicError is a pass that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }
