// Package batch groups what is ready at the same time, so that it travels together: a group commit without a timer.
//
// Whatever is added while every lane is busy waits for the first that gets free, which takes all of it. So a lone item goes
// at once, and the more there is to do the larger the batches get. A Group needs no closing: a goroutine lives only
// while there is something to flush.
package batch

import (
	"runtime"
	"sync"
)

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
	full      bool  // see Fill
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
// when it has as many items as are in flight, or all that it may have. It is called before the first item is added.
func (g *Group[T]) Fill() { g.full = true }

// scarceLocked reports whether what is pending is to wait for what is in flight.
func (g *Group[T]) scarceLocked() bool {
	return g.full && len(g.pending)-g.head < min(g.flying, g.maxItems)
}

// Add adds an item and returns at once.
func (g *Group[T]) Add(item T) {
	g.mu.Lock()
	g.pending = append(g.pending, item)
	g.startLocked()
	g.mu.Unlock()
}

// AddAll adds items that are next to each other in the order. It keeps nothing of the slice.
func (g *Group[T]) AddAll(items []T) {
	g.mu.Lock()
	g.pending = append(g.pending, items...)
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
	if g.gathering || len(g.free) == 0 || len(g.pending) == g.head || g.scarceLocked() {
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
		if weight += g.weigh(ready[n]); n > 0 && weight > g.maxWeight {
			break
		}
		n++
	}
	items := append(g.buffers[lane][:0], ready[:n]...)
	g.buffers[lane] = items
	g.flying += n
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
