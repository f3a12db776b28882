package redistest_test

import (
	"fmt"
	"testing"

	"github.com/stint-go/stint/internal/redistest"
)

func TestAClusterServesEverySlotAlsoOneThatMoves(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	rdb := c.Client(t)
	owners := map[int]bool{}
	for i := range 30 {
		key := fmt.Sprintf("{k%d}:a", i)
		owners[c.Owner(c.Slot(key))] = true
		if err := rdb.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if len(owners) != 3 {
		t.Errorf("the keys are at %d nodes", len(owners))
	}
	slot := c.Slot("{k0}:a")
	from := c.Owner(slot)
	moved := 0
	c.Migrate(slot, from, (from+1)%3, func() { moved++ })
	if v, err := rdb.Get(t.Context(), "{k0}:a").Int(); v != 0 || err != nil || moved != 1 {
		t.Errorf("after its move: %d, %v; %d keys moved", v, err, moved)
	}
	if err := rdb.Set(t.Context(), "{k0}:b", 1, 0).Err(); err != nil {
		t.Error(err)
	}
}
