package worker

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// Pauses after a request that failed while the supervisor stops, and how long a request that only asks for jobs is repeated
// then: it has nothing to hand in, and if it brought jobs after all they will run again like those of a crash.
const (
	stopPause = 200 * time.Millisecond
	stopAsk   = time.Second
)

// lane is one of the pool's requests in flight, used by one goroutine at a time.
type lane struct {
	store.Lane
	finishes []store.Finish
	claims   []uuid.UUID
	hope     chan struct{} // there is a reason to try again now
}

// flush makes one request of the turns and repeats it until it is answered: what became of it is not known before, and the lane
// makes sure that it happens once. Then it gives the slots what came.
func (p *pool) flush(n int, turns []turn) {
	l := &p.lanes[n]
	name := loop.Name{Loop: "exchange", Instance: p.terms.Instance, Number: n}
	x := p.request(l, turns)
	if len(x.Finishes)+len(x.Claims) == 0 { // a look that was overtaken by the stop
		p.settle(turns, x, store.Exchanged{}, time.Now())
		return
	}
	select {
	case <-l.hope: // it is of before
	default:
	}
	sent := time.Now() // a repetition may bring what the first one claimed
	for failures := 1; ; failures++ {
		got, err := p.run.rt.Exchange(p.run.io, &l.Lane, p.terms, x)
		if err == nil {
			p.run.outages.OK(name)
			p.settle(turns, x, got, sent)
			break
		}
		p.run.outages.Failed(name, err)
		if p.pause(l, failures) {
			failures = 0
		}
		if p.hopeless(x) {
			l.Abandon()
			p.giveUp(turns, x)
			break
		}
	}
	clear(l.finishes)
}

// request makes an Exchange of what the turns have to say. While we stop, nobody asks for a job.
func (p *pool) request(l *lane, turns []turn) store.Exchange {
	l.finishes, l.claims = l.finishes[:0], l.claims[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	claiming := p.stopped.IsZero()
	for _, t := range turns {
		if t.at != nil {
			l.finishes = append(l.finishes, t.at.finish)
		} else {
			p.looks--
		}
		if claiming {
			t.slot.asks++
			l.claims = append(l.claims, t.slot.worker)
		}
	}
	if claiming {
		p.due = false // whatever there is now, this request sees it
		p.asking++
	}
	return store.Exchange{Finishes: l.finishes, Claims: l.claims, Wait: claiming}
}

// pause waits before a failed request is repeated. It returns true when there is reason to believe that it will be answered now.
func (p *pool) pause(l *lane, failures int) bool {
	limit, stopping := loop.MaxPause, p.stopping
	if isClosed(p.stopping) {
		limit, stopping = stopPause, nil
	}
	timer := time.NewTimer(loop.Pause(failures, limit))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stopping: // from now on there is a hurry
	case <-p.run.io.Done():
	case <-l.hope:
		return true
	}
	return false
}

// hopeless says whether it is time to give a failed request up.
func (p *pool) hopeless(x store.Exchange) bool {
	if p.run.io.Err() != nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.stopped.IsZero() && len(x.Finishes) == 0 && time.Since(p.stopped) > stopAsk
}

// hope makes requests that wait for their repetition try again now.
func (p *pool) hope() {
	for i := range p.lanes {
		select {
		case p.lanes[i].hope <- struct{}{}:
		default: // one is noted already
		}
	}
}

// settle tells what became of the turns' attempts and gives the slots the jobs that came.
func (p *pool) settle(turns []turn, x store.Exchange, got store.Exchanged, sent time.Time) {
	p.tell(turns, got)
	until := sent.Add(p.run.trusted)
	late := !time.Now().Before(until)

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range turns {
		t.slot.at = nil
	}
	for _, l := range got.Leases {
		s := p.byWorker[l.Job.Worker]
		var reason error
		verb := store.Release
		switch {
		case l.Broken != nil:
			verb, reason = store.Bury, l.Broken
		case late: // it may be somebody else's by now
		case p.stopped.IsZero():
			s.at = &attempt{slot: s, lease: l, until: until}
			s.attempts <- s.at
			continue
		}
		s.at = s.refuse(l, verb, reason)
		p.turns.Add(turn{s, s.at})
	}
	for _, t := range turns {
		if t.slot.at == nil {
			p.idle = append(p.idle, t.slot)
		}
	}
	if x.Wait {
		p.asking--
		p.nextLookLocked(len(x.Claims), len(got.Leases), got.Next)
	}
	p.checkStopLocked()
	if len(got.Leases) > 0 {
		p.run.watch(until)
	}
}

// nextLookLocked decides when to look for jobs again, after a request in which some asked and some got one.
func (p *pool) nextLookLocked(asked, got int, next time.Duration) {
	switch {
	case got == asked:
		// There may be more. And the store wakes only those whose last request came back short.
		p.ask = min(2*p.ask, store.MaxCall)
		p.due = true
	case next == 0 && got > 0:
		p.due = true
	case next == 0: // at once, but not in circles
		p.ask = minLook
		p.armLocked(hurry)
	default:
		p.ask = minLook
		p.armLocked(next)
	}
	p.lookLocked()
}

// tell emits what became of the turns' attempts. got.Ended is in the order of the finishes, which is that of the turns.
func (p *pool) tell(turns []turn, got store.Exchanged) {
	ev := p.run.events
	if !ev.wanted() {
		return
	}
	i := 0
	for _, t := range turns {
		if t.at == nil {
			continue
		}
		state, at, job := got.Ended[i], t.at, &t.at.lease.Job
		i++
		if state == "" {
			ev.emit(StaleWrite{Instance: job.Instance, Job: job.ID, Worker: job.Worker, Outcome: at.outcome})
			continue
		}
		ev.emit(JobFinished{
			Instance: job.Instance, Job: job.ID, Worker: job.Worker, Attempt: job.Attempt,
			Outcome: at.outcome, State: state, Err: at.err, Took: at.took,
		})
	}
	if got.Trimmed > 0 {
		ev.emit(Trimmed{Instance: p.terms.Instance, Count: got.Trimmed})
	}
}

// giveUp ends a request that can't be answered any more before we stop.
func (p *pool) giveUp(turns []turn, x store.Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given += len(turns)
	if x.Wait {
		p.asking--
	}
	p.checkStopLocked()
}

// unsettled returns the jobs whose ends were given up, or would have to be.
func (p *pool) unsettled() []uuid.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []uuid.UUID
	for _, s := range p.slots {
		if s.at != nil && s.at.isEnded() {
			ids = append(ids, s.at.lease.Job.ID)
		}
	}
	return ids
}

// scope tells apart what goes wrong: a key that is not ours is one trouble, a loop that fails by itself another, and whatever
// else there is comes from Redis and is met by all.
func scope(name loop.Name, err error) string {
	if key, ok := errors.AsType[*store.KeyError](err); ok {
		return "key " + key.Key
	}
	if _, ok := errors.AsType[*loop.PanicError](err); ok || errors.Is(err, store.ErrInvalid) {
		return name.Loop + " of " + name.Instance
	}
	return ""
}
