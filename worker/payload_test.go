package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestAPayloadThatDoesNotDecodeIsDeadAtOnceAndTheReasonNamesTheField(t *testing.T) {
	type in struct {
		Size struct{ Width int }
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var got []in
		worker.Handle(r.sup, "x", func(_ context.Context, i in) error { got = append(got, i); return nil }, worker.Concurrency(1))
		r.start()
		bad := r.enqueue("x", json.RawMessage(`{"Size":{"Width":"wide"}}`))
		whole := r.enqueue("x", json.RawMessage(`[1]`))
		good := r.enqueue("x", json.RawMessage(`{"Size":{"Width":3}}`))
		settle(time.Second)
		r.wantState(bad, store.Dead, 1, `decoding the payload: field "Size.Width" is no int`)
		r.wantState(whole, store.Dead, 1, `decoding the payload: it is no worker_test.in`)
		r.wantState(good, store.Done, 1, "")
		if len(got) != 1 || got[0].Size.Width != 3 {
			t.Errorf("handled %+v, want the good one", got)
		}
		r.stopWell()
	})
}

func TestRawPayloadsPassThroughAndNoneIsNotLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var raw string
		worker.Handle(r.sup, "raw", func(_ context.Context, m json.RawMessage) error { raw = string(m); return nil })
		worker.Handle(r.sup, "none", returns(nil))
		r.start()
		a, b := r.enqueue("raw", []any{1, "a", nil}), r.enqueue("none", []int{1, 2})
		settle(time.Second)
		if raw != `[1,"a",null]` {
			t.Errorf("payload %s", raw)
		}
		r.wantState(a, store.Done, 1, "")
		r.wantState(b, store.Done, 1, "")
		r.stopWell()
	})
}

func TestTheFieldThatDoesNotDecodeIsNamedForTypesThatDecodeThemselves(t *testing.T) {
	type payload struct {
		Order struct {
			ID uuid.UUID `json:"id"`
		} `json:"order"`
		Due time.Time
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "mail", func(context.Context, payload) error { return nil })
		r.start()
		for text, field := range map[string]string{`{"order":{"id":"x"}}`: "order.id", `{"Due":"soon"}`: "Due"} {
			id := r.enqueue("mail", json.RawMessage(text))
			time.Sleep(100 * time.Millisecond)
			if j := r.job(id); j.State != store.Dead || !strings.Contains(j.LastError, field) {
				t.Errorf("%s is %s with %q, which should name %s", text, j.State, j.LastError, field)
			}
		}
	})
}

func TestNothingOfWhatDoesNotDecodeIsInAJobsLastError(t *testing.T) {
	type in struct {
		Card  int
		When  time.Time
		Order uuid.UUID
		Parts []struct{ Price uint8 }
		By    map[string]bool
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.Handle(r.sup, "x", func(context.Context, in) error { return nil })
		worker.HandleResult(r.sup, "kid", func(context.Context, none) (json.RawMessage, error) { return json.RawMessage(`{"Card":4242.5}`), nil })
		worker.Handle(r.sup, "step", func(ctx context.Context, _ none) error {
			if j, _ := worker.JobFrom(ctx); j.Attempt == 1 {
				_, err := worker.Step(ctx, "a", func(context.Context) (any, error) { return map[string]any{"When": "4242"}, nil })
				return errors.Join(err, errBoom)
			}
			_, err := worker.Step(ctx, "a", func(context.Context) (in, error) { return in{}, nil })
			return err
		}, at1s)
		worker.Handle(r.sup, "parent", func(ctx context.Context, _ none) error {
			_, err := runChild[in](ctx, "kid", "kid", none{})
			return err
		})
		r.start()
		wants := map[uuid.UUID]string{
			r.enqueue("step", none{}):   `step "a": what is kept of the step does not fit: its result: field "When" is no time.Time`,
			r.enqueue("parent", none{}): `step "kid": what is kept of the step does not fit: the child's result: field "Card" is no int`,
		}
		for text, want := range map[string]string{
			`{"Card":4242.5}`:            `field "Card" is no int`,
			`{"When":"4242"}`:            `field "When" is no time.Time`,
			`{"Order":"4242"}`:           `field "Order" is no uuid.UUID`,
			`{"Parts":[{"Price":4242}]}`: `field "Parts.Price" is no uint8`,
			`{"By":{"4242":"4242"}}`:     `field "By" is no bool`,
			`"4242"`:                     `it is no worker_test.in`,
			`[4242]`:                     `it is no worker_test.in`,
		} {
			wants[r.enqueue("x", json.RawMessage(text))] = "decoding the payload: " + want
		}
		settle(time.Minute)
		for id, want := range wants {
			if j := r.job(id); j.State != store.Dead || j.LastError != want {
				t.Errorf("it is %s with %q, want dead and %q", j.State, j.LastError, want)
			}
		}
		r.stopWell()
	})
}

func TestABrokenRecordIsBuriedWithoutAHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		starts := r.serve("x", nothing)
		broken := r.enqueue("x", nil)
		good := r.enqueue("x", nil)
		must(t, r.st.Runtime().Client().HSet(t.Context(), "stint:{x}:jobs", string(broken[:]), "garbage").Err())
		r.start()
		settle(time.Second)
		if s := r.stats("x"); s.Dead != 1 || s.Done != 1 || len(starts) != 1 {
			t.Errorf("%+v after %d attempts, want one dead and one done", s, len(starts))
		}
		r.wantState(good, store.Done, 1, "")
		r.stopWell()
	})
}

func TestAResultIsKeptAndOneThatCantBeMakesTheJobDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		worker.HandleResult(r.sup, "x", func(_ context.Context, n int) (any, error) {
			switch n {
			case 1:
				return make(chan int), nil
			case 2:
				return make([]byte, store.MaxPayload), nil
			case 3:
				return 1, errBoom
			}
			return map[string]int{"n": n}, nil
		}, worker.Retry(limitOne))
		r.start()
		want := []struct{ result, text string }{
			{`{"n":0}`, ""}, {"", "encoding the result: json: unsupported type: chan int"}, {"", "invalid: the result has "}, {"", "boom"},
		}
		for n, w := range want {
			id := r.enqueue("x", n)
			synctest.Wait()
			state := store.Dead
			if w.text == "" {
				state = store.Done
			}
			r.wantState(id, state, 1, w.text)
			if got := string(r.job(id).Result); got != w.result {
				t.Errorf("result %s, want %s", got, w.result)
			}
		}
		r.stopWell()
	})
}

func TestResultOfTellsWhyThereIsNone(t *testing.T) {
	id := uuid.New()
	done := store.Job{ID: id, Instance: "images", State: store.Done, Result: []byte(`{"Width":3}`)}
	type size struct{ Width int }
	if got, err := worker.ResultOf[size](done); err != nil || got.Width != 3 {
		t.Errorf("%v, %v; want 3", got, err)
	}
	if got, err := worker.ResultOf[*size](done); err != nil || got.Width != 3 {
		t.Errorf("%v, %v; want 3", got, err)
	}
	if got, err := worker.ResultOf[int](done); err == nil || got != 0 {
		t.Errorf("%v, %v; want an error", got, err)
	}
	for _, state := range []store.State{store.Dead, store.Cancelled, store.Todo, store.Doing, store.Scheduled} {
		_, err := worker.ResultOf[size](store.Job{ID: id, Instance: "images", State: state, LastError: "no memory"})
		var je *worker.JobError
		if !errors.As(err, &je) || *je != (worker.JobError{ID: id, Instance: "images", State: state, Reason: "no memory"}) {
			t.Errorf("%s: %v, want a JobError that says so", state, err)
		}
	}
	none := store.Job{ID: id, Instance: "images", State: store.Done}
	if _, err := worker.ResultOf[int](none); err == nil {
		t.Error("a job without a result gave one")
	}
	if _, err := worker.ResultOf[struct{}](none); err != nil {
		t.Errorf("%v, want nil: nothing was asked for", err)
	}
}
