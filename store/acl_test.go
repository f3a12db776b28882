package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// unprovoked are the rules that a round can't show the need of: a subscription pings only after 5 s of silence.
var unprovoked = []string{"+ping"}

func TestTheRulesInTheDocsAreEnoughAndNoneCanBeLeftOut(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	rules := rulesOf(t, "../docs/operations.md")

	refused := func(rules []string) (commands []string) {
		t.Helper()
		ctx := t.Context()
		for _, cmd := range [][]any{{"flushall"}, {"script", "flush"}, setUser(rules), {"acl", "log", "reset"}} { // it is our own server
			if err := admin.Do(ctx, cmd...).Err(); err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
		}
		rdb := server.Client(t, func(o *redis.Options) {
			o.Username, o.Password = "stint", "secret"
			o.DisableIdentity = true
			o.MaxRetries = -1
		})
		defer rdb.Close()
		makeRound(t, rdb, admin)
		log, err := admin.ACLLog(ctx, 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log {
			commands = append(commands, e.Object)
		}
		return commands
	}

	if got := refused(rules); len(got) > 0 {
		t.Fatalf("with the rules of the docs these are refused: %v", got)
	}
	for i, r := range rules {
		if r[0] != '+' && r[0] != '~' && r[0] != '&' || slices.Contains(unprovoked, r) {
			continue
		}
		less := slices.Delete(slices.Clone(rules), i, i+1)
		if got := refused(less); len(got) == 0 {
			t.Errorf("without %s nothing is refused", r)
		}
	}
}

func TestTheRulesInTheDocsHaveEveryCommandOfTheScripts(t *testing.T) {
	rules := rulesOf(t, "../docs/operations.md")
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	command := regexp.MustCompile(`call\('([A-Z]+)'|'([HZ][A-Z]{2,})'`)
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllStringSubmatch(string(src), -1) {
			if want := "+" + strings.ToLower(m[1]+m[2]); !slices.Contains(rules, want) {
				t.Errorf("%s uses %s", file, want)
			}
		}
	}
}

// Who may use no channel hears of nothing, and loses nothing for it.
func TestWithoutRightsToChannelsNothingIsLostAndWhoWaitsLooks(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	ctx := t.Context()
	if err := admin.Do(ctx, "acl", "setuser", "mute", "reset", "on", ">secret", "~*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "secret" }), store.Options{})
	if err != nil {
		t.Fatal(err)
	}

	// Each script that has somebody to tell: one waits for work, one for an end, one is to be told of a cancel.
	rt, id := st.Runtime(), uuid.New()
	terms := store.Terms{Instance: "x", Process: uuid.New(), Lease: 20 * time.Second, MaxCrashes: 3, Done: store.Retention{Count: 10}}
	claim := func() []*store.Lease {
		got, err := rt.Exchange(ctx, new(store.Lane), terms, store.Exchange{Claims: []uuid.UUID{uuid.New()}, Wait: true})
		noError(t, "claiming", err)
		return got.Leases
	}
	claim()
	outcome, err := rt.Enqueue(ctx, new(store.Lane), "x", []store.NewJob{{ID: id, Payload: []byte("1")}})
	noError(t, "enqueuing", errors.Join(append(outcome, err)...))
	_, err = rt.Await(ctx, "x", id)
	noError(t, "awaiting", err)
	leases := claim()
	if len(leases) != 1 {
		t.Fatalf("%d were claimed, want 1", len(leases))
	}
	noError(t, "cancelling", st.Cancel(ctx, id))
	got, err := rt.Exchange(ctx, new(store.Lane), terms, store.Exchange{Finishes: []store.Finish{{Lease: leases[0], Verb: store.Bury}}})
	noError(t, "ending", err)
	if len(got.Ended) != 1 || got.Ended[0] != store.Cancelled {
		t.Errorf("it is %q, want cancelled", got.Ended)
	}
	if all, err := st.Workers(ctx, "x"); err != nil || len(all) != 0 {
		t.Errorf("%d workers hold something, %v", len(all), err)
	}

	// The same with processes.
	sup, err := worker.New(st, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	noError(t, "a supervisor", err)
	worker.Handle(sup, "y", func(context.Context, int) error { return nil })
	workertest.Start(t, sup)
	client := worker.NewClient(st, worker.ClientConfig{})
	patient, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for range 3 {
		id, err := client.Enqueue(patient, "y", 1)
		noError(t, "enqueuing", err)
		if j, err := client.Wait(patient, id); err != nil || j.State != store.Done {
			t.Errorf("it is %s, %v; want done", j.State, err)
		}
	}
}

func TestTheRulesForAClusterInTheDocsAreEnough(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	rules := append(rulesOf(t, "../docs/operations.md"), block(t, "../docs/operations.md", "acl-cluster")...)
	var admins []*redis.Client
	for _, n := range c.Nodes {
		admins = append(admins, n.Client(t))
		if err := admins[len(admins)-1].Do(t.Context(), setUser(rules)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	st, err := store.Open(c.Client(t, func(o *redis.ClusterOptions) {
		o.Username, o.Password, o.DisableIdentity = "stint", "secret", true
	}), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	client := worker.NewClient(st, worker.ClientConfig{})
	for _, instance := range []string{"a", "b", "c", "d", "e", "f"} {
		id, err := client.Enqueue(t.Context(), instance, 1)
		if err != nil {
			t.Fatal(err)
		}
		if j, err := st.Get(t.Context(), id); err != nil || j.State != store.Todo {
			t.Errorf("%s: %s, %v", instance, j.State, err)
		}
		entry := store.Definition{Key: "e" + instance, Spec: "* * * * *", Job: store.NewJob{Payload: json.RawMessage(`1`)}}
		if _, _, err := st.Runtime().Register(t.Context(), instance, []store.Definition{entry}, false); err != nil {
			t.Fatal(err)
		}
		if id, err = st.RunEntry(t.Context(), "e"+instance); err != nil {
			t.Fatal(err)
		}
		if page, err := st.Dispatches(t.Context(), store.DispatchFilter{Entry: "e" + instance}); err != nil || len(page.Dispatches) != 1 || page.Dispatches[0].Job != id {
			t.Errorf("%s: %+v, %v", instance, page, err)
		}
		if err := st.RemoveEntry(t.Context(), "e"+instance); err != nil {
			t.Error(err)
		}
	}
	for i, admin := range admins {
		log, err := admin.ACLLog(t.Context(), 10).Result()
		if err != nil || len(log) > 0 {
			t.Errorf("node %d refused %d commands, %v", i, len(log), err)
		}
	}
}

func TestTheRulesInTheDocsAreEnoughToWaitForReplicas(t *testing.T) {
	r := newReplicated(t)
	rules := rulesOf(t, "../docs/operations.md")
	for _, with := range []bool{false, true} {
		if with {
			rules = append(rules, block(t, "../docs/operations.md", "acl-replicas")...)
		}
		r.must(r.rdb.Do(t.Context(), setUser(rules)...).Err())
		st, err := store.Open(r.master.Client(t, func(o *redis.Options) {
			o.Username, o.Password, o.DisableIdentity = "stint", "secret", true
		}), store.Options{WaitReplicas: 1})
		r.must(err)
		if err := enqueue(st, t.Context()); with != (err == nil) || !with && !errors.Is(err, store.ErrServer) {
			t.Errorf("enqueuing, with the rule %v: %v", with, err)
		}
	}
}

// setUser is the command by which a user has these rules, and no others.
func setUser(rules []string) []any {
	cmd := []any{"acl", "setuser", "stint", "reset"}
	for _, rule := range rules {
		cmd = append(cmd, rule)
	}
	return cmd
}

// rulesOf reads the rules that stand in a document, but for the user's name.
func rulesOf(t *testing.T, file string) []string {
	t.Helper()
	all := block(t, file, "acl")
	if len(all) < 3 || all[0] != "user" || all[1] != "stint" {
		t.Fatalf("rules for somebody else: %v", all)
	}
	return all[2:]
}

// block returns the words of a fenced block of a document, by what stands after its fence.
func block(t *testing.T, file, name string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, words, ok := strings.Cut(string(text), "```"+name+"\n")
	if !ok {
		t.Fatalf("no block %s in %s", name, file)
	}
	words, _, _ = strings.Cut(words, "```")
	return strings.Fields(words)
}
