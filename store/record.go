package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A record is what never changes of a job, behind a head:
//
//	'1'                  the version of this format
//	13 digits            when it was enqueued, in ms; the server's clock writes it
//	16 digits            its place, if it was todo at once, else zeros; the script writes it
//	1 byte               '0' + priority
//	tag length bytes ... further options, each a byte, a uvarint and what it counts:
//	                     'a' most attempts (digits), 'd' deadline (ms in digits), 'm' metadata (JSON), 't' when it was to run (ms in digits,
//	                     or - and ms after it was enqueued), 'c' the tick of cron that it is of (see Tick), 'p' of a child its parent
//	                     (generation, space, id, instance, line's end, step), 'x' nothing: the record is a stand-in for one that was lost
//	0                    ends them
//	payload              JSON, the rest
//
// At the first claim the '1' of a short record becomes
//
//	'2'                  and after it
//	13 digits            when that was, in ms
//	16 bytes             the worker
//
// which tells of the first run as a line in runs does of the later ones; where there is such a line, that counts.
const (
	recordVersion = '1'
	recordHead    = 1 + 13 + 16 // what the script puts in front
	recordPlace   = 1 + 13      // where its last part begins

	begunVersion = '2'
	begunHead    = 1 + 13 + 16 // what stands there instead of recordVersion
)

// unbegun returns a record as it was before the first claim.
func unbegun(rec string) string {
	if len(rec) > begunHead && rec[0] == begunVersion {
		return string(recordVersion) + rec[begunHead:]
	}
	return rec
}

// The tags of options.
const (
	tagAttempts = 'a'
	tagDeadline = 'd'
	tagMetadata = 'm'
	tagDue      = 't'
	tagTick     = 'c'
	tagParent   = 'p'
	tagLost     = 'x'
)

// encodeRecord returns the record of a valid job less its head.
func encodeRecord(n *NewJob) []byte { return appendRecord(make([]byte, 0, 2+len(n.Payload)), n) }

func appendRecord(b []byte, n *NewJob) []byte {
	b = append(b, byte('0'+n.priority()))
	option := func(tag byte, v []byte) {
		b = binary.AppendUvarint(append(b, tag), uint64(len(v)))
		b = append(b, v...)
	}
	if n.MaxAttempts > 0 {
		option(tagAttempts, strconv.AppendInt(nil, int64(n.MaxAttempts), 10))
	}
	if !n.Deadline.IsZero() {
		option(tagDeadline, strconv.AppendInt(nil, n.Deadline.UnixMilli(), 10))
	}
	if len(n.Metadata) > 0 {
		m, _ := json.Marshal(n.Metadata) // strings always can
		option(tagMetadata, m)
	}
	if due := n.due(); due != "0" {
		option(tagDue, []byte(due))
	}
	if n.Parent.ID != uuid.Nil {
		option(tagParent, append(strconv.AppendInt(nil, int64(n.Parent.Generation), 10), " "+n.Parent.ref()...))
	}
	return append(append(b, 0), n.Payload...)
}

var (
	errRecord = errors.New("the record can't be read")
	errLost   = errors.New("the record was lost, and its payload with it")
)

// decodeRecord fills in what the record tells of the job; RunAt is when the first attempt was to be made.
func decodeRecord(rec string, j *Job) error {
	rec = unbegun(rec)
	if len(rec) < recordHead+2 || rec[0] != recordVersion {
		return errRecord
	}
	ms, err := strconv.ParseInt(rec[1:recordPlace], 10, 64)
	if err != nil {
		return errRecord
	}
	priority := int(rec[recordHead]) - '0'
	if priority < MinPriority || priority > MaxPriority {
		return errRecord
	}
	rest, lost := rec[recordHead+1:], false
	for rest[0] != 0 {
		lost = lost || rest[0] == tagLost
		n, w := binary.Uvarint([]byte(rest[1:min(len(rest), 1+binary.MaxVarintLen64)]))
		if w <= 0 || n >= uint64(len(rest)-1-w) {
			return errRecord
		}
		if err := decodeOption(rest[0], rest[1+w:1+w+int(n)], ms, j); err != nil {
			return err
		}
		rest = rest[1+w+int(n):]
	}
	j.EnqueuedAt, j.Priority = fromMS(ms), priority
	if j.RunAt.Before(j.EnqueuedAt) {
		j.RunAt = j.EnqueuedAt
	}
	if lost {
		return errLost
	}
	j.Payload = json.RawMessage(rest[1:])
	return nil
}

// decodeOption reads one option. One that is not known was written by a later version and changes nothing that this one does.
func decodeOption(tag byte, v string, enqueued int64, j *Job) error {
	switch tag {
	case tagAttempts, tagDeadline, tagDue:
		n, err := strconv.ParseInt(v, 10, 64)
		switch {
		case err != nil:
			return errRecord
		case tag == tagAttempts:
			j.MaxAttempts = int(n)
		case tag == tagDeadline:
			j.Deadline = fromMS(n)
		case n < 0:
			j.RunAt = fromMS(enqueued - n)
		default:
			j.RunAt = fromMS(n)
		}
	case tagTick:
		f := strings.SplitN(v, " ", 4)
		if len(f) != 4 {
			return errRecord
		}
		j.Tick = Tick{Entry: f[3], Zone: f[2], At: parseMS(f[0]), Previous: parseMS(f[1])}
	case tagParent:
		gen, ref, ok := strings.Cut(v, " ")
		n, err := strconv.Atoi(gen)
		if j.Parent = parentOf(ref); !ok || err != nil || j.Parent.ID == uuid.Nil {
			return errRecord
		}
		j.Parent.Generation = n
	case tagMetadata:
		if json.Unmarshal([]byte(v), &j.Metadata) != nil {
			return errRecord
		}
	}
	return nil
}

// placeOf returns the place in a record, and where there is none, since the record is broken, one that can be gone back to.
func placeOf(rec string) string {
	rec = unbegun(rec)
	if len(rec) >= recordHead {
		if _, err := strconv.ParseUint(rec[recordPlace:recordHead], 10, 64); err == nil {
			return rec[recordPlace:recordHead]
		}
	}
	return strconv.FormatInt((MaxPriority-DefPriority)*top, 10)
}

// run is what changes with each claim: "attempt crashes place started worker".
type run struct {
	attempt, crashes int
	place            string
	started          int64
	worker           uuid.UUID
}

func (r run) String() string {
	return strconv.Itoa(r.attempt) + " " + strconv.Itoa(r.crashes) + " " + r.place + " " + strconv.FormatInt(r.started, 10) + " " +
		string(r.worker[:])
}

func parseRun(s string) (run, error) {
	var r run
	var f [4]string
	rest := s
	for i := range f {
		var ok bool
		if f[i], rest, ok = strings.Cut(rest, " "); !ok {
			return run{}, errRecord
		}
	}
	var err1, err2, err3 error
	r.attempt, err1 = strconv.Atoi(f[0])
	r.crashes, err2 = strconv.Atoi(f[1])
	r.place = f[2]
	r.started, err3 = strconv.ParseInt(f[3], 10, 64)
	if copy(r.worker[:], rest) != len(r.worker) || err1 != nil || err2 != nil || err3 != nil {
		return run{}, errRecord
	}
	return r, nil
}

// Places and due times, as keys.go describes them.
const (
	top     = 900_000_000_000_000
	never   = 1 << 52         // a score of parked from which on no time wakes the job
	epochMS = 946_684_800_000 // 2000-01-01, when the clock of a synctest bubble starts; there is room until 2111
)

// placeTime says since when a job with this place has been todo.
func placeTime(score float64) time.Time {
	return fromMS(int64(math.Mod(score, top)/256) + epochMS)
}

// since says since when a job of this run has been todo.
func (r run) since() time.Time {
	place, _ := strconv.ParseFloat(r.place, 64)
	return placeTime(place)
}

func fromMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func parseMS(digits string) time.Time {
	ms, _ := strconv.ParseInt(digits, 10, 64)
	return fromMS(ms)
}

// snapshot makes a Job of what get.lua and list.lua return of it.
func snapshot(instance string, id uuid.UUID, state State, score string, r *reader) Job {
	j := Job{ID: id, Instance: instance, State: state}
	err := decodeRecord(r.str(), &j)
	j.RunAt = time.Time{}
	if s := r.str(); s != "" {
		run, runErr := parseRun(s)
		err = errors.Join(err, runErr)
		j.Attempt, j.Crashes, j.StartedAt, j.Worker = run.attempt, run.crashes, fromMS(run.started), run.worker
	}
	j.LastError, j.Progress, j.Result = r.str(), r.raw(), r.raw()
	if err != nil && j.LastError == "" {
		j.LastError = errRecord.Error()
		if errors.Is(err, errLost) {
			j.LastError = errLost.Error()
		}
	}
	at, _ := strconv.ParseFloat(score, 64)
	switch state {
	case Scheduled:
		j.RunAt = fromMS(int64(at / 16))
	case Todo:
		j.RunAt = placeTime(at)
	case Doing:
		j.LeaseUntil = fromMS(int64(at))
	case Parked:
		if at < never {
			j.RunAt = fromMS(int64(at))
		}
	case Done, Dead, Cancelled:
		j.FinishedAt = fromMS(int64(at))
	}
	return j
}
