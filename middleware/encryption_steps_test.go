package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/middleware"
	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// family is an instance "charge" whose jobs have steps and children in "bank", each with keys of its own.
type family struct {
	t       *testing.T
	st      *store.Store
	told    string // what the parent knows in the end
	read    string // of its cursor
	attempt int
	fails   bool   // the first attempt, after its steps
	after   func() // each script
}

// run runs a parent whose payload is encrypted with the keys at, nil for none, and returns it as it has ended.
func (f *family) run(at, parent, child *middleware.Keys) store.Job {
	f.t.Helper()
	f.st = workertest.Store(f.t)
	if f.after != nil {
		f.st.Runtime().Client().(*redis.Client).AddHook(afterEach(f.after))
	}
	for _, side := range []struct {
		keys     *middleware.Keys
		register func(*worker.Supervisor)
	}{
		{parent, func(s *worker.Supervisor) {
			worker.Handle(s, "charge", f.charge, worker.Retry(retry.Fixed(time.Second)))
		}},
		{child, func(s *worker.Supervisor) { worker.HandleResult(s, "bank", f.bank) }},
	} {
		cfg := worker.Config{Logger: slog.New(slog.DiscardHandler)}
		if side.keys != nil {
			cfg.Middleware, cfg.Hooks = []worker.Middleware{side.keys.Decrypt}, []worker.EnqueueHook{side.keys.Encrypt}
		}
		sup, err := worker.New(f.st, cfg)
		if err != nil {
			f.t.Fatal(err)
		}
		side.register(sup)
		workertest.Start(f.t, sup)
	}
	var hooks []worker.EnqueueHook
	if at != nil {
		hooks = []worker.EnqueueHook{at.Encrypt}
	}
	client := worker.NewClient(f.st, worker.ClientConfig{Hooks: hooks})
	id, err := client.Enqueue(f.t.Context(), "charge", secret{"4242"})
	if err != nil {
		f.t.Fatal(err)
	}
	job, err := client.Wait(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return job
}

func (f *family) charge(ctx context.Context, in secret) error {
	token, err := worker.Step(ctx, "token", func(context.Context) (secret, error) { return secret{"token " + in.Card}, nil })
	if err != nil {
		return err
	}
	at, save, err := worker.Cursor[secret](ctx, "rows")
	if err != nil {
		return err
	}
	if f.read = at.Card; at.Card == "" {
		if err := save(ctx, secret{"row " + in.Card}); err != nil {
			return err
		}
	}
	fs, err := worker.AsyncEach[secret](ctx, "bank", "bank", []secret{{"1 " + in.Card}, {"2 " + in.Card}})
	if err != nil {
		return err
	}
	if f.attempt++; f.fails && f.attempt == 1 {
		return errors.New("failed")
	}
	all, err := worker.WaitAll(ctx, fs)
	if err != nil {
		return err
	}
	f.told = fmt.Sprint(token, all)
	return nil
}

func (f *family) bank(_ context.Context, in secret) (secret, error) {
	time.Sleep(time.Minute) // its parent parks
	return secret{"paid " + in.Card}, nil
}

const wanted = "{token 4242} [{paid 1 4242} {paid 2 4242}]"

// clear are the steps of a job that are kept in the clear, children's results included, and the children whose payload or result is.
func (f *family) clear(job uuid.UUID) (all []string) {
	f.t.Helper()
	page, err := f.st.Steps(f.t.Context(), job, "")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range page.Steps {
		if strings.Contains(string(s.Result), "4242") {
			all = append(all, s.Name)
		}
		if s.Kind != store.AsyncStep {
			continue
		}
		child, err := f.st.Get(f.t.Context(), s.Child)
		if err != nil {
			f.t.Fatal(err)
		}
		if strings.Contains(string(child.Payload)+string(child.Result), "4242") {
			all = append(all, "child "+s.Name)
		}
	}
	return all
}

func TestStepsAndChildrenAreNeverInTheClearInRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keys(t, "new", map[string][]byte{"new": newKey})
		f := &family{t: t, fails: true}
		var looks atomic.Int32
		f.after = func() {
			if looks.Add(1); inTheClear(t, f.st) {
				t.Error("the secret is in the clear in between")
			}
		}
		job := f.run(k, k, k)
		if job.State != store.Done || f.told != wanted || f.read != "row 4242" {
			t.Fatalf("%s: %s; it knows %q, and the row %q", job.State, job.LastError, f.told, f.read)
		}
		if some := f.clear(job.ID); len(some) > 0 || looks.Load() < 10 {
			t.Errorf("in the clear are %q; %d looks in between", some, looks.Load())
		}
	})
}

func TestParentsAndChildrenNeedNotHaveTheSameKey(t *testing.T) {
	before := keys(t, "old", map[string][]byte{"old": oldKey})
	during := keys(t, "new", map[string][]byte{"old": oldKey, "new": newKey})
	for name, c := range map[string]struct {
		at, parent, child *middleware.Keys
		clear             int
	}{
		"a parent of before the rotation":         {before, during, during, 0},
		"children run by who has not rotated yet": {during, keys(t, "old", map[string][]byte{"old": oldKey, "new": newKey}), during, 0},
		"a parent that is not encrypted":          {nil, during, during, 2}, // its own steps
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &family{t: t, fails: true}
				job := f.run(c.at, c.parent, c.child)
				if job.State != store.Done || f.told != wanted || f.read != "row 4242" {
					t.Fatalf("%s: %s; it knows %q, and the row %q", job.State, job.LastError, f.told, f.read)
				}
				if some := f.clear(job.ID); len(some) != c.clear {
					t.Errorf("in the clear are %q", some)
				}
			})
		})
	}
}

func TestAChildWithAWrongKeyIsBuriedAndItsParentSaysWhichKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := keys(t, "new", map[string][]byte{"new": newKey, "bank": oldKey})
		k := keys(t, "bank", map[string][]byte{"bank": newKey, "new": newKey})
		f := &family{t: t}
		job := f.run(keys(t, "new", map[string][]byte{"new": newKey}), k, other)
		if want := `not encrypted with the key that is "bank" here`; job.State != store.Dead || !strings.Contains(job.LastError, want) || job.Attempt != 1 {
			t.Errorf("%s after %d attempts: %s", job.State, job.Attempt, job.LastError)
		}
	})
}

func TestWhatAStepHasKeptCanNotBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, k := workertest.Store(t), keys(t, "new", map[string][]byte{"new": newKey})
		sup, err := worker.New(st, worker.Config{Middleware: []worker.Middleware{k.Decrypt}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		worker.Handle(sup, "x", func(ctx context.Context, _ none) error {
			for _, name := range []string{"a", "b"} {
				if _, err := worker.Step(ctx, name, func(context.Context) (string, error) { return name, nil }); err != nil {
					return err
				}
			}
			if job, _ := worker.JobFrom(ctx); job.Attempt == 1 {
				rdb, key := st.Runtime().Client(), fmt.Sprintf("stint:{x}:step_result:%x", job.ID[:])
				a := rdb.HGet(ctx, key, "a").Val()
				at := strings.Index(a, `"stint-sealed`)
				b := rdb.HGet(ctx, key, "b").Val()
				to := strings.Index(b, `"stint-sealed`)
				if at < 0 || to < 0 {
					t.Errorf("the steps are kept as %q and %q, of %v", a, b, rdb.Keys(ctx, "*").Val())
				}
				rdb.HSet(ctx, key, "b", b[:max(to, 0)]+a[max(at, 0):])
				return errors.New("again")
			}
			return nil
		}, worker.Retry(retry.Fixed(time.Second)))
		workertest.Start(t, sup)
		client := worker.NewClient(st, worker.ClientConfig{Hooks: []worker.EnqueueHook{k.Encrypt}})
		id, err := client.Enqueue(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		job, err := client.Wait(t.Context(), id)
		if err != nil || job.State != store.Dead || !strings.Contains(job.LastError, `step "b": reading what is kept: decrypting the result: it was not encrypted`) {
			t.Errorf("%s: %s, %v", job.State, job.LastError, err)
		}
	})
}
