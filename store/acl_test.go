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
)

// unprovoked are the rules that the round below can't show the need of: a subscription pings only after 5 s of silence.
var unprovoked = []string{"+ping"}

func TestTheRulesInTheDocsAreEnoughAndNoneCanBeLeftOut(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	rules := rulesOf(t, "../docs/operations.md")

	refused := func(rules []string) (commands []string) {
		t.Helper()
		ctx := t.Context()
		args := []any{"acl", "setuser", "stint", "reset"}
		for _, r := range rules {
			args = append(args, r)
		}
		for _, cmd := range [][]any{{"flushall"}, {"script", "flush"}, args, {"acl", "log", "reset"}} { // it is our own server
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
		round(t, rdb, admin)
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
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- sup.Run(running) }()
	defer func() {
		stop()
		noError(t, "running", <-ended)
	}()
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
	args := []any{"acl", "setuser", "stint", "reset"}
	for _, r := range append(rulesOf(t, "../docs/operations.md"), block(t, "../docs/operations.md", "acl-cluster")...) {
		args = append(args, r)
	}
	var admins []*redis.Client
	for _, n := range c.Nodes {
		admins = append(admins, n.Client(t))
		if err := admins[len(admins)-1].Do(t.Context(), args...).Err(); err != nil {
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

// family does what parents and children do.
func family(ctx context.Context, st *store.Store, add func(int, store.NewJob) []uuid.UUID, claim func(store.Terms, int) []*store.Lease, terms store.Terms) {
	rt := st.Runtime()
	add(1, store.NewJob{Priority: store.MaxPriority})
	for _, l := range claim(terms, 1) {
		child := store.NewJob{ID: store.ChildID(&l.Job, "child", 0), Payload: json.RawMessage(`{}`),
			Parent: store.Parent{ID: l.Job.ID, Instance: "x", Step: "child"}}
		limits := store.StepLimits{Count: 10, Bytes: 10_000}
		_, _ = rt.Commit(ctx, l, limits, store.StepWrite{Name: "b", Kind: store.LocalStep, Value: json.RawMessage(`1`)})
		_, _ = rt.Commit(ctx, l, limits, store.StepWrite{Name: "a", Kind: store.LocalStep, Value: json.RawMessage(`1`)},
			store.StepWrite{Name: "child", Kind: store.AsyncStep, Instance: "x", Child: child})
		_, _ = rt.Enqueue(ctx, new(store.Lane), "x", []store.NewJob{child})
		_, _ = st.Steps(ctx, l.Job.ID, "")
		_, _ = st.Unresolved(ctx, "x", "")
		_ = rt.Lapse(ctx, "x", child.ID)
		_, _ = rt.Wanted(ctx, &store.Job{ID: child.ID, Instance: "x", Parent: child.Parent})
		_ = rt.Relay(ctx, []store.Outcome{{Child: child.ID, Instance: "x", Parent: child.Parent, Fate: store.FateDone, Text: `1`}})
		_, _ = rt.Exchange(ctx, new(store.Lane), terms, store.Exchange{Finishes: []store.Finish{{Lease: l, Verb: store.Bury}}})
		_, _ = rt.Sweep(ctx, "x")
	}
}

// round makes every call of the store at least once, and goes every way that needs a command of its own. What fails is seen
// in the server's log of refusals.
func round(t *testing.T, rdb, admin *redis.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := store.Open(rdb, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rt := st.Runtime()
	me := store.Process{ID: uuid.New(), Instances: []string{"x"}, Since: time.Now()}
	keep := store.Retention{Age: time.Hour, Count: 2}
	terms := store.Terms{Instance: "x", Process: me.ID, Lease: 10 * time.Second, Period: time.Second, MaxCrashes: 3, Done: keep, Dead: keep}
	var lane store.Lane

	sub := rt.Subscribe(rt.ProcessChannel(me.ID))
	defer sub.Close()
	_, _ = sub.Receive(time.Second)
	_ = sub.Add(ctx, rt.EndedChannel(me.ID))
	_ = sub.Remove(ctx, rt.EndedChannel(me.ID))
	_ = rt.Announce(ctx, me, time.Minute)
	_, _ = st.Processes(ctx)

	add := func(n int, job store.NewJob) (ids []uuid.UUID) {
		jobs := make([]store.NewJob, n)
		for i := range jobs {
			jobs[i] = job
			jobs[i].ID, jobs[i].Payload = uuid.New(), json.RawMessage(`{}`)
			ids = append(ids, jobs[i].ID)
		}
		_, _ = rt.Enqueue(ctx, &lane, "x", jobs)
		return ids
	}
	// With a shorter lease a claim runs out at once.
	claim := func(terms store.Terms, n int) []*store.Lease {
		x := store.Exchange{Wait: true}
		for range n {
			x.Claims = append(x.Claims, uuid.New())
		}
		got, _ := rt.Exchange(ctx, &lane, terms, x)
		return got.Leases
	}
	short := terms
	short.Lease = time.Millisecond

	claim(terms, 1) // waits in vain, so that it is woken
	waiting := add(8, store.NewJob{Deadline: time.Now().Add(time.Hour)})
	add(2, store.NewJob{Unique: store.Unique{Key: "k", Mode: store.UniqueTerminal}})
	add(1, store.NewJob{Unique: store.Unique{Key: "w", Mode: store.UniqueWindow, Window: time.Hour}})
	add(2, store.NewJob{Delay: time.Hour})
	_, _ = rt.Await(ctx, "x", waiting[0])
	for _, verb := range []store.Verb{store.Complete, store.Retry, store.Snooze, store.Release, store.Bury, store.Cancel} {
		for _, l := range claim(terms, 1) {
			_, _, _ = rt.Heartbeat(ctx, terms, []store.Beat{{Lease: l, Progress: json.RawMessage(`1`)}}, []uuid.UUID{uuid.New()})
			_ = st.Cancel(ctx, waiting[7])
			f := store.Finish{Lease: l, Verb: verb, Delay: time.Hour, Error: "e", Progress: json.RawMessage(`2`)}
			_, _ = rt.Exchange(ctx, &lane, terms, store.Exchange{Finishes: []store.Finish{f}})
		}
	}
	if ran := claim(short, 2); len(ran) > 0 { // one of them loses its run
		_ = admin.HDel(ctx, "stint:{x}:runs", string(ran[0].Job.ID[:])).Err()
	}
	time.Sleep(5 * time.Millisecond)
	_, _ = rt.Reap(ctx, terms)
	_, _ = rt.Reap(ctx, short)
	time.Sleep(5 * time.Millisecond)
	_, _ = rt.Reap(ctx, terms)

	claim(terms, 1)
	for _, state := range []store.State{store.Todo, store.Scheduled, store.Doing, store.Done, store.Dead, store.Cancelled} {
		p, _ := st.List(ctx, store.Filter{Instance: "x", State: state, Limit: 1})
		for _, j := range p.Jobs {
			_, _ = st.Get(ctx, j.ID)
			_, _ = st.Explain(ctx, j.ID)
			_, _ = st.List(ctx, store.Filter{Instance: "x", State: state, Limit: 1, Cursor: p.Next})
			_ = admin.ZRem(ctx, "stint:{x}:"+string(state), string(j.ID[:])).Err() // so that the cursor has lost its job
			_, _ = st.List(ctx, store.Filter{Instance: "x", State: state, Limit: 1, Cursor: p.Next})
		}
	}
	family(ctx, st, add, claim, terms)
	_, _ = st.Stats(ctx)
	_, _ = st.Instances(ctx)
	_, _ = st.Workers(ctx, "x")
	_ = st.Pause(ctx, "x")
	_ = st.Resume(ctx, "x")
	for at, steps := (store.AuditCursor{}), 0; steps < 100; steps++ {
		if _, at, err = rt.Audit(ctx, "x", at); err != nil || at == (store.AuditCursor{}) {
			break
		}
	}
	for range 3 {
		_ = st.Delete(ctx, add(1, store.NewJob{})[0])
	}
	all := store.Filter{Instance: "x"}
	_, _ = st.RequeueAll(ctx, all)
	_, _ = st.CancelAll(ctx, all)
	for _, j := range add(1, store.NewJob{}) {
		_ = st.Cancel(ctx, j)
		_ = st.Requeue(ctx, j, store.RequeueMode{})
	}
	_, _ = st.Purge(ctx, all)
	entry := store.Definition{Key: "e", Spec: "* * * * *", RecordCount: 1, Job: store.NewJob{Payload: json.RawMessage(`{}`)}}
	_, _, _ = rt.Register(ctx, "x", []store.Definition{entry}, false)
	for range 3 {
		time.Sleep(2 * time.Millisecond)
		if read, err := rt.Entries(ctx, "x", "", []string{"e"}); err == nil {
			ticks := []store.EntryTicks{{Entry: read.Entries[0], Decisions: []store.Decision{{Tick: read.Now}}}}
			_, _, _ = rt.Undispatched(ctx, "x", "n", "why", ticks)
			_, _, _ = rt.Dispatch(ctx, &lane, "x", "n", ticks)
		}
	}
	_, _ = st.RunEntry(ctx, "e")
	_, _ = st.FindDispatch(ctx, "e", time.Now())
	_, _ = st.Dispatches(ctx, store.DispatchFilter{})
	_, _ = st.Entries(ctx)
	_ = st.EnableEntry(ctx, "e", false)
	_ = st.EnableEntry(ctx, "e", true)
	_ = st.RemoveEntry(ctx, "e")
	_, _, _ = rt.Register(ctx, "x", []store.Definition{entry}, false)
	_ = st.DeleteInstance(ctx, "x", true)
	_ = rt.Leave(ctx, me)
}
