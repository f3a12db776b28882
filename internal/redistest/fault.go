package redistest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// ErrFault is in every error that a Fault causes, next to io.EOF, which is what go-redis reports of a connection that
// the other side has closed.
var ErrFault = errors.New("redistest: fault")

func faulty(what string) error { return fmt.Errorf("%w: %s: %w", ErrFault, what, io.EOF) }

// Fault makes commands of a client fail. The zero value does nothing yet; it is installed by client.AddHook(fault),
// before the client's first command, on one client or on several. It is safe for concurrent use.
//
// There are two levels. FailNth and LoseReplyNth act above go-redis' own retries: the caller gets the error. CutNth and
// CutReplyNth act on the connection below: go-redis sees it close, and repeats the command by itself as it would.
//
// Each of the four picks the n-th command from now, 1 being the next, of those that all of only match; what go-redis
// sends by itself, to set a connection up or to learn of a Cluster's nodes, never counts. They return a channel that is closed as soon as the fault has happened. Each
// happens once; several can be armed together, each counting for itself.
//
// A script that the server doesn't know yet costs go-redis two commands, an EVALSHA and, after the answer NOSCRIPT, an
// EVAL. A fault that loses a reply never takes that answer but waits for the EVAL.
//
// On a Cluster client the hook alone does not reach the connections: set ClusterOptions.Dialer to what DialHook returns.
type Fault struct {
	mu        sync.Mutex
	plans     []*plan
	seen      int
	unplugged bool
	conns     map[*conn]struct{}
}

// FailNth keeps the n-th command from being sent: it fails with ErrFault. In a pipeline those before it are carried out
// and those after it fail as well; a transaction fails as a whole.
func (f *Fault) FailNth(n int, only ...Match) <-chan struct{} {
	return f.arm(&plan{level: atHook, n: n, only: only})
}

// LoseReplyNth lets the n-th command be carried out and then reports ErrFault instead of its reply. In a pipeline that
// holds for those after it too; a transaction loses all replies.
func (f *Fault) LoseReplyNth(n int, only ...Match) <-chan struct{} {
	return f.arm(&plan{level: atHook, lose: true, n: n, only: only})
}

// CutNth closes the connection instead of writing the n-th command to it; a pipeline's is not written at all.
func (f *Fault) CutNth(n int, only ...Match) <-chan struct{} {
	return f.arm(&plan{level: atConn, n: n, only: only})
}

// CutReplyNth closes the connection when the server has answered the n-th command, and drops the answer. Of a pipeline
// the client still reads the answers before that one. It is not for subscriptions.
func (f *Fault) CutReplyNth(n int, only ...Match) <-chan struct{} {
	return f.arm(&plan{level: atConn, lose: true, n: n, only: only})
}

// Unplug takes the server away: until Plug every command fails with ErrFault, every connection made since the hook was
// installed is closed, subscriptions included, and no new one is made. A command in flight has an unknown outcome.
func (f *Fault) Unplug() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unplugged = true
	for c := range f.conns {
		_ = c.Conn.Close()
	}
	clear(f.conns)
}

// Plug brings the server back.
func (f *Fault) Plug() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unplugged = false
}

// Seen is the number of commands that were given to the client so far, those that failed included. In a pipeline those
// after one that a fault has picked are not counted.
func (f *Fault) Seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// Match picks commands. It is given the command's name in lower case followed by its arguments, each cut to 256 bytes.
// An EVALSHA has the name eval too, and of both the script itself is empty.
type Match func(command []string) bool

// Named matches commands with one of these names; upper or lower case are the same.
func Named(names ...string) Match {
	return func(command []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, command[0]) })
	}
}

// Mentions matches commands with an argument that contains text: a key, a value or a part of one.
func Mentions(text string) Match {
	return func(command []string) bool {
		return slices.ContainsFunc(command[1:], func(arg string) bool { return strings.Contains(arg, text) })
	}
}

type level int

const (
	atHook level = iota
	atConn
)

// plan is a fault that waits for its command.
type plan struct {
	level  level
	lose   bool // the reply, instead of the command
	n      int
	only   []Match
	struck chan struct{}
}

func (f *Fault) arm(p *plan) <-chan struct{} {
	p.struck = make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plans = append(f.plans, p)
	return p.struck
}

// rearm puts a plan back whose command turned out not to be one that it can act on: it waits for the next.
func (f *Fault) rearm(p *plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.n = 1
	f.plans = append(f.plans, p)
}

// take counts a command on all plans of a level, and takes out and returns the plan that it is the one for, if any.
func (f *Fault) take(l level, command func() []string) *plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	var due *plan
	var words []string
	for _, p := range f.plans {
		if p.level != l {
			continue
		}
		if words == nil {
			words = command()
		}
		if slices.ContainsFunc(p.only, func(m Match) bool { return !m(words) }) {
			continue
		}
		if p.n--; p.n <= 0 && due == nil {
			due = p // another that is due as well takes the next command
		}
	}
	f.plans = slices.DeleteFunc(f.plans, func(p *plan) bool { return p == due })
	return due
}

// maxArg is how much of an argument a Match sees.
const maxArg = 256

// normal gives a command's words the form that Match promises. It changes words.
func normal(words []string) []string {
	words[0] = strings.ToLower(words[0])
	if words[0] == "evalsha" || words[0] == "eval" {
		words[0] = "eval"
		if len(words) > 1 {
			words[1] = ""
		}
	}
	for i, w := range words {
		words[i] = w[:min(len(w), maxArg)]
	}
	return words
}

// setsUp reports whether a command, by its name, is of those that go-redis sends by itself: on a new connection, and to learn what a
// Cluster is made of.
func setsUp(name string) bool {
	switch strings.ToLower(name) {
	case "hello", "auth", "select", "client", "readonly", "cluster", "command":
		return true
	}
	return false
}

// adopt keeps a connection for Unplug; it reports false, and the connection is not to be used, while unplugged.
func (f *Fault) adopt(c *conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unplugged {
		return false
	}
	if f.conns == nil {
		f.conns = map[*conn]struct{}{}
	}
	f.conns[c] = struct{}{}
	return true
}

func (f *Fault) forget(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}
