package store_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/storetest"
	"github.com/stint-go/stint/store"
)

// The reference model: random sequences of operations, on the store and on what it promises in plain Go, must not be told
// apart. Where -rapid.checks and -rapid.steps are not given a run is short; -rapid.checks=5000 is a thorough one.

func TestStoreDoesWhatTheModelDoesOnTheEmbeddedServer(t *testing.T) {
	effort(t, 25, 50)
	inBubbles(t, storetest.CheckModel)
}

func TestStoreDoesWhatTheModelDoesOnRedis(t *testing.T) {
	effort(t, 60, 50)
	onRedis(t, redistest.Shared(t), storetest.CheckModel)
}

// inBubbles checks sequences on an embedded server each, in fake time.
func inBubbles(t *testing.T, check func(*rapid.T, storetest.ModelRig)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			st, err := store.OpenEmbedded(store.Options{Prefix: "model"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := st.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			}()
			check(t, storetest.ModelRig{Store: st, Client: st.Runtime().Client(), Prefix: "model", Fake: true, Times: storetest.FakeTimes})
		})
	})
}

// onRedis checks sequences on a real server, under a prefix each.
func onRedis(t *testing.T, server *redistest.Server, check func(*rapid.T, storetest.ModelRig)) {
	t.Helper()
	client := server.Client(t)
	prefix, n := redistest.Prefix(t), 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		mine := fmt.Sprintf("%s-%d", prefix, n)
		st, err := store.Open(client, store.Options{Prefix: mine})
		if err != nil {
			t.Fatal(err)
		}
		check(t, storetest.ModelRig{Store: st, Client: client, Prefix: mine, Times: storetest.RealTimes})
	})
}

// effort sets how many sequences are tried, and how long they are on the average, unless the command line says so.
func effort(t *testing.T, checks, steps int) {
	t.Helper()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, n := range map[string]int{"checks": checks, "steps": steps} {
		env := map[string]string{"checks": "RAPID_CHECKS", "steps": "RAPID_STEPS"}[name]
		if _, set := os.LookupEnv(env); set || given["rapid."+name] {
			continue
		}
		f := flag.Lookup("rapid." + name)
		was := f.Value.String()
		if err := f.Value.Set(strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(was) })
	}
}
