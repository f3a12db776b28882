package loop

import (
	"sync"
	"sync/atomic"
	"time"
)

// Name tells loops apart: what it does, for which instance ("" for the process), and which of several alike it is.
type Name struct {
	Loop, Instance string
	Number         int
}

// Outage is a time in which something failed again and again.
type Outage struct {
	Name     Name  // the loop that failed first
	Err      error // and how
	Since    time.Time
	Failures int // of all loops, so far
}

// Outages turns the failures of many loops into few reports. When a server is gone every loop that needs it fails, all for the
// same reason: that is one outage, from the first loop that fails to the success of the last that did.
//
// A nil Outages reports nothing.
type Outages struct {
	// Began and Ended are called in order, one at a time, from whatever goroutine reports. They must not call back.
	Began, Ended func(Outage)
	// Scope tells reasons apart: failures of the same scope are one outage. Where it is nil all are.
	Scope func(Name, error) string

	failing atomic.Int32 // loops that failed last time
	mu      sync.Mutex
	open    map[string]*outage // by scope
	loops   map[Name]*outage   // the outage that each failing loop takes part in
}

type outage struct {
	Outage
	scope string
	loops int
}

// Any reports whether anything fails at present.
func (o *Outages) Any() bool { return o != nil && o.failing.Load() > 0 }

// Open reports whether there is an outage of that scope at present.
func (o *Outages) Open(scope string) bool {
	if !o.Any() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[scope] != nil
}

// Failed notes that a loop failed.
func (o *Outages) Failed(name Name, err error) {
	if o == nil {
		return
	}
	scope := ""
	if o.Scope != nil {
		scope = o.Scope(name, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	in := o.loops[name]
	if in != nil && in.scope != scope { // it got over one trouble, to meet another
		o.leaveLocked(name, in)
		in = nil
	}
	if in == nil {
		in = o.joinLocked(name, scope, err)
	}
	in.Failures++
}

func (o *Outages) joinLocked(name Name, scope string, err error) *outage {
	if o.loops == nil {
		o.open, o.loops = map[string]*outage{}, map[Name]*outage{}
	}
	in := o.open[scope]
	if in == nil {
		in = &outage{Outage: Outage{Name: name, Err: err, Since: time.Now()}, scope: scope}
		o.open[scope] = in
		o.Began(in.Outage)
	}
	o.loops[name] = in
	in.loops++
	o.failing.Add(1)
	return in
}

// OK notes that a loop succeeded. It costs next to nothing while nothing fails.
func (o *Outages) OK(name Name) {
	if !o.Any() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.loops[name]; in != nil {
		o.leaveLocked(name, in)
	}
}

// leaveLocked takes a loop out of its outage, which ends with the last.
func (o *Outages) leaveLocked(name Name, in *outage) {
	o.forgetLocked(name, in)
	if in.loops == 0 {
		o.Ended(in.Outage)
	}
}

// Gone forgets a loop that has ended, whether it was failing or not: nobody knows how it would have gone on.
func (o *Outages) Gone(name Name) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.loops[name]; in != nil {
		o.forgetLocked(name, in)
	}
}

func (o *Outages) forgetLocked(name Name, in *outage) {
	delete(o.loops, name)
	o.failing.Add(-1)
	if in.loops--; in.loops == 0 {
		delete(o.open, in.scope)
	}
}
