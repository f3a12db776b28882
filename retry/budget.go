package retry

import (
	"math"
	"sync"
	"time"
)

// Observer is a policy that wants to hear of attempts that succeed, as Budget does. The runtime tells the policy that a
// handler was registered with, or that a step has; [Limit], [When] and Budget pass it on to those that they are made of.
type Observer interface {
	// Succeeded is called after each attempt that completed its job, or try of a step that went well, with its number, 1 for the first.
	// It must be safe for concurrent use.
	Succeeded(attempt int)
}

// How a Budget measures and bounds.
const (
	budgetWindow = 10 * time.Second // over which the throughput is measured, and a budget is saved up
	budgetFloor  = 1.0              // retries a second that are always granted
	budgetWait   = time.Hour        // the longest that a retry is put off
)

// Budget returns a policy that follows p, but keeps the retries of all jobs together within a share of the throughput, so that a
// dependency that is broken is not hammered by the jobs that come back, on top of those that are new: with a share of 0.1, which
// is a good start, it gets at most a tenth more than what is new.
//
// It is the one policy with a state: give one Budget to all handlers that need the same dependency, and a new one to others.
// The throughput is the first attempts that this process has made in the last 10 seconds and that went well, or after which the
// policy was asked for a retry. What is over the budget is not given up but put off: the delay is p's or longer, but not for the budget's sake longer than
// two hours. What was not used of the last 10 seconds' budget may go at once. One retry a second is always granted, so that an
// instance with little to do does not wait for the sake of a share. A retry whose error says itself when, see [After], is counted and
// not put off.
//
// A share under zero, or that is no number, is taken as zero. A nil p is taken as Exponential(time.Second, 6*time.Hour).
func Budget(share float64, p Policy) Policy {
	if !(share > 0) {
		share = 0
	}
	return &budget{share: share, p: orDefault(p)}
}

type budget struct {
	share float64
	p     Policy

	mu    sync.Mutex
	since time.Time // of the first attempt after a rest
	began time.Time // of the window that is being counted
	count float64   // first attempts in it
	last  float64   // first attempts in the one before
	level float64   // retries that were granted and are still to be made, as if they were made evenly; below zero: saved up
	asked time.Time // when level was right
}

// Succeeded counts the attempt.
func (b *budget) Succeeded(attempt int) {
	b.attempted(attempt, time.Now())
	if o, ok := b.p.(Observer); ok {
		o.Succeeded(attempt)
	}
}

// attempted counts what is new: a share of what was granted itself would feed on itself.
func (b *budget) attempted(attempt int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turnLocked(now)
	if attempt <= 1 {
		b.count++
	}
}

func (b *budget) Next(attempt int, err error) (time.Duration, bool) {
	now := time.Now()
	b.attempted(attempt, now)
	delay, again := b.p.Next(attempt, err)
	if !again {
		return 0, false
	}
	// The runtime draws a delay from its upper half: twice the wait is never too early.
	return max(delay, 2*b.wait(now)), true
}

// wait takes a retry out of the budget and says how long it has to wait for that.
func (b *budget) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	rate := b.rateLocked(now)
	if b.asked.IsZero() {
		b.asked = b.since.Add(-budgetWindow)
	}
	b.level = max(b.level-rate*now.Sub(b.asked).Seconds(), -rate*budgetWindow.Seconds())
	b.asked = now
	wait := max(b.level, 0) / rate
	if wait >= budgetWait.Seconds() {
		return budgetWait // all that would have to wait longer comes then
	}
	b.level++
	return time.Duration(wait * float64(time.Second))
}

// rateLocked is how many retries a second are granted.
func (b *budget) rateLocked(now time.Time) float64 {
	// Of the window before, as much counts as is within the last 10 seconds.
	past := 1 - now.Sub(b.began).Seconds()/budgetWindow.Seconds()
	attempts := b.count + b.last*min(max(past, 0), 1)
	seconds := min(max(now.Sub(b.since), time.Second), budgetWindow).Seconds()
	return max(min(b.share*attempts/seconds, math.MaxInt32), budgetFloor)
}

// turnLocked begins a new window when the one that is counted is over.
func (b *budget) turnLocked(now time.Time) {
	switch gone := now.Sub(b.began); {
	case gone < budgetWindow:
	case gone < 2*budgetWindow:
		b.began, b.last, b.count = b.began.Add(budgetWindow), b.count, 0
	default:
		b.since, b.began, b.last, b.count = now, now, 0, 0
	}
}

// watched makes p an Observer if one of those that it is made of is one.
func watched(p Policy, of ...Policy) Policy {
	var all observers
	for _, inner := range of {
		if o, ok := inner.(Observer); ok {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		return p
	}
	return struct {
		Policy
		Observer
	}{p, all}
}

type observers []Observer

func (all observers) Succeeded(attempt int) {
	for _, o := range all {
		o.Succeeded(attempt)
	}
}

func orDefault(p Policy) Policy {
	if p == nil {
		return Exponential(time.Second, 6*time.Hour)
	}
	return p
}
