package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/cronspec"
	"github.com/stint-go/stint/store"
)

// Defaults and bounds of a Cron.
const (
	DefaultWindow = 24 * time.Hour
	MaxCatchUp    = 500
)

// NoCatchUp is the CatchUp of an entry whose missed ticks are not made up for.
const NoCatchUp = -1

// Cron is an entry: at each of its ticks, a job. It is declared in every process, with [Supervisor.Schedule].
type Cron struct {
	// Key names the entry: 1 to 128 letters, digits and . _ - / :. It belongs to its Instance until it is removed.
	Key string
	// Spec says when it fires: see [ParseSpec]. A CRON_TZ= in it takes the place of Zone.
	Spec string
	// Zone is the IANA name of the zone of the clock on the wall; "" is UTC. It has to be known on every machine.
	Zone string
	// Instance is whose job it is. It need not be handled by this process.
	Instance string
	// Payload and Options make the job of each tick. ID, At, Delay and Unique are refused: a tick's job has an id of its own. So is Deadline:
	// it is one moment, from which on all jobs would be dead.
	Payload any
	Options []EnqueueOption
	// CatchUp says how many of the ticks that were missed, since no process was there or Redis was away, are made up for: the latest
	// so many, at most 500; 0 means 1, NoCatchUp none. A tick that is decided within a second of its time was not missed.
	CatchUp int
	// Window is for how long a tick can be made up for, by default 24 h. Whatever becomes of a missed tick, there is a record of it.
	Window time.Duration
	// Jitter holds each job back for a part of it, which is always the same for a tick. It changes nothing of the tick.
	Jitter time.Duration
	// SkipOverlap skips a tick while the job of the last one that was dispatched has not ended: nor has one that Jitter still holds back,
	// so that a Jitter as long as the time between two ticks skips some of them.
	SkipOverlap bool
	// RecordAge and RecordCount bound what is kept of its ticks, by default 7 days and 10,000. Age must not be less than Window, nor
	// Count less than CatchUp.
	RecordAge   time.Duration
	RecordCount int
}

// Schedule declares entries. What is wrong with one is remembered: Run returns it. After Run it panics.
//
// Every process that may fire an entry declares it; there is no leader. What is registered last stands, in all of them: a process whose
// own declaration is another one fires by that which stands, and says so once, as EntryReplaced. An entry that was disabled stays so, and
// one that was removed, while this process runs, is not fired any more until a process that starts has brought it back. An entry
// without a process that declares it does not fire.
//
// An entry is the same in all processes, and its job is made once, of what is declared here: so the Hooks of the Config do not see it. What they
// would add differs from process to process, or is of the tick: a trace, a text encrypted anew. Its payload is no place for a secret.
//
// For each tick one job is enqueued, however many processes there are, whatever their clocks say, and whatever crashes: not before its
// time by Redis' clock, and a little after it where all is well.
func (s *Supervisor) Schedule(entries ...Cron) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		panic("stint: an entry is scheduled after Run")
	}
	for _, c := range entries {
		d, err := c.definition()
		if err == nil && s.scheduled[c.Key] {
			err = invalid("there are two")
		}
		if err != nil {
			s.problems = append(s.problems, fmt.Errorf("entry %q: %w", c.Key, err))
			continue
		}
		s.scheduled[c.Key] = true
		s.entries[c.Instance] = append(s.entries[c.Instance], d)
	}
}

// definition checks all that can be wrong with an entry.
func (c Cron) definition() (store.Definition, error) {
	d := store.Definition{Key: c.Key, Spec: strings.TrimSpace(c.Spec), Zone: c.Zone, CatchUp: c.CatchUp, Window: c.Window, Jitter: c.Jitter,
		SkipOverlap: c.SkipOverlap, RecordAge: c.RecordAge, RecordCount: c.RecordCount}
	if rest, ok := strings.CutPrefix(d.Spec, "CRON_TZ="); ok {
		d.Zone, d.Spec = rest, ""
		if i := strings.IndexAny(rest, " \t"); i >= 0 {
			d.Zone, d.Spec = rest[:i], strings.TrimSpace(rest[i:])
		}
		if c.Zone != "" && c.Zone != d.Zone {
			return d, invalid("its spec has the zone %.80q, beside %.80q", d.Zone, c.Zone)
		}
	}
	zone, err := cronspec.Zone(c.Zone)
	if err != nil {
		return d, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	spec, err := ParseSpec(c.Spec, zone)
	switch {
	case err != nil:
		return d, err
	case spec.Next(time.Now()).IsZero():
		return d, invalid("the spec %q never fires", c.Spec)
	}
	if err := c.bounds(&d); err != nil {
		return d, err
	}
	if d.Job, err = c.job(); err != nil {
		return d, err
	}
	return d, errors.Join(d.Validate(), store.ValidateInstance(c.Instance))
}

// bounds checks the numbers of an entry, and fills in what was left out.
func (c Cron) bounds(d *store.Definition) error {
	switch {
	case c.CatchUp == NoCatchUp:
		d.CatchUp = 0
	case c.CatchUp < 0 || c.CatchUp > MaxCatchUp:
		return invalid("%d ticks are to be made up for; NoCatchUp, or 1 to %d, are allowed", c.CatchUp, MaxCatchUp)
	case c.CatchUp == 0:
		d.CatchUp = 1
	}
	if c.Window < 0 || c.Jitter < 0 || c.RecordAge < 0 || c.RecordCount < 0 {
		return invalid("the window %v, the jitter %v or a bound of its records, %v and %d, is negative", c.Window, c.Jitter, c.RecordAge, c.RecordCount)
	}
	d.Window = cmp.Or(c.Window, DefaultWindow)
	d.RecordAge = cmp.Or(c.RecordAge, store.DefRecordAge)
	d.RecordCount = cmp.Or(c.RecordCount, store.DefRecordCount)
	switch {
	case d.RecordAge < d.Window:
		return invalid("records are kept for %v, less than the window of %v", d.RecordAge, d.Window)
	case d.RecordCount < d.CatchUp:
		return invalid("%d records are kept, less than the %d ticks that are made up for", d.RecordCount, d.CatchUp)
	}
	return nil
}

// job is what a tick enqueues.
func (c Cron) job() (store.NewJob, error) {
	var e enqueuing
	for _, o := range c.Options {
		if o != nil {
			o(&e)
		}
	}
	switch {
	case e.job.ID != uuid.Nil:
		return store.NewJob{}, invalid("the option ID: each tick's job has its own")
	case e.delayed || e.timed:
		return store.NewJob{}, invalid("the option At or Delay: a tick's job runs at its tick, or after Jitter")
	case !e.job.Deadline.IsZero():
		return store.NewJob{}, invalid("the option Deadline: it would be the same for all ticks")
	case e.job.Unique != store.Unique{}:
		return store.NewJob{}, invalid("the option Unique: a tick's job is unique; see SkipOverlap")
	}
	return newJob(c.Instance, c.Payload, c.Options)
}

// Spec says when an entry fires. The zero Spec never does.
type Spec struct{ spec cronspec.Spec }

// ParseSpec reads a spec: the five fields minute, hour, day of the month, month and day of the week, or six with the second first; @every
// and a duration of at least 100 ms, counted from 1970; @hourly, @daily (@midnight), @weekly, @monthly, @yearly (@annually). CRON_TZ=
// and a zone before it take the place of zone, of which nil is UTC.
//
// A field is a list of values, ranges (from-to, also over the end as in fri-mon) and steps (*/n, from-to/n, from/n). Months and
// weekdays may be named by three letters; 7 is Sunday as 0 is. If neither of the two fields of days begins with * a day has to match
// one of them, else both. The error is an ErrInvalid that names the field and the position of what can't be read.
func ParseSpec(spec string, zone *time.Location) (Spec, error) {
	s, err := cronspec.Parse(spec, zone)
	if err != nil {
		return Spec{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return Spec{s}, nil
}

// Next returns the first tick after a moment, in the spec's zone; the zero time if there is none, which is if none comes within 100 years.
//
// A fixed time, where neither the minute nor the hour begins with *, comes once a day that it matches: in an hour that comes twice
// the first time, and if the clock is turned forward over it at that moment. Any other spec follows elapsed time: it fires whenever the
// clock on the wall matches, twice in an hour that comes twice and not in one that does not come.
func (s Spec) Next(after time.Time) time.Time { return s.spec.Next(after) }

// Upcoming returns the first n ticks after a moment, or as many as there are.
func (s Spec) Upcoming(after time.Time, n int) []time.Time {
	var all []time.Time
	for range n {
		if after = s.Next(after); after.IsZero() {
			break
		}
		all = append(all, after)
	}
	return all
}

// String says in words when it fires.
func (s Spec) String() string { return s.spec.String() }

// Tick is one of an entry's fire times.
type Tick struct {
	Entry string
	// At is the time that it was to fire at, Previous that of the last tick that was dispatched before, zero if this is the first: a job
	// that works on all since the last one has there where to begin. Both are in the entry's zone.
	At, Previous time.Time
	Late         time.Duration // how long after At it was dispatched
}

// TickFrom returns the tick that a handler's job is of. It is false for a job that was enqueued otherwise, or by hand.
func TickFrom(ctx context.Context) (Tick, bool) {
	job, _ := JobFrom(ctx)
	if job.Tick.At.IsZero() {
		return Tick{}, false
	}
	zone, err := cronspec.Zone(job.Tick.Zone)
	if err != nil {
		zone = time.UTC // as in a program without zone data
	}
	t := Tick{Entry: job.Tick.Entry, At: job.Tick.At.In(zone), Previous: job.Tick.Previous, Late: job.EnqueuedAt.Sub(job.Tick.At)}
	if !t.Previous.IsZero() {
		t.Previous = t.Previous.In(zone)
	}
	return t, true
}
