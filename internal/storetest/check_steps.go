package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/store"
)

// checkSteps compares what is kept of steps with the jobs that they belong to. in has the state of each job, stepped the heads of those
// with steps.
func (e *Env) checkSteps(t testing.TB, name string, in map[string]store.State, stepped map[string]string, children, chores []string) {
	t.Helper()
	ctx, open := t.Context(), map[string]int{}
	for _, member := range children {
		open[member[:16]]++
	}
	looked := map[string]bool{}
	for _, chore := range chores {
		looked[chore] = true
	}
	for id, head := range stepped {
		key := e.Key(name, "step_result:"+fmt.Sprintf("%x", id))
		records, err := e.Raw.HGetAll(ctx, key).Result()
		must(t, err)
		count, size, dispatched := 0, 0, 0
		for step, record := range records {
			if strings.HasPrefix(step, "\x01") {
				continue
			}
			count++
			size += len(step) + len(record)
			if record[0] == 'd' {
				dispatched++
			}
		}
		var gen, epoch, seq, n, bytes, most, kids int
		if _, err := fmt.Sscan(head, &gen, &epoch, &seq, &n, &bytes, &most, &kids); err != nil {
			t.Errorf("%s: the head of job %x is %q", name, id, head)
		}
		if in[id] == "" && (count > 0 || !strays(looked, id)) {
			t.Errorf("%s: the head of job %x outlives it: %q", name, id, head)
		}
		if n != count || bytes != size || kids != dispatched {
			t.Errorf("%s: job %x has %d steps of %d bytes, %d of them open; its head says %q", name, id, count, size, dispatched, head)
		}
		if !in[id].Terminal() && open[id] < dispatched {
			t.Errorf("%s: job %x has %d open steps and %d entries in children", name, id, dispatched, open[id])
		}
	}
	for _, member := range children {
		if s := in[member[:16]]; s != "" && !s.Terminal() && !looked["o"+member] {
			if !strays(looked, member[:16]) {
				t.Errorf("%s: nobody looks after child %x of job %x", name, member[22:38], member[:16])
			}
		}
	}
	for _, key := range e.keys(t) {
		if id, ok := strings.CutPrefix(key, e.Key(name, "step_result:")); ok {
			raw := make([]byte, 16)
			if _, err := fmt.Sscanf(id, "%x", &raw); err != nil || stepped[string(raw)] == "" {
				t.Errorf("%s: the steps of job %s outlive it", name, id)
			}
		}
	}
}

// strays reports whether the sweeper has still to see to the children that a job has left.
func strays(chores map[string]bool, id string) bool {
	for chore := range chores {
		if chore[0] == 's' && chore[2:18] == id {
			return true
		}
	}
	return false
}
