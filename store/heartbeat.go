package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// Heartbeat extends leases to now + t.Lease and stores the progress that comes along, for each lease that is current;
// nothing is written for another. There is a verdict for each beat, in their order. others are the workers that hold nothing
// as far as the caller knows: what the server has mapped to one of them is returned as a lease, for the caller to
// release, until these have 1 MiB; a later heartbeat brings the others. At most MaxCall of both together.
func (r *Runtime) Heartbeat(ctx context.Context, t Terms, beats []Beat, others []uuid.UUID) ([]Verdict, []*Lease, error) {
	if n := len(beats) + len(others); n > MaxCall {
		return nil, nil, invalid("%d workers in one heartbeat; at most %d are allowed", n, MaxCall)
	}
	if err := ValidateInstance(t.Instance); err != nil {
		return nil, nil, err
	}
	args := make([]any, 0, 2+4*len(beats)+len(others))
	args = append(args, t.Lease.Milliseconds(), len(beats))
	for i := range beats {
		b := &beats[i]
		has, report := "-", []byte(nil)
		if b.Progress != nil {
			has, report = "p", b.Progress
		}
		args = append(args, b.Lease.Job.Worker[:], b.Lease.token, has, report)
	}
	for i := range others {
		args = append(args, others[i][:])
	}
	verdicts := make([]Verdict, len(beats))
	var found []*Lease
	err := r.s.do(ctx, "heartbeat", func() error {
		p, err := r.s.run(ctx, scriptHeartbeat, r.s.instanceKeys(t.Instance), args...)
		if err != nil {
			return err
		}
		letters := p.str()
		if len(letters) != len(beats) {
			return fmt.Errorf("answered for %d leases of %d", len(letters), len(beats))
		}
		for i := range letters {
			switch letters[i] {
			case 'l':
				verdicts[i] = Lost
			case 'c':
				verdicts[i] = CancelRequested
			}
		}
		for l := p.list(); l.more(); {
			lease := newLease(t.Instance, uuid.Nil, l.str(), l.str())
			lease.claimed(parseRun(l.str()))
			lease.Job.Worker = lease.run.worker
			found = append(found, lease)
		}
		return nil
	})
	return verdicts, found, err
}

// Reap ends the leases that ran out, each once however many reap at the same time: the job is todo again at its old place, or dead
// when it crashed t.MaxCrashes times in a row, or cancelled when that was requested. It also removes what t's
// retention no longer keeps. At most 200 of each a call, which Redis can do in a few milliseconds; Next is 0 while there is more.
func (r *Runtime) Reap(ctx context.Context, t Terms) (Maintained, error) {
	var m Maintained
	if err := ValidateInstance(t.Instance); err != nil {
		return m, err
	}
	err := r.s.do(ctx, "reaping", func() error {
		p, err := r.s.run(ctx, scriptReap, r.s.instanceKeys(t.Instance),
			t.Lease.Milliseconds(), t.Period.Milliseconds(), t.MaxCrashes, t.Done.count(), t.Done.age(), t.Dead.count(), t.Dead.age(), t.Limit)
		if err != nil {
			return err
		}
		m.Next = millis(p.int())
		m.Trimmed = map[State]int{}
		trimmed := p.list()
		for _, s := range []State{Done, Dead, Cancelled} {
			if n := trimmed.int(); n > 0 {
				m.Trimmed[s] = int(n)
			}
		}
		m.Missing = p.int()
		for l := p.list(); l.more(); {
			var one Reaped
			copy(one.Job[:], l.str())
			copy(one.Worker[:], l.str())
			one.Crashes = int(l.int())
			one.State = stateOf(l.str()[0])
			m.Reaped = append(m.Reaped, one)
		}
		m.Expired = p.ids()
		m.Sweep = millis(p.int())
		return nil
	})
	return m, err
}
