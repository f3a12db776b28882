package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/middleware"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

var (
	oldKey = bytes.Repeat([]byte{1}, 16)
	newKey = bytes.Repeat([]byte{2}, 32)
)

func keys(t testing.TB, current string, all map[string][]byte) *middleware.Keys {
	t.Helper()
	k, err := middleware.NewKeys(current, all)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

type secret struct{ Card string }

// charge runs a job from a client with one set of keys in a supervisor with another, and returns it as the store has it.
func charge(t *testing.T, at, by *middleware.Keys, payload any, handler func(context.Context, secret) (secret, error)) store.Job {
	t.Helper()
	st := workertest.Store(t)
	cfg := worker.Config{Logger: slog.New(slog.DiscardHandler)}
	if by != nil {
		cfg.Middleware = []worker.Middleware{by.Decrypt}
	}
	sup, err := worker.New(st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	worker.HandleResult(sup, "charge", handler)
	var hooks []worker.EnqueueHook
	if at != nil {
		hooks = []worker.EnqueueHook{at.Encrypt}
	}
	client := worker.NewClient(st, worker.ClientConfig{Hooks: hooks})
	id, err := client.Enqueue(t.Context(), "charge", payload, worker.Metadata("tenant", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if at != nil && inTheClear(t, st) {
		t.Error("the payload is in the clear")
	}
	workertest.Start(t, sup)
	job, err := client.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if at != nil && inTheClear(t, st) {
		t.Error("the result is in the clear")
	}
	return job
}

// inTheClear looks through all of Redis for the secret.
func inTheClear(t *testing.T, st *store.Store) bool {
	t.Helper()
	ctx, rdb := context.WithValue(t.Context(), looking{}, true), st.Runtime().Client()
	for _, key := range rdb.Keys(ctx, "*").Val() {
		var all any
		switch kind := rdb.Type(ctx, key).Val(); kind {
		case "hash":
			all = rdb.HGetAll(ctx, key).Val()
		case "string":
			all = rdb.Get(ctx, key).Val()
		case "set":
			all = rdb.SMembers(ctx, key).Val()
		case "zset":
			all = rdb.ZRange(ctx, key, 0, -1).Val()
		case "none": // it is gone
		default:
			t.Errorf("%s is a %s", key, kind)
		}
		if strings.Contains(fmt.Sprint(all), "4242") {
			return true
		}
	}
	return false
}

// looking is the key of a context whose commands are those of who looks.
type looking struct{}

// afterEach is called after each script.
type afterEach func()

func (f afterEach) DialHook(next redis.DialHook) redis.DialHook { return next }
func (f afterEach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if ctx.Value(looking{}) == nil && strings.HasPrefix(cmd.Name(), "eval") {
			f()
		}
		return err
	}
}
func (f afterEach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func echo(_ context.Context, in secret) (secret, error) { return secret{"result " + in.Card}, nil }

func TestPayloadAndResultAreNeverInTheClearInRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keys(t, "new", map[string][]byte{"new": newKey})
		job := charge(t, k, k, secret{"4242"}, echo)
		if job.State != store.Done || job.Metadata[middleware.KeyID] != "new" || job.Metadata["tenant"] != "a" {
			t.Fatalf("%+v", job)
		}
		for what, raw := range map[string]json.RawMessage{"payload": job.Payload, "result": job.Result} {
			if strings.Contains(string(raw), "4242") || !json.Valid(raw) || len(raw) < 30 {
				t.Errorf("the %s in Redis is %s", what, raw)
			}
		}
		job, err := k.Open(job)
		if err != nil {
			t.Fatal(err)
		}
		out, err := worker.ResultOf[secret](job)
		if err != nil || out.Card != "result 4242" || string(job.Payload) != `{"Card":"4242"}` {
			t.Errorf("%+v, %v of %s", out, err, job.Payload)
		}
	})
}

func TestWithoutKeysTheSecretWouldBeFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		for encrypted, hooks := range map[bool][]worker.EnqueueHook{
			true: {keys(t, "new", map[string][]byte{"new": newKey}).Encrypt}, false: nil,
		} {
			id, err := worker.NewClient(st, worker.ClientConfig{Hooks: hooks}).Enqueue(t.Context(), "charge", secret{"4242"})
			if err != nil {
				t.Fatal(err)
			}
			if found := inTheClear(t, st); found == encrypted {
				t.Errorf("encrypted %v, found %v", encrypted, found)
			}
			if err := st.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := keys(t, "old", map[string][]byte{"old": oldKey})
		during := keys(t, "new", map[string][]byte{"old": oldKey, "new": newKey})
		after := keys(t, "new", map[string][]byte{"new": newKey})
		for name, c := range map[string]struct {
			client, handler *middleware.Keys
			id              string
		}{
			"an old job, new workers": {before, during, "old"}, "a new job": {during, during, "new"},
			"a new job, once the old key is gone": {during, after, "new"},
		} {
			job := charge(t, c.client, c.handler, secret{"4242"}, echo)
			if job.State != store.Done || job.Metadata[middleware.KeyID] != c.id {
				t.Errorf("%s: %s with key %q: %s", name, job.State, job.Metadata[middleware.KeyID], job.LastError)
			}
			if _, err := c.handler.Open(job); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestAWrongKeyBuriesTheJobWithAReasonThatNamesIt(t *testing.T) {
	for name, c := range map[string]struct {
		by     *middleware.Keys
		reason string
	}{
		"unknown": {keys(t, "new", map[string][]byte{"new": newKey}),
			`decrypting the payload: key "old" is not among the keys of this process`},
		"another of that name": {keys(t, "old", map[string][]byte{"old": newKey}),
			`decrypting the payload: it was not encrypted with the key that is "old" here, or was changed since`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := false
				job := charge(t, keys(t, "old", map[string][]byte{"old": oldKey}), c.by, secret{"4242"},
					func(context.Context, secret) (secret, error) { called = true; return secret{}, nil })
				if job.State != store.Dead || job.LastError != c.reason || job.Attempt != 1 || called {
					t.Errorf("%s after %d attempts: %s", job.State, job.Attempt, job.LastError)
				}
				if _, err := c.by.Open(job); !errors.Is(err, middleware.ErrKey) {
					t.Errorf("opened: %v", err)
				}
			})
		})
	}
}

func TestEncryptionCanBeIntroducedUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keys(t, "new", map[string][]byte{"new": newKey})
		job := charge(t, nil, k, secret{"4242"}, echo)
		opened, err := k.Open(job)
		if out, _ := worker.ResultOf[secret](opened); err != nil || job.State != store.Done || out.Card != "result 4242" {
			t.Errorf("%s: %s, %v", job.State, job.Result, err)
		}
	})
}

func TestAHandlerWithoutResultAndOneThatFailsAreAsEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keys(t, "new", map[string][]byte{"new": newKey})
		st := workertest.Store(t)
		sup, _ := worker.New(st, worker.Config{Middleware: []worker.Middleware{k.Decrypt}, Logger: slog.New(slog.DiscardHandler)})
		worker.Handle(sup, "charge", func(_ context.Context, in secret) error {
			if in.Card == "bad" {
				return worker.Snooze(0)
			}
			return nil
		})
		client := worker.NewClient(st, worker.ClientConfig{Hooks: []worker.EnqueueHook{k.Encrypt}})
		id, err := client.Enqueue(t.Context(), "charge", secret{"4242"})
		if err != nil {
			t.Fatal(err)
		}
		workertest.Start(t, sup)
		if job, err := client.Wait(t.Context(), id); err != nil || job.State != store.Done || job.Result != nil {
			t.Errorf("%s with %s, %v", job.State, job.Result, err)
		}
	})
}

func TestWhatIsEncryptedCanNotBeMoved(t *testing.T) {
	k := keys(t, "new", map[string][]byte{"new": newKey})
	seal := func(instance, payload string) json.RawMessage {
		r := worker.Request{Instance: instance, Payload: json.RawMessage(payload)}
		if err := k.Encrypt(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
		return r.Payload.(json.RawMessage)
	}
	sealed := seal("refund", "1")
	if bytes.Equal(sealed, seal("refund", "1")) {
		t.Error("the same text is encrypted to the same")
	}
	meta := map[string]string{middleware.KeyID: "new"}
	if job, err := k.Open(store.Job{Instance: "refund", Payload: sealed, Metadata: meta}); err != nil || string(job.Payload) != "1" {
		t.Errorf("in its place it is %s, %v", job.Payload, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-9] ^= 1 // of the text, not of the name of its key
	for what, job := range map[string]store.Job{
		"in another instance": {Instance: "charge", Payload: sealed, Metadata: meta},
		"as a result":         {Instance: "refund", Payload: sealed, Result: sealed, Metadata: meta},
		"changed":             {Instance: "refund", Payload: changed, Metadata: meta},
		"cut":                 {Instance: "refund", Payload: json.RawMessage(`"AAAA"`), Metadata: meta},
		"not a string":        {Instance: "refund", Payload: json.RawMessage(`{"a":1}`), Metadata: meta},
		"nothing":             {Instance: "refund", ID: uuid.New(), Metadata: meta},
	} {
		if _, err := k.Open(job); !errors.Is(err, middleware.ErrKey) {
			t.Errorf("%s it is opened with %v", what, err)
		}
	}
}

// amend is a hook after the encryption, as one who changes what is not encrypted.
func amend(id string) worker.EnqueueHook {
	return func(_ context.Context, r *worker.Request) error {
		if id == "" {
			r.Options = nil
		} else {
			r.Options = append(r.Options, worker.Metadata(middleware.KeyID, id))
		}
		return nil
	}
}

func TestMetadataThatNameAnotherKeyThanTheTextBuryTheJob(t *testing.T) {
	k := keys(t, "new", map[string][]byte{"old": oldKey, "new": newKey})
	for name, c := range map[string]struct{ id, reason string }{
		"unknown": {"none of these", `decrypting the payload: it was encrypted with key "new", and the metadata name "none of these"`},
		"another": {"old", `decrypting the payload: it was encrypted with key "new", and the metadata name "old"`},
		"none":    {"", `decrypting the payload: it was encrypted with key "new", and the metadata name none`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := false
				job := run(t, []worker.EnqueueHook{k.Encrypt, amend(c.id)}, k.Decrypt, func(context.Context, json.RawMessage) (secret, error) {
					called = true
					return secret{"4242"}, nil
				})
				if job.State != store.Dead || job.LastError != c.reason || job.Attempt != 1 || called || job.Result != nil {
					t.Errorf("%s after %d attempts with %s: %s", job.State, job.Attempt, job.Result, job.LastError)
				}
				if _, err := k.Open(job); !errors.Is(err, middleware.ErrKey) {
					t.Errorf("opened: %v", err)
				}
			})
		})
	}
}

func TestWhereItIsRequiredWhatIsNotEncryptedIsBuried(t *testing.T) {
	k := keys(t, "new", map[string][]byte{"new": newKey})
	for name, c := range map[string]struct {
		hooks []worker.EnqueueHook
		state store.State
	}{
		"encrypted": {[]worker.EnqueueHook{k.Encrypt}, store.Done}, "not": {nil, store.Dead},
		"not, but with a key's name": {[]worker.EnqueueHook{amend("new")}, store.Dead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := false
				job := run(t, c.hooks, k.Require, func(_ context.Context, in secret) (secret, error) {
					called = in.Card == "4242"
					return in, nil
				})
				if job.State != c.state || called != (c.state == store.Done) || c.state == store.Dead && !strings.HasPrefix(job.LastError, "decrypting the payload: ") {
					t.Errorf("%s: %s", job.State, job.LastError)
				}
				if strings.Contains(string(job.Result), "4242") {
					t.Errorf("the result is %s", job.Result)
				}
			})
		})
	}
}

// run runs a job that the hooks have seen, within the middleware, and returns it as it has ended.
func run[In any](t *testing.T, hooks []worker.EnqueueHook, mw worker.Middleware, handler func(context.Context, In) (secret, error)) store.Job {
	t.Helper()
	st := workertest.Store(t)
	sup, err := worker.New(st, worker.Config{Middleware: []worker.Middleware{mw}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	worker.HandleResult(sup, "charge", handler)
	client := worker.NewClient(st, worker.ClientConfig{Hooks: hooks})
	id, err := client.Enqueue(t.Context(), "charge", secret{"4242"})
	if err != nil {
		t.Fatal(err)
	}
	workertest.Start(t, sup)
	job, err := client.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestWhateverIsEncryptedComesBack(t *testing.T) {
	k := keys(t, "new", map[string][]byte{"new": newKey})
	rapid.Check(t, func(t *rapid.T) {
		text, _ := json.Marshal(rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "payload"))
		r := worker.Request{Instance: "x", Payload: json.RawMessage(text)}
		if err := k.Encrypt(context.Background(), &r); err != nil {
			t.Fatal(err)
		}
		job, err := k.Open(store.Job{Instance: "x", Payload: r.Payload.(json.RawMessage), Metadata: map[string]string{middleware.KeyID: "new"}})
		if err != nil || !bytes.Equal(job.Payload, text) {
			t.Fatalf("%s became %s, %v", text, job.Payload, err)
		}
	})
}

func TestBadKeysAndPayloadsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		current string
		keys    map[string][]byte
	}{
		"none": {"a", nil}, "no name": {"", map[string][]byte{"": newKey}}, "no current one": {"a", map[string][]byte{"b": newKey}},
		"no UTF-8": {"a", map[string][]byte{"a": newKey, "\xff": newKey}}, "too short": {"a", map[string][]byte{"a": newKey[:15]}}, "a bad one besides": {"a", map[string][]byte{"a": newKey, "b": {}}},
	} {
		if _, err := middleware.NewKeys(c.current, c.keys); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k := keys(t, "new", map[string][]byte{"new": newKey})
	client := worker.NewClient(workertest.Store(t), worker.ClientConfig{Hooks: []worker.EnqueueHook{k.Encrypt}})
	for name, payload := range map[string]any{
		"a channel": make(chan int), "no JSON": json.RawMessage("{"), "too long once encrypted": strings.Repeat("x", store.MaxPayload*9/10),
	} {
		if _, err := client.Enqueue(t.Context(), "x", payload); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ExampleKeys() {
	keys, _ := middleware.NewKeys("2027-01", map[string][]byte{"2027-01": bytes.Repeat([]byte{7}, 32)})
	r := worker.Request{Instance: "mail", Payload: "for your eyes only"}
	_ = keys.Encrypt(context.Background(), &r)
	sealed := r.Payload.(json.RawMessage)
	fmt.Println(strings.Contains(string(sealed), "eyes"))

	job, err := keys.Open(store.Job{Instance: "mail", Payload: sealed, Metadata: map[string]string{middleware.KeyID: "2027-01"}})
	fmt.Println(string(job.Payload), err)
	// Output:
	// false
	// "for your eyes only" <nil>
}
