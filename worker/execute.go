package worker

import (
	"bytes"
	"context"
	"runtime"
	"runtime/debug"
	"strings"
)

// catch calls f and makes its panic an error.
func catch(f func() error) (err error) {
	defer recovered(&err)
	return f()
}

// recovered is the deferred half of catch.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// guard calls a callback of the user's: a panic becomes a *PanicError, a runtime.Goexit becomes ErrGoexit. It costs a
// goroutine, since nothing else survives a Goexit; what is called for each job or event goes through a keeper instead.
func guard(f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := ErrGoexit // unless f comes back
		defer func() { result <- err }()
		err = catch(f)
	}()
	return <-result
}

// within calls f, a call of the store, and returns as it does, or the error of ctx as soon as that ends: a call may hear of that only when
// the Redis client's ReadTimeout is over. Then f goes on for so long, and what it returns is dropped.
func within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: ErrGoexit} // unless f comes back
		defer func() { done <- r }()
		r.err = catch(func() (err error) { r.value, err = f(); return err })
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// keeper is a goroutine that calls callbacks of the user's again and again and does not end when one of them calls
// runtime.Goexit: it is replaced then.
type keeper struct {
	step   func() bool // is called until it returns false; must not panic
	exited func() bool // a step called Goexit: says whether to go on
	done   chan struct{}
	id     string // of the goroutine, as stacks name it
}

func keep(step, exited func() bool) *keeper {
	k := &keeper{step: step, exited: exited, done: make(chan struct{})}
	k.start()
	return k
}

func (k *keeper) start() {
	go func() {
		returned := false
		defer func() {
			if !returned && k.exited() {
				k.start()
			} else {
				close(k.done)
			}
		}()
		k.id = goroutineID()
		for k.step() {
		}
		returned = true
	}()
}

// goroutineID returns the first words of the goroutine's stack: "goroutine 42 ". It serves to find that stack among all of
// them, and nothing else.
func goroutineID() string {
	var buf [32]byte
	head := string(buf[:runtime.Stack(buf[:], false)])
	if i := strings.IndexByte(head, '['); i > 0 {
		return head[:i]
	}
	return ""
}

// allStacks returns the stacks of all goroutines, by their ids, or of as many as fit into 16 MiB.
func allStacks() map[string]string {
	buf := make([]byte, 1<<20)
	n := runtime.Stack(buf, true)
	for n == len(buf) && n < 16<<20 {
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	stacks := map[string]string{}
	for one := range bytes.SplitSeq(buf[:n], []byte("\n\n")) {
		if i := bytes.IndexByte(one, '['); i > 0 {
			stacks[string(one[:i])] = string(one)
		}
	}
	return stacks
}
