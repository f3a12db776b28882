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
		effort(t, 60, 120)
		inBubbles(t, storetest.CheckFamilies)
	})
	t.Run("redis", func(t *testing.T) {
		effort(t, 60, 120)
		onRedis(t, redistest.Shared(t), storetest.CheckFamilies)
	})
}

// Each pair of events, at each point in the life of a family; in a short run at one of the points.
func TestParentsAndChildrenComeToOneOutcomeAfterEachPairOfEvents(t *testing.T) {
	server := redistest.Shared(t)
	for i, p := range storetest.FamilyPairs() {
		if i%storetest.FamilyPoints != i/storetest.FamilyPoints%storetest.FamilyPoints && !redistest.Soak() {
			continue
		}
		check := func(t *rapid.T, rig storetest.ModelRig) { storetest.CheckFamilyPair(t, rig, p) }
		t.Run(fmt.Sprintf("%s: %s, then %s", p.Before, p.First, p.Second), func(t *testing.T) {
			effort(t, 1, 1)
			inBubbles(t, check)
			onRedis(t, server, check)
		})
	}
}
