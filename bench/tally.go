package main

import (
	"strconv"
	"sync"
	"sync/atomic"
)

// payloadLen is that of every job's payload, on all sides: a JSON string, its quotes included.
const payloadLen = 32

// payload is that of job i. It says so, so that every run of a handler can be counted by job.
func payload(i int) []byte {
	b := []byte(`"000000000 a bench of a job.... "`)[:payloadLen]
	b[payloadLen-1] = '"'
	for at := 9; i > 0; at-- {
		b[at] = byte('0' + i%10)
		i /= 10
	}
	return b
}

// number is the i of payload(i), -1 for anything else.
func number(payload []byte) int {
	if len(payload) != payloadLen {
		return -1
	}
	i, err := strconv.Atoi(string(payload[1:10]))
	if err != nil {
		return -1
	}
	return i
}

// tally counts the handler's runs, job by job.
type tally struct {
	runs    []atomic.Uint32
	count   atomic.Int64  // jobs that ran at least once
	extra   atomic.Int64  // runs on top, and runs of what was never enqueued
	warm    int64         // when so many have run,
	started chan struct{} // this is closed,
	goal    int64         // and with so many
	reached chan struct{} // this

	pause sync.WaitGroup // while it waits for somebody, so do the handlers from the one that closed started
}

// newTally is for jobs 0 to n-1.
func newTally(n, warm, goal int) *tally {
	return &tally{
		runs: make([]atomic.Uint32, n),
		warm: int64(warm), started: make(chan struct{}),
		goal: int64(goal), reached: make(chan struct{}),
	}
}

// handle is every side's handler: it does nothing but count.
func (t *tally) handle(payload []byte) {
	i := number(payload)
	if i < 0 || i >= len(t.runs) || t.runs[i].Add(1) > 1 {
		t.extra.Add(1)
		return
	}
	n := t.count.Add(1)
	if n == t.warm {
		close(t.started)
	}
	if n >= t.warm {
		t.pause.Wait()
	}
	if n == t.goal {
		close(t.reached)
	}
}

func (t *tally) jobs() int { return int(t.count.Load()) }

// verdict tells, when so many jobs are left, how many are missing and how many runs there were too many.
func (t *tally) verdict(left int) sample {
	return sample{"lost": {float64(len(t.runs) - t.jobs() - left)}, "doubled": {float64(t.extra.Load())}}
}
