package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// A lease's token is the worker's mapping as a whole: the job's id, a nonce made for this claim, the process. Together with
// the worker, in whose name it stands, it never repeats.
const (
	idLen    = 16
	nonceLen = 8
	tokenLen = idLen + nonceLen + 16
)

// Exchange ends the leases in x.Finishes and claims jobs for the workers in x.Claims, in one script. After an error the outcome is
// unknown, or nothing was done: the caller makes the same call again on the same lane until it is answered.
func (r *Runtime) Exchange(ctx context.Context, lane *Lane, t Terms, x Exchange) (Exchanged, error) {
	if len(x.Finishes) > MaxCall || len(x.Claims) > MaxCall {
		return Exchanged{}, invalid("%d finishes and %d claims in one call; at most %d of each are allowed",
			len(x.Finishes), len(x.Claims), MaxCall)
	}
	laneID, number := lane.request()
	keep, none := t.Done.count(), 0
	if t.Done == (Retention{}) {
		keep, none = -1, 1
	}
	wake := ""
	if x.Wait {
		wake = r.s.keys.process(t.Process)
	}
	c, err := newCall(t, &x)
	if err != nil {
		return Exchanged{}, err
	}
	args := make([]any, 0, 10+6*len(x.Finishes)+2*len(x.Claims))
	args = append(args, number, t.Lease.Milliseconds(), keep, t.Dead.count(), none, wake, t.Limit, t.Rate.pace(), len(x.Finishes), len(c.workers)-len(x.Finishes))
	args = c.append(args)
	var out Exchanged
	err = r.s.do(ctx, "exchanging", func() error {
		keys := append(r.s.instanceKeys(t.Instance), r.s.keys.lane(t.Instance, laneID))
		reply, err := r.s.run(ctx, scriptExchange, keys, args...)
		if err != nil {
			return err
		}
		return out.read(reply, c)
	})
	if err != nil {
		return Exchanged{}, err
	}
	lane.settled()
	return out, nil
}

// call is an Exchange as exchange.lua wants it: one line a worker, those that finish first.
type call struct {
	terms    Terms
	finishes []Finish
	workers  []uuid.UUID
	claims   []bool // whether the worker wants a job
	rests    []byte // what follows the id in the token of the job that it gets: nonce and process
}

const restLen = tokenLen - idLen

func newCall(t Terms, x *Exchange) (*call, error) {
	n := len(x.Finishes)
	c := &call{terms: t, finishes: x.Finishes, workers: make([]uuid.UUID, n, n+len(x.Claims)), claims: make([]bool, n, n+len(x.Claims))}
	line := make(map[uuid.UUID]int, n+len(x.Claims))
	for i := range x.Finishes {
		w := x.Finishes[i].Lease.Job.Worker
		if _, twice := line[w]; twice {
			return nil, invalid("worker %s finishes twice in one call", w)
		}
		c.workers[i], line[w] = w, i
	}
	for _, w := range x.Claims {
		i, ok := line[w]
		switch {
		case !ok:
			i = len(c.workers)
			line[w] = i
			c.workers, c.claims = append(c.workers, w), append(c.claims, true)
		case c.claims[i]:
			return nil, invalid("worker %s claims twice in one call", w)
		default:
			c.claims[i] = true
		}
	}
	c.rests = make([]byte, 0, restLen*len(c.workers))
	for range c.workers {
		c.rests = binary.LittleEndian.AppendUint64(c.rests, rand.Uint64())
		c.rests = append(c.rests, t.Process[:]...)
	}
	return c, nil
}

func (c *call) rest(i int) []byte { return c.rests[i*restLen : (i+1)*restLen] }

// append adds the lines of all workers to the arguments of exchange.lua.
func (c *call) append(args []any) []any {
	for i := range c.workers {
		rest := c.rest(i)
		if !c.claims[i] {
			rest = nil
		}
		if i < len(c.finishes) {
			args = c.finishes[i].append(args, rest)
		} else {
			args = append(args, c.workers[i][:], rest)
		}
	}
	return args
}

// read takes the reply of exchange.lua apart.
func (out *Exchanged) read(reply []any, c *call) error {
	p := reader{v: reply}
	letters := p.str()
	if len(letters) != len(c.finishes) {
		return fmt.Errorf("answered for %d finishes of %d", len(letters), len(c.finishes))
	}
	out.Ended = make([]State, len(letters))
	for i := range letters {
		out.Ended[i] = stateOf(letters[i])
	}
	out.Next = millis(p.int())
	out.Trimmed = int(p.int())
	out.Expired = p.ids()
	got, before, kept := p.list(), p.list(), p.list()
	out.Leases = make([]*Lease, 0, len(got.v)/4)
	byLine := map[int64]*Lease{}
	for got.more() {
		line := got.int()
		i := int(line) - 1
		if i < 0 || i >= len(c.workers) || !c.claims[i] {
			return fmt.Errorf("answered for worker %d of %d", line, len(c.workers))
		}
		token := got.str()
		if len(token) == idLen {
			token += string(c.rest(i))
		}
		l := newLease(c.terms.Instance, c.workers[i], token, got.str(), got.str())
		out.Leases = append(out.Leases, l)
		if before.more() || kept.more() {
			byLine[line] = l
		}
	}
	for kept.more() {
		one := kept.list()
		if l := byLine[one.int()]; l != nil {
			l.Steps.read(l.Job, &one)
		}
	}
	for before.more() {
		if l := byLine[before.int()]; l != nil {
			l.Job.Progress, l.Job.LastError = before.raw(), before.str()
		}
	}
	return nil
}

// newLease makes a Lease of what a script tells of it. What can't be read makes it Broken.
func newLease(instance string, worker uuid.UUID, token, record, ran string) *Lease {
	l := &Lease{Job: Job{Instance: instance, State: Doing, Worker: worker}, token: token, Steps: Steps{Complete: true}}
	copy(l.Job.ID[:], token)
	l.Broken = decodeRecord(record, &l.Job)
	var err error
	if l.run, err = parseRun(ran); err != nil && l.Broken == nil {
		l.Broken = err
	}
	l.Job.Attempt, l.Job.Crashes, l.Job.StartedAt = l.run.attempt, l.run.crashes, fromMS(l.run.started)
	return l
}

// append adds the finish to the arguments of exchange.lua: worker, lease, the rest of the next lease, the state asked for
// with a letter for each argument that follows.
func (f *Finish) append(args []any, rest []byte) []any {
	l := f.Lease
	target, score := "d", ""
	after := l.run
	after.crashes = 0
	switch f.Verb {
	case Complete:
	case Bury:
		target = "x"
	case Cancel:
		target = "c"
	case Release:
		target, score = "t", l.run.place
		after.attempt--
	case Park:
		target, score = "p", l.run.place
		after.attempt--
	case Snooze, Retry:
		target = "s"
		score = fmt.Sprintf("%d", min(ceilMS(f.Delay), latest.UnixMilli())*16+int64(MaxPriority-l.Job.Priority))
		if f.Verb == Snooze {
			after.attempt--
		}
	default:
		panic(fmt.Sprintf("stint: unknown verb %q", f.Verb))
	}
	at := len(args)
	args = append(args, l.Job.Worker[:], l.token, rest, "")
	add := func(letter string, v any) {
		target += letter
		args = append(args, v)
	}
	if score != "" {
		add("S", score)
	}
	if after != l.run {
		add("N", after.String())
	}
	if f.Error != "" && f.Verb != Complete && f.Verb != Park {
		add("E", Cut(f.Error, MaxError))
	}
	if f.Progress != nil {
		add("P", []byte(f.Progress))
	}
	if f.Result != nil && f.Verb == Complete {
		add("R", []byte(f.Result))
	}
	if f.Verb == Park {
		add("W", f.Wait.words())
	}
	args[at+3] = target
	return args
}

// Worker returns who holds the lease.
func (l *Lease) Worker() uuid.UUID { return l.Job.Worker }

// pace is the ms between two claims, 0 for any.
func (r Rate) pace() string {
	if r.N <= 0 || r.Per <= 0 {
		return "0"
	}
	return strconv.FormatFloat(float64(r.Per)/float64(time.Millisecond)/float64(r.N), 'f', 6, 64)
}

// count is Retention's bound in the scripts' words: -1 for none.
func (r Retention) count() int {
	if r == (Retention{}) {
		return 0
	}
	if r.Count == 0 {
		return -1
	}
	return r.Count
}

// age is the same of the bound by age, in ms before now.
func (r Retention) age() int64 {
	if r.Age == 0 {
		return -1
	}
	return r.Age.Milliseconds()
}

func stateOf(letter byte) State {
	switch letter {
	case 't':
		return Todo
	case 's':
		return Scheduled
	case 'p':
		return Parked
	case 'd':
		return Done
	case 'x':
		return Dead
	case 'c':
		return Cancelled
	}
	return ""
}

// ceilMS rounds up: a wait is never shorter than asked for.
func ceilMS(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 1
}

func millis(n int64) time.Duration {
	return time.Duration(min(n, int64(1<<62/time.Millisecond))) * time.Millisecond
}

func validJSON(b []byte) bool { return json.Valid(b) }

// Cut shortens a text to at most n bytes of whole runes.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
