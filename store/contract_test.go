package store_test

import (
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
)

// The contract of the store, on the embedded server in fake time, on a real one, and on a Cluster, where parents and children are at different
// nodes. The cases are in internal/storetest.
func TestContract(t *testing.T) {
	run := func(t *testing.T, c storetest.Case, e *storetest.Env) {
		c.Run(t, e)
		if !e.Tampered {
			e.Check(t)
		}
	}
	t.Run("embedded", func(t *testing.T) {
		for _, c := range storetest.Cases() {
			t.Run(c.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { run(t, c, storetest.Embedded(t)) })
			})
		}
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Shared(t)
		for _, c := range storetest.Cases() {
			t.Run(c.Name, func(t *testing.T) { run(t, c, storetest.Real(t, server.Addr())) })
		}
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3)
		for _, c := range storetest.Cases() {
			t.Run(c.Name, func(t *testing.T) { run(t, c, storetest.Cluster(t, cluster)) })
		}
	})
}
