package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/ids"
)

// Dispatch is the record of a tick.
type Dispatch struct {
	Entry  string
	FireAt time.Time // the tick; of a dispatch by hand, when that was
	// DispatchedAt is when it was decided, Node who did.
	DispatchedAt time.Time
	Node         string // "" of a dispatch by hand
	Status       string // StatusDispatched, StatusSkipped or StatusFailed
	Reason       string // of a tick that was skipped or has failed
	Job          uuid.UUID

	Instance string
	First    time.Time // the first of the ticks that a skipped record stands for: FireAt, unless there are many
	ByHand   bool      // not a tick: RunEntry
}

// The statuses of a tick. One that has failed is tried again for as long as the entry's window says.
const (
	StatusDispatched = "dispatched"
	StatusSkipped    = "skipped"
	StatusFailed     = "failed"
)

// The reasons that dispatch.lua gives by itself.
const (
	ReasonOverlap = "the job of the tick before has not ended" // of a tick that was skipped for the entry's SkipOverlap
	ReasonUnmade  = "what its job is made of was lost"         // of one that has failed, until the entry is registered again
)

// maxReason and maxNode are how many bytes a record has of its reason and its node; of a tick that was skipped after it had failed it has
// both reasons.
const (
	maxReason = 512
	maxNode   = 128
)

// JobOfTick returns the id of the job that an entry's tick has under this store's prefix.
func (r *Runtime) JobOfTick(instance, entry string, tick time.Time) uuid.UUID {
	name := strings.Join([]string{r.s.keys.prefix, instance, entry, strconv.FormatInt(tick.UnixMilli(), 10)}, "\x00")
	sum := sha256.Sum256([]byte(name))
	id, _ := uuid.FromBytes(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8: an id of somebody's own making
	return id
}

// Dispatch decides ticks of entries of one instance. A tick is decided once: if another process was first, or the entry is another
// one by now, nothing is changed and the verdict says so. A repetition on the same lane is answered as the first was. ErrServer says
// that nothing was decided; see Undispatched.
func (r *Runtime) Dispatch(ctx context.Context, lane *Lane, instance, node string, all []EntryTicks) ([]TickAnswer, time.Time, error) {
	laneID, number := lane.request()
	keys := append(r.s.instanceKeys(instance), r.s.keys.lane(instance, laneID))
	keys = append(keys, r.s.keys.cron(instance)[1:]...)
	args := []any{number, cut(node, maxNode)}
	for i := range all {
		e := &all[i].Entry
		keys = append(keys, r.s.keys.dispatches(instance, e.Key))
		args = append(args, e.Key, ms(e.Decided), e.Fingerprint, recordAge(e).Milliseconds(), recordCount(e), flag(e.SkipOverlap), ms(all[i].Till),
			len(all[i].Decisions))
		for _, d := range all[i].Decisions {
			args = append(args, r.decision(instance, e, d)...)
		}
	}
	var answers []TickAnswer
	var now time.Time
	err := r.s.do(ctx, "dispatching", func() (err error) {
		answers, now, err = r.s.dispatch(ctx, instance, keys, args, all)
		return err
	})
	if err != nil {
		return nil, now, err
	}
	lane.settled()
	return answers, now, nil
}

// decision is one in the words of dispatch.lua.
func (r *Runtime) decision(instance string, e *EntryState, d Decision) []any {
	first := d.First
	if first.IsZero() {
		first = d.Tick
	}
	if d.Skip != "" {
		return []any{"s", ms(d.Tick), ms(first), cut(d.Skip, maxReason), "", "", 0}
	}
	id := r.JobOfTick(instance, e.Key, d.Tick)
	about := fmt.Sprintf("%d %d %s %s", ms(d.Tick), ms(d.Previous), e.Zone, e.Key)
	options := append(binary.AppendUvarint([]byte{tagTick}, uint64(len(about))), about...)
	if !d.Due.IsZero() { // until then it does not wait for a worker
		due := strconv.FormatInt(ms(d.Due), 10)
		options = append(binary.AppendUvarint(append(options, tagDue), uint64(len(due))), due...)
	}
	if len(d.Metadata) > 0 {
		m, _ := json.Marshal(d.Metadata) // strings always can
		options = append(binary.AppendUvarint(append(options, tagMetadata), uint64(len(m))), m...)
	}
	return []any{"d", ms(d.Tick), ms(first), "", id[:], options, ms(d.Due)}
}

func (s *Store) dispatch(ctx context.Context, instance string, keys []string, args []any, all []EntryTicks) ([]TickAnswer, time.Time, error) {
	if err := s.announce(ctx, instance, false); err != nil {
		return nil, time.Time{}, err
	}
	p, err := s.run(ctx, scriptDispatch, keys, args...)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, lines, fresh := parseMS(p.str()), strings.Split(p.str(), "\n"), p.int() == 1
	if len(lines) != len(all)+1 {
		return nil, now, fmt.Errorf("answered for %d entries of %d", len(lines)-1, len(all))
	}
	answers, decidedAt := make([]TickAnswer, len(all)), parseMS(lines[0])
	for i, line := range lines[1:] {
		f := strings.SplitN(line, " ", 4)
		if len(f) != 4 || f[0] == "" {
			return nil, now, fmt.Errorf("an answer that can't be read: %.40q", line)
		}
		answers[i] = TickAnswer{Verdict: TickVerdict(f[0][0]), Latest: parseMS(f[1]), Last: parseMS(f[2]), Outcomes: []TickOutcome(f[3]),
			DecidedAt: decidedAt}
		if answers[i].Verdict == Spoilt {
			answers[i].Outcomes, answers[i].Err = nil, s.spoilt(instance, all[i].Entry.Key, f[3])
		}
	}
	if fresh { // it may have been deleted since we announced it
		return answers, now, s.announce(ctx, instance, true)
	}
	return answers, now, nil
}

// spoilt is the error of an entry whose records' key has a foreign type.
func (s *Store) spoilt(instance, entry, kind string) error {
	return &KeyError{Key: s.keys.dispatches(instance, entry), Type: kind, Want: "zset"}
}

// Undispatched notes for the latest tick of each of these that was to be dispatched that it could not be, and why; others it passes over, and
// those of entries that were removed, disabled or changed since, and of ticks that others have decided. It works where Redis has no memory
// left, within the bounds of the entry's records, and where a foreign key spoils the instance's jobs. It says of each entry whether that had
// not been noted yet, and when this was, by Redis' clock. A *KeyError, after all others were noted, names the records of one that could not be.
func (r *Runtime) Undispatched(ctx context.Context, instance, node, reason string, all []EntryTicks) ([]bool, time.Time, error) {
	keys := []string{r.s.keys.cron(instance)[2]}
	var sent []int
	args := []any{cut(node, maxNode), cut(reason, maxReason)}
	for i := range all {
		e := &all[i].Entry
		if d := all[i].Latest(); !d.Tick.IsZero() {
			keys, sent = append(keys, r.s.keys.dispatches(instance, e.Key)), append(sent, i)
			args = append(args, e.Key, e.Fingerprint, ms(d.Tick), recordAge(e).Milliseconds(), recordCount(e))
		}
	}
	first, now := make([]bool, len(all)), time.Time{}
	if len(sent) == 0 {
		return first, now, nil
	}
	err := r.s.do(ctx, "noting a failed dispatch", func() error {
		p, err := r.s.run(ctx, scriptUndispatched, keys, args...)
		if err != nil {
			return err
		}
		now = parseMS(p.str())
		l := p.list()
		for _, i := range sent {
			switch v := l.next().(type) {
			case int64:
				first[i] = v == 1
			case string:
				err = errors.Join(err, r.s.spoilt(instance, all[i].Entry.Key, v))
			}
		}
		return err
	})
	return first, now, err
}

// RunEntry dispatches an entry by hand: its job runs now, also where the entry is disabled. That has a record of its own and is
// not a tick: it changes nothing of those. After an error other than the following it may run all the same: Dispatches tells.
// ErrNotFound if there is no such entry, ErrState if what its job is made of was lost, until a process that declares the entry
// has registered it again.
func (s *Store) RunEntry(ctx context.Context, key string) (uuid.UUID, error) {
	id := ids.New()
	err := s.entry(ctx, "running an entry", key, func(instance string) error {
		read, err := s.readEntries(ctx, instance, "", []string{key})
		if err != nil {
			return err
		}
		e := &read.Entries[0]
		lane, number := new(Lane).request()
		keys := append(append(s.instanceKeys(instance), s.keys.lane(instance, lane)), s.keys.cron(instance)[1:]...)
		keys = append(keys, s.keys.dispatches(instance, key))
		answers, _, err := s.dispatch(ctx, instance, keys, []any{number, "", key, 0, "",
			recordAge(e).Milliseconds(), recordCount(e), 0, 0, 1, "h", 0, 0, "", id[:], "", 0}, []EntryTicks{{Entry: *e}})
		if err != nil {
			return err
		}
		switch answers[0].Verdict {
		case Absent:
			return fmt.Errorf("%w: entry %s", ErrNotFound, key)
		case Unmade:
			return fmt.Errorf("%w: entry %s: %s", ErrState, key, ReasonUnmade)
		}
		return answers[0].Err
	})
	if err != nil {
		return uuid.Nil, err
	}
	return id, nil
}

func recordAge(e *EntryState) time.Duration {
	if e.RecordAge > 0 {
		return e.RecordAge
	}
	return DefRecordAge
}

func recordCount(e *EntryState) int {
	if e.RecordCount > 0 {
		return e.RecordCount
	}
	return DefRecordCount
}

// ms is a time in milliseconds, rounded down; the zero time is 0.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

// cut bounds a text to n bytes of UTF-8.
func cut(text string, n int) string {
	if len(text) > n {
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
