package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestHooksOfTheSupervisorSeeEachChildOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type seen struct{ instance, payload, parent, value string }
		var all []seen
		r := newRig(t, worker.Config{Hooks: []worker.EnqueueHook{
			nil,
			func(ctx context.Context, q *worker.Request) error {
				job, _ := worker.JobFrom(ctx)
				all = append(all, seen{q.Instance, fmt.Sprint(q.Payload), job.Instance, fmt.Sprint(ctx.Value(rigKey{}))})
				q.Payload = fmt.Sprint("hooked ", q.Payload)
				q.Options = append(q.Options, worker.Priority(9), worker.Metadata("by", "hook"))
				return nil
			},
			func(_ context.Context, q *worker.Request) error {
				if q.Payload == "hooked 2" {
					q.Instance = "elsewhere"
				}
				return nil
			},
		}})
		var got []string
		echo := func(ctx context.Context, in string) (string, error) {
			job, _ := worker.JobFrom(ctx)
			return fmt.Sprint(job.Instance, " ", in, " ", job.Priority, " ", job.Metadata["by"], job.Metadata["own"]), nil
		}
		worker.HandleResult(r.sup, "child", echo)
		worker.HandleResult(r.sup, "elsewhere", echo)
		worker.Handle(r.sup, "order", func(ctx context.Context, _ none) error {
			fs, err := worker.AsyncEach[string](context.WithValue(ctx, rigKey{}, "a value"), "each", "child", []int{1, 2, 3}, worker.Metadata("own", "!"))
			if err != nil {
				return err
			}
			got, err = worker.WaitAll(ctx, fs)
			return err
		})
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Done, 1, "")
		if want := []string{"child hooked 1 9 hook!", "elsewhere hooked 2 9 hook!", "child hooked 3 9 hook!"}; !slices.Equal(got, want) {
			t.Errorf("the children are %q, want %q", got, want)
		}
		if want := []seen{{"child", "1", "order", "a value"}, {"child", "2", "order", "a value"}, {"child", "3", "order", "a value"}}; !slices.Equal(all, want) {
			t.Errorf("the hook saw %v, want %v: once each, with the context of Async, not when the handler comes there again", all, want)
		}
		r.stopWell()
		for i, d := range of[worker.ChildDispatched](r.events) {
			if want := [...]string{"child", "elsewhere", "child"}[i]; d.To != want {
				t.Errorf("child %d was dispatched to %s, want %s", i, d.To, want)
			}
		}
	})
}

func TestAHookThatRefusesAChildIsAnErrorOfAsync(t *testing.T) {
	bubble(t, func(t *testing.T) {
		down := true
		r := newRig(t, worker.Config{Hooks: []worker.EnqueueHook{func(_ context.Context, q *worker.Request) error {
			switch q.Payload {
			case "later":
				if down {
					down = false
					return errRefused
				}
			case "panics":
				panic("oops")
			case "never":
				return retry.Permanent(errRefused)
			case "named":
				q.Options = append(q.Options, worker.ID(uuid.New()))
			}
			return nil
		}}})
		worker.Handle(r.sup, "child", func(context.Context, string) error { return nil })
		seen := map[string]error{}
		worker.Handle(r.sup, "order", func(ctx context.Context, what string) error {
			f, err := worker.Async[none](ctx, "child", "child", what)
			if err != nil {
				seen[what] = err
				return err
			}
			_, err = f.Wait(ctx)
			return err
		}, at1s, worker.Concurrency(1))
		later, never, named := r.enqueue("order", "later"), r.enqueue("order", "never"), r.enqueue("order", "named")
		panics := r.enqueue("order", "panics", func(j *store.NewJob) { j.MaxAttempts = 2 })
		r.start()
		settle(time.Minute)
		r.wantState(later, store.Done, 2, `step "child": enqueuing: hook 1: not allowed`)
		r.wantState(never, store.Dead, 1, `step "child"`)
		r.wantState(named, store.Dead, 1, `step "child": invalid: a child can have no ID`)
		r.wantState(panics, store.Dead, 2, `step "child"`)
		if _, ok := errors.AsType[*worker.PanicError](seen["panics"]); !ok || !errors.Is(seen["never"], errRefused) || !errors.Is(seen["later"], errRefused) {
			t.Errorf("Async returned %v", seen)
		}
		r.stopWell()
	})
}

// swapped is what a middleware keeps of steps here: JSON text with a mark, and what it belongs to.
func swapped(mark string, reads *[]store.Step) worker.Middleware {
	return func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, job store.Job) error {
			err := worker.EditSteps(ctx, func(s store.Step) (json.RawMessage, error) {
				return json.Marshal(mark + s.Name + string(s.Kind) + s.Job.String() + string(s.Result))
			}, func(s store.Step) (json.RawMessage, error) {
				*reads = append(*reads, s)
				if s.Kind == store.AsyncStep {
					return s.Result, nil
				}
				var text string
				err := json.Unmarshal(s.Result, &text)
				rest, ok := strings.CutPrefix(text, mark+s.Name+string(s.Kind)+s.Job.String())
				if err != nil || !ok {
					err = fmt.Errorf("%w: %s is not what %s makes", errRefused, text, mark)
				}
				return json.RawMessage(rest), err
			})
			if err != nil {
				return err
			}
			return next(ctx, job)
		}
	}
}

func TestMiddlewareCanKeepStepsInAnotherForm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var outer, inner []store.Step
		r := newRig(t, worker.Config{Middleware: []worker.Middleware{swapped("outer ", &outer)}})
		worker.HandleResult(r.sup, "child", func(context.Context, none) (int, error) { return 7, nil })
		calls := 0
		worker.HandleResult(r.sup, "order", func(ctx context.Context, _ none) (int, error) {
			calls++
			one, err := worker.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil })
			if err != nil {
				return 0, err
			}
			at, save, err := worker.Cursor[int](ctx, "at")
			if err == nil && at == 0 {
				err = save(ctx, 30)
			}
			if err != nil {
				return 0, err
			}
			seven, err := runChild[int](ctx, "child", "child", none{})
			return one + at + seven, err
		}, worker.Use(swapped("inner ", &inner)))
		id := r.enqueue("order", none{})
		r.start()
		settle(time.Minute)
		if j := r.job(id); j.State != store.Done || string(j.Result) != "38" || calls != 2 {
			t.Errorf("%s with %s after %d calls: %s", j.State, j.Result, calls, j.LastError)
		}
		kept, err := r.st.Step(t.Context(), id, "one")
		if err != nil || !strings.HasPrefix(string(kept.Result), `"outer onestep`) || !strings.Contains(string(kept.Result), "inner onestep") {
			t.Errorf("it is kept as %s, %v", kept.Result, err)
		}
		child := func(s store.Step) bool {
			return s.Kind == store.AsyncStep && s.Child != uuid.Nil && s.Instance == "child" && string(s.Result) == "7" && s.Job == id
		}
		if len(outer) != 3 || len(inner) != 3 || !slices.ContainsFunc(outer, child) || !slices.ContainsFunc(inner, child) {
			t.Errorf("read were %+v and %+v, want the step, the cursor and the child's result", outer, inner)
		}
		r.stopWell()
	})
}

func TestAStepThatCanNotBeKeptOrReadSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var keep, read error
		big := false
		edit := func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, job store.Job) error {
				err := worker.EditSteps(ctx, func(s store.Step) (json.RawMessage, error) {
					if big {
						return json.RawMessage(`"` + strings.Repeat("x", store.MaxPayload) + `"`), nil
					}
					return s.Result, keep
				}, func(s store.Step) (json.RawMessage, error) { return s.Result, read })
				return errors.Join(err, next(ctx, job))
			}
		}
		runs := 0
		worker.Handle(r.sup, "x", func(ctx context.Context, again none) error {
			_, err := worker.Step(ctx, "one", func(context.Context) (int, error) { runs++; return 1, nil })
			if err == nil && read == nil {
				read = retry.Permanent(errRefused)
				return errors.New("again")
			}
			return err
		}, at1s, worker.Use(edit))
		keep = errRefused
		id := r.enqueue("x", none{}, func(j *store.NewJob) { j.MaxAttempts = 2 })
		r.start()
		settle(time.Minute)
		r.wantState(id, store.Dead, 2, `step "one": keeping the result: not allowed`)
		keep = nil
		id = r.enqueue("x", none{})
		settle(time.Minute)
		r.wantState(id, store.Dead, 2, `step "one": reading what is kept: not allowed`)
		read, big = nil, true
		id = r.enqueue("x", none{})
		settle(time.Minute)
		r.wantState(id, store.Dead, 1, `step "one": invalid: 1048578 bytes of a result`)
		if runs != 4 {
			t.Errorf("the function ran %d times, want 4", runs)
		}
		if err := worker.EditSteps(t.Context(), nil, nil); !errors.Is(err, worker.ErrNoJob) {
			t.Errorf("outside of a handler: %v", err)
		}
		r.stopWell()
	})
}
