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

// lane is one of the feed's requests in flight, used by one goroutine at a time.
type lane struct {
	store.Lane
	finishes []store.Finish
	claims   []uuid.UUID
	begun    []*attempt
	hope     chan struct{} // there is a reason to try again now
}

// flush makes one request of the turns and repeats it until it is answered: what became of it is not known before, and the lane
// makes sure that it happens once. Then it gives the slots what came.
func (f *feed) flush(n int, turns []turn) {
	l := &f.lanes[n]
	name := loop.Name{Loop: "exchange", Instance: f.terms.Instance, Number: n}
	x, due := f.request(l, turns)
	if !due {
		f.settle(l, turns, x, store.Exchanged{}, time.Now())
		return
	}
	select {
	case <-l.hope: // it is of before
	default:
	}
	sent := time.Now() // a repetition may bring what the first one claimed
	unknown := false   // whether it may have been carried out
	failing := false   // whether the others know that it is in trouble
	for failures := 1; ; failures++ {
		var got store.Exchanged
		err := guard(func() (err error) { // hooks of the Redis client and of the store are the user's code
			got, err = f.run.rt.Exchange(f.run.io, &l.Lane, f.terms, x)
			return err
		})
		if err == nil {
			f.run.outages.OK(name)
			f.fails(failing, false)
			f.settle(l, turns, x, got, sent)
			break
		}
		f.run.outages.Failed(name, err)
		if unknown = unknown || !refusedAlone(err); !unknown && len(x.Finishes) == 0 && len(f.pool.feeds) > 1 {
			// Nothing was claimed, and the slots are needed elsewhere meanwhile.
			f.settle(l, turns, x, store.Exchanged{Next: deafTo}, sent)
			break
		}
		failing = f.fails(failing, true)
		if f.pause(l, failures) {
			failures = 0
		}
		if f.tooLate(x) {
			l.Abandon()
			f.fails(failing, false)
			f.giveUp(turns, x)
			break
		}
	}
	clear(l.finishes)
}

// request makes an Exchange of what the turns have to say. While we stop, nobody asks for a job; so there may be nothing to
// say, and the request is not due. One that only passes a wake-up on says nothing either, but is.
func (f *feed) request(l *lane, turns []turn) (x store.Exchange, due bool) {
	l.finishes, l.claims = l.finishes[:0], l.claims[:0]
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	claiming := p.stopped.IsZero()
	for _, t := range turns {
		asks := claiming
		switch {
		case t.slot == nil:
			f.passing = false
			due = due || claiming
			continue
		case t.at == nil:
			f.looks--
		default:
			l.finishes = append(l.finishes, t.at.finish)
			asks = claiming && p.nextLocked(f, t.slot)
		}
		if asks && f.admitsLocked() {
			f.asking++
			t.slot.asks++
			l.claims = append(l.claims, t.slot.worker)
		}
	}
	x = store.Exchange{Finishes: l.finishes, Claims: l.claims, Wait: len(l.claims) > 0}
	if x.Wait {
		f.due = false // whatever there is now, this request sees it
		p.asking++
		x.NoSuspects = !f.run.suspects.ask(f)
	}
	return x, due || len(x.Finishes)+len(x.Claims) > 0
}

// fails notes, where it changes, whether a request is in trouble. The other instances of the pool may have their servers, and get
// the slots that are free meanwhile. It returns how it is now.
func (f *feed) fails(was, is bool) bool {
	if was == is || len(f.pool.feeds) == 1 {
		return was
	}
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if is {
		f.failing++
		p.lookLocked()
	} else {
		f.failing--
	}
	return is
}

// pause waits before a failed request is repeated. It returns true when there is reason to believe that it will be answered now.
func (f *feed) pause(l *lane, failures int) bool {
	limit, stopping := loop.MaxPause, f.pool.stopping
	if isClosed(f.pool.stopping) {
		limit, stopping = stopPause, nil
	}
	timer := time.NewTimer(loop.Pause(failures, limit))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stopping: // from now on there is a hurry
	case <-f.run.io.Done():
	case <-l.hope:
		return true
	}
	return false
}

// tooLate says whether it is time to give a failed request up.
func (f *feed) tooLate(x store.Exchange) bool {
	p := f.pool
	if f.run.io.Err() != nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.stopped.IsZero() && len(x.Finishes) == 0 && time.Since(p.stopped) > stopAsk
}

// relieve makes requests that wait for their repetition try again now, while there is trouble: something has shown that Redis may be
// back, or has come up that must not wait.
func (f *feed) relieve() {
	if f.run.outages.Any() {
		f.hope()
	}
}

// hope makes requests that wait for their repetition try again now.
func (f *feed) hope() {
	for i := range f.lanes {
		select {
		case f.lanes[i].hope <- struct{}{}:
		default: // one is noted already
		}
	}
}

// settle tells what became of the turns' attempts and gives the slots the jobs that came.
func (f *feed) settle(l *lane, turns []turn, x store.Exchange, got store.Exchanged, sent time.Time) {
	f.tellFinished(turns, got)
	f.family(turns, got)
	l.begun = f.deal(l.begun[:0], turns, x, got, sent)
	f.tellStarted(l.begun...)
	for _, at := range l.begun {
		at.slot.attempts <- at
	}
	clear(l.begun)
}

// deal notes what the slots hold from now on, and appends the attempts that are to begin to begun.
func (f *feed) deal(begun []*attempt, turns []turn, x store.Exchange, got store.Exchanged, sent time.Time) []*attempt {
	p := f.pool
	until := sent.Add(f.run.trusted)
	received := time.Now()
	late := !received.Before(until)

	brought, ended := 0, 0 // suspects
	defer func() {         // when the pool is no longer locked
		if next := f.run.suspects.answered(f, x.Wait && !x.NoSuspects, brought, ended, got.Suspects); next != nil {
			next.wake()
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	f.asking -= len(x.Claims)
	for _, t := range turns {
		if t.at != nil && t.at.suspect {
			ended++
		}
		if t.slot != nil {
			t.slot.at = nil
		}
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
			s.at = &attempt{slot: s, feed: f, lease: l, until: until, received: received, uncalled: l.Job.Parent.ID != uuid.Nil}
			if crashes := l.Job.Crashes; !x.NoSuspects && crashes > 0 && crashes >= f.terms.MaxCrashes-1 {
				s.at.suspect = true
				brought++
			}
			begun = append(begun, s.at)
			continue
		}
		s.at = f.refuse(s, l, verb, reason)
		f.turns.Add(turn{s, s.at})
	}
	for _, t := range turns {
		if t.slot != nil && t.slot.at == nil {
			p.restLocked(t.slot)
		}
	}
	if x.Wait {
		p.asking--
		f.nextLookLocked(len(x.Claims), len(got.Leases), got.Next)
	}
	p.lookLocked()
	p.checkStopLocked()
	if len(got.Leases) > 0 {
		f.run.watch(until)
	}
	return begun
}

// nextLookLocked decides when to look for jobs again, after a request in which some asked and some got one.
func (f *feed) nextLookLocked(asked, got int, next time.Duration) {
	switch {
	case got == asked:
		// There may be more. And the store wakes only those whose last request came back short.
		f.ask = min(2*f.ask, store.MaxCall)
		f.stirLocked()
	case next == 0 && got > 0:
		f.stirLocked()
	case next == 0: // at once, but not in circles
		f.ask, f.empty = f.pool.least(), !f.due
		f.armLocked(hurry)
	default:
		f.ask, f.empty = f.pool.least(), !f.due
		f.armLocked(next)
	}
}

// giveUp ends a request that can't be answered any more before we stop.
func (f *feed) giveUp(turns []turn, x store.Exchange) {
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	f.asking -= len(x.Claims)
	for _, t := range turns {
		if t.slot != nil {
			p.given++
		}
	}
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

// refusedAlone says whether a request changed nothing because of its own instance's keys.
func refusedAlone(err error) bool {
	_, ok := errors.AsType[*store.KeyError](err)
	return ok
}

// scope tells apart what goes wrong: a key that is not ours is one trouble, a loop that fails by itself another, what sweeps meet in other
// instances a third, and whatever else there is comes from Redis and is met by all. A loop that brings new jobs fails by itself as well where the server refuses: one that
// is full takes none, and is worked for all the same.
func scope(name loop.Name, err error) string {
	if key, ok := errors.AsType[*store.KeyError](err); ok {
		return "key " + key.Key
	}
	if name.Loop == "sweep" && name == elsewhere(name.Instance) {
		return "elsewhere"
	}
	brings := name.Loop == "cron" || name.Loop == "sweep"
	if _, ok := errors.AsType[*loop.PanicError](err); ok || errors.Is(err, store.ErrInvalid) || brings && errors.Is(err, store.ErrServer) {
		return name.Loop + " of " + name.Instance
	}
	return ""
}
