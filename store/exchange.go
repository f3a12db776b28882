package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
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
	if err := ValidateInstance(t.Instance); err != nil {
		return Exchanged{}, err
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
	calm := 0
	if x.NoSuspects {
		calm = 1
	}
	args := append(make([]any, 0, 12+3*len(x.Finishes)+len(x.Claims)),
		number, t.Lease.Milliseconds(), keep, t.Dead.count(), none, wake, t.Limit, t.Rate.pace(), calm, c.rest[:])
	args = c.append(args)
	var out Exchanged
	err = r.s.do(ctx, "exchanging", func() error {
		keys := append(r.s.instanceKeys(t.Instance), r.s.keys.lane(t.Instance, laneID))
		p, err := r.s.run(ctx, scriptExchange, keys, args...)
		if err != nil {
			return err
		}
		return out.read(&p, c)
	})
	if err != nil {
		return Exchanged{}, err
	}
	lane.settled()
	return out, nil
}

// call is an Exchange as exchange.lua wants it: the workers by numbers, those that finish first.
type call struct {
	terms    Terms
	finishes []Finish
	workers  []uuid.UUID
	claims   []bool                 // whether the worker wants a job
	rest     [tokenLen - idLen]byte // what follows the id in the tokens of the jobs that they get: nonce and process
}

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
	binary.LittleEndian.PutUint64(c.rest[:], rand.Uint64())
	copy(c.rest[nonceLen:], t.Process[:])
	return c, nil
}

// append adds the request to the arguments of exchange.lua.
func (c *call) append(args []any) []any {
	letters := make([]byte, 0, len(c.finishes))
	var details []any
	for i := range c.finishes {
		f := &c.finishes[i]
		letters = append(letters, f.letter())
		details = f.details(details, i+1)
		if !c.claims[i] {
			details = append(details, i+1, "L", "")
		}
	}
	args = append(args, letters, len(c.workers))
	for i := range c.workers {
		args = append(args, c.workers[i][:])
	}
	for i := range c.finishes {
		args = append(args, c.finishes[i].Lease.token)
	}
	return append(args, details...)
}

// read takes the reply of exchange.lua apart.
func (out *Exchanged) read(p *reader, c *call) error {
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
	now, mine, got, before, kept := p.int(), p.list(), p.list(), p.list(), p.list()
	out.Suspects = p.int() == 1
	out.Leases = make([]*Lease, 0, len(mine.v)/6+len(got.v)/2)
	held := make([]bool, len(c.workers))
	for mine.more() {
		i := int(mine.int()) - 1
		if i < 0 || i >= len(c.workers) || !c.claims[i] {
			return fmt.Errorf("answered for worker %d of %d", i+1, len(c.workers))
		}
		held[i] = true
		token, record := mine.str(), mine.str()
		l := newLease(c.terms.Instance, c.workers[i], token, record)
		l.claimed(parseRun(mine.str()))
		if since := l.run.since(); l.run.place != placeOf(record) && since.After(l.Job.RunAt) {
			l.Job.RunAt = since
		}
		l.Job.Progress, l.Job.LastError = mine.raw(), mine.str()
		out.Leases = append(out.Leases, l)
	}
	fresh := len(out.Leases)
	for i := 0; got.more(); i++ {
		for i < len(c.workers) && (held[i] || !c.claims[i]) {
			i++
		}
		if i == len(c.workers) {
			return errors.New("answered with more jobs than were asked for")
		}
		token, record := got.str()+string(c.rest[:]), got.str()
		l := newLease(c.terms.Instance, c.workers[i], token, record)
		l.claimed(run{attempt: 1, place: placeOf(record), started: now, worker: c.workers[i]}, nil)
		out.Leases = append(out.Leases, l)
	}
	for kept.more() {
		one := kept.list()
		i := int(one.int()) - 1
		if i < 0 || i >= len(out.Leases) {
			return fmt.Errorf("answered for job %d of %d", i+1, len(out.Leases))
		}
		l := out.Leases[i]
		l.Steps.read(l.Job, &one)
	}
	for before.more() {
		number := before.int() // negative for the first claim of all
		i := fresh + int(max(number, -number)) - 1
		if i < fresh || i >= len(out.Leases) {
			return fmt.Errorf("answered for job %d of %d", i-fresh+1, len(out.Leases)-fresh)
		}
		l := out.Leases[i]
		l.claimed(parseRun(before.str()))
		l.Job.Progress, l.Job.LastError = before.raw(), before.str()
		if number > 0 {
			l.Job.RunAt = l.run.since()
		}
	}
	return nil
}

// newLease makes a Lease of what a script tells of the job. A record that can't be read makes it Broken.
func newLease(instance string, worker uuid.UUID, token, record string) *Lease {
	l := &Lease{Job: Job{Instance: instance, State: Doing, Worker: worker}, token: token, Steps: Steps{Complete: true}}
	copy(l.Job.ID[:], token)
	l.Broken = decodeRecord(record, &l.Job)
	return l
}

// claimed says which of the job's runs this is.
func (l *Lease) claimed(r run, err error) {
	if err != nil && l.Broken == nil {
		l.Broken = err
	}
	if _, err := strconv.ParseUint(r.place, 10, 64); err != nil {
		r.place = placeOf("") // somebody else wrote it: a script must not stumble over it half-way
	}
	l.run = r
	l.Job.Attempt, l.Job.Crashes, l.Job.StartedAt = r.attempt, r.crashes, fromMS(r.started)
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
