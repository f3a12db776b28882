// Package batch groups what is ready at the same time, so that it travels together: a group commit.
//
// Whatever is added while every lane is busy waits for the first that gets free, which takes all of it. So a lone item goes
// at once, and the more there is to do the larger the batches get. Nothing waits for a timer, but in a group that fills (see Fill).
// A Group needs no closing: a goroutine lives only while there is something to flush.
package batch

import (
	"runtime"
	"sync"
	"time"
)

// held is for how long a group that fills holds items back while a lane is free.
const held = 5 * time.Millisecond

// Group collects items and hands them to flush in batches, in the order in which they were added.
type Group[T any] struct {
	maxItems, maxWeight int
	weigh               func(T) int
	flush               func(lane int, items []T)
	buffers             [][]T // of each lane, used by whoever runs it

	mu        sync.Mutex
	settled   sync.Cond // told when nothing is pending or in flight
	pending   []T
	head      int   // of pending: what stands before it was taken
	free      []int // lanes without a goroutine
	gathering bool  // a lane was started that has not taken its items yet
	flying    int   // items in flight
	fill      *fill // nil: the group does not fill
}

// fill is what a group that fills knows besides.
type fill struct {
	weight  int         // of what is pending
	release *time.Timer // runs while items are held back; nil until some are
	waiting bool        // it runs
	overdue bool        // it has run out: what is pending goes as it is
}

// New returns a Group of at least one lane. flush runs on a goroutine of the group, on at most `lanes` at once, each lane
// number on one at a time; the items are its own until it returns. A batch has at most maxItems items and at most
// maxWeight of weight, but always one item. weigh is called under a lock: it must be quick, and must not call the group.
func New[T any](lanes, maxItems, maxWeight int, weigh func(T) int, flush func(lane int, items []T)) *Group[T] {
	g := &Group[T]{
		maxItems: max(maxItems, 1), maxWeight: maxWeight, weigh: weigh, flush: flush,
		buffers: make([][]T, max(lanes, 1)),
	}
	g.settled.L = &g.mu
	for lane := range g.buffers {
		g.free = append(g.free, lane)
	}
	return g
}

// Fill makes the group prefer few large batches to many small ones, where each has a cost of its own: a batch goes beside another one only
// when it has as many items as are in flight, or all that it may have, or when its first item has been held back for 5 ms though a lane
// was free. It is called before the first item is added.
func (g *Group[T]) Fill() { g.fill = &fill{} }

// scarceLocked reports whether what is pending is to wait for what is in flight.
func (g *Group[T]) scarceLocked() bool {
	f := g.fill
	return f != nil && !f.overdue && f.weight < g.maxWeight && len(g.pending)-g.head < min(g.flying, g.maxItems)
}

// holdLocked holds back what is pending, for a while: what is in flight may be stuck.
func (g *Group[T]) holdLocked() {
	f := g.fill
	switch {
	case f.waiting:
		return
	case f.release == nil:
		f.release = time.AfterFunc(held, g.release)
	default:
		f.release.Reset(held)
	}
	f.waiting = true
}

func (g *Group[T]) release() {
	g.mu.Lock()
	if f := g.fill; f.waiting { // it may have gone in this very moment
		f.waiting, f.overdue = false, true
		g.startLocked()
	}
	g.mu.Unlock()
}

// Add adds an item and returns at once.
func (g *Group[T]) Add(item T) {
	g.mu.Lock()
	g.pending = append(g.pending, item)
	if g.fill != nil {
		g.fill.weight += g.weigh(item)
	}
	g.startLocked()
	g.mu.Unlock()
}

// AddAll adds items that are next to each other in the order. It keeps nothing of the slice.
func (g *Group[T]) AddAll(items []T) {
	g.mu.Lock()
	g.pending = append(g.pending, items...)
	if g.fill != nil {
		for _, item := range items {
			g.fill.weight += g.weigh(item)
		}
	}
	g.startLocked()
	g.mu.Unlock()
}

// Wait returns as soon as nothing is pending or in flight.
func (g *Group[T]) Wait() {
	g.mu.Lock()
	for len(g.free) < len(g.buffers) || len(g.pending) > g.head {
		g.settled.Wait()
	}
	g.mu.Unlock()
}

// startLocked starts a lane for what is pending, unless one is about to take it.
func (g *Group[T]) startLocked() {
	if g.gathering || len(g.free) == 0 || len(g.pending) == g.head {
		return
	}
	if g.scarceLocked() {
		g.holdLocked()
		return
	}
	last := len(g.free) - 1
	lane := g.free[last]
	g.free = g.free[:last]
	g.gathering = true
	go g.run(lane)
}

// run flushes batch after batch until nothing is pending.
func (g *Group[T]) run(lane int) {
	for {
		// Who is about to add an item gets the chance to come along: without this, the first of many that are ready at
		// the same time would travel alone.
		runtime.Gosched()
		items := g.take(lane)
		if len(items) == 0 {
			return
		}
		g.flush(lane, items)
		clear(items)
		g.mu.Lock()
		g.flying -= len(items)
		g.mu.Unlock()
	}
}

// take removes the next batch from what is pending; when there is none it ends the lane.
func (g *Group[T]) take(lane int) []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gathering = false
	ready := g.pending[g.head:]
	if g.scarceLocked() {
		ready = nil
	}
	n, weight := 0, 0
	for n < len(ready) && n < g.maxItems {
		w := g.weigh(ready[n])
		if n > 0 && weight+w > g.maxWeight {
			break
		}
		n, weight = n+1, weight+w
	}
	items := append(g.buffers[lane][:0], ready[:n]...)
	g.buffers[lane] = items
	g.flying += n
	if f := g.fill; f != nil && n > 0 {
		f.weight -= weight
		if f.waiting {
			f.release.Stop()
		}
		f.waiting, f.overdue = false, false
	}
	g.dropLocked(n)
	if n == 0 {
		g.free = append(g.free, lane)
		g.settled.Broadcast()
	}
	g.startLocked() // one batch was not enough
	return items
}

// dropLocked forgets the first n pending items. It moves the rest down only when that is cheap for what was taken.
func (g *Group[T]) dropLocked(n int) {
	clear(g.pending[g.head : g.head+n])
	g.head += n
	if left := len(g.pending) - g.head; left <= g.head {
		copy(g.pending, g.pending[g.head:])
		clear(g.pending[left:])
		g.pending, g.head = g.pending[:left], 0
	}
}
