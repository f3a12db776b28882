package store_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
)

// Parents and children: whatever happens, in whatever order, and whatever crashes in between, there is one outcome of each.

func TestParentsAndChildrenComeToOneOutcomeWhateverCrashesBetweenTheirCommands(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		effort(t, 10, 120)
		inBubbles(t, storetest.CheckFamilies)
	})
	t.Run("redis", func(t *testing.T) {
		effort(t, 24, 120)
		onRedis(t, redistest.Shared(t).Client(t), storetest.CheckFamilies)
	})
	t.Run("cluster", func(t *testing.T) {
		effort(t, 6, 120)
		onRedis(t, apart(t).Client(t), storetest.CheckFamilies)
	})
}

// apart returns a Cluster where parents and children are at different nodes.
func apart(t *testing.T) *redistest.Cluster {
	t.Helper()
	c := redistest.StartCluster(t, 3)
	parents, children := storetest.FamilyKeys("")
	if c.Owner(c.Slot(parents)) == c.Owner(c.Slot(children)) {
		t.Fatal("the instances of parents and children are at the same node")
	}
	return c
}

// Each pair of events, at each point in the life of a family; in a short run at one of the points, and one of 24 on the embedded server
// and on a Cluster, too.
func TestParentsAndChildrenComeToOneOutcomeAfterEachPairOfEvents(t *testing.T) {
	client, cluster := redistest.Shared(t).Client(t), apart(t).Client(t)
	for i, p := range storetest.FamilyPairs() {
		if i%storetest.FamilyPoints != i/storetest.FamilyPoints%storetest.FamilyPoints && !redistest.Soak() {
			continue
		}
		check := func(t *rapid.T, rig storetest.ModelRig) { storetest.CheckFamilyPair(t, rig, p) }
		t.Run(fmt.Sprintf("%s: %s, then %s", p.Before, p.First, p.Second), func(t *testing.T) {
			effort(t, 1, 1)
			onRedis(t, client, check)
			if redistest.Soak() || i/storetest.FamilyPoints%24 == 0 { // it is slow
				inBubbles(t, check)
				onRedis(t, cluster, check)
			}
		})
	}
}
