package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/tracing"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// site is a process: a supervisor with a tracer of its own.
type site struct {
	sup      *worker.Supervisor
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	out      *tracetest.InMemoryExporter
}

func newSite(t *testing.T, st *store.Store) *site {
	t.Helper()
	provider, out := recorder(t)
	tr := tracing.New(tracing.Config{Provider: provider})
	sup, err := worker.New(st, worker.Config{
		Middleware: []worker.Middleware{tr.Handle}, Hooks: []worker.EnqueueHook{tr.Enqueue}, OnTick: tr.Tick, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &site{sup, provider, provider.Tracer("app"), out}
}

// named are the spans of a name, in the order of their beginnings.
func (s *site) named(name string) (all []tracetest.SpanStub) {
	for _, span := range s.out.GetSpans() {
		if span.Name == name {
			all = append(all, span)
		}
	}
	slices.SortStableFunc(all, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return all
}

// below says whether a span was made within another one.
func below(a, b tracetest.SpanStub) bool {
	return a.Parent.SpanID() == b.SpanContext.SpanID() && a.Parent.TraceID() == b.SpanContext.TraceID()
}

// linked says whether a span has a link to another one.
func linked(a, b tracetest.SpanStub) bool {
	return slices.ContainsFunc(a.Links, func(l sdk.Link) bool {
		return l.SpanContext.SpanID() == b.SpanContext.SpanID() && l.SpanContext.TraceID() == b.SpanContext.TraceID()
	})
}

func TestStepsAndChildrenAreInTheTraceOfTheirJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		here, there := newSite(t, st), newSite(t, st)
		worker.Handle(here.sup, "order", func(ctx context.Context, _ struct{}) error {
			_, err := worker.Step(ctx, "charge/7", func(ctx context.Context) (int, error) {
				_, inner := here.tracer.Start(ctx, "bank")
				inner.End()
				return 1, nil
			})
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			f, err := worker.Async[int](ctx, "label", "render", struct{}{})
			if err != nil {
				return err
			}
			_, err = f.Wait(ctx)
			return err
		})
		worker.HandleResult(there.sup, "render", func(context.Context, struct{}) (int, error) { return 7, nil })
		client := worker.NewClient(st, worker.ClientConfig{}) // whoever enqueues has no trace
		id, err := client.Enqueue(t.Context(), "order", nil)
		if err != nil {
			t.Fatal(err)
		}
		workertest.Start(t, here.sup)
		workertest.Start(t, there.sup)
		time.Sleep(time.Minute)

		attempts, runs, replays := here.named("process order"), here.named("run step"), here.named("replay step")
		created, rendered, bank := here.named("create render"), there.named("process render"), here.named("bank")
		if len(attempts) != 2 || len(runs) != 1 || len(replays) != 2 || len(created) != 1 || len(rendered) != 1 || len(bank) != 1 {
			t.Fatalf("%d attempts, %d steps run, %d replayed, %d children created and %d run, %d within", len(attempts), len(runs), len(replays), len(created), len(rendered), len(bank))
		}
		if !below(runs[0], attempts[0]) || !below(bank[0], runs[0]) || !below(created[0], attempts[0]) || !below(replays[0], attempts[1]) || !below(replays[1], attempts[1]) {
			t.Error("a step is not below the attempt that came to it")
		}
		a := attributes(runs[0])
		if a["stint.step"] != "charge/7" || a["stint.step.outcome"] != "committed" || a["messaging.message.id"] != id.String() || runs[0].SpanKind != trace.SpanKindInternal {
			t.Errorf("the step that ran is %+v", a)
		}
		if a := attributes(replays[0]); a["stint.step"] != "charge/7" || a["stint.step.outcome"] != "replayed" {
			t.Errorf("the step that was replayed is %+v", a)
		}
		child := attributes(rendered[0])["messaging.message.id"]
		if a := attributes(replays[1]); a["stint.step"] != "label" || a["stint.step.outcome"] != "replayed" || a["stint.child"] != child {
			t.Errorf("the child's result was %+v, and it was %s", a, child)
		}
		if a := attributes(created[0]); a["stint.step"] != "label" || a["stint.parent"] != id.String() || created[0].SpanKind != trace.SpanKindProducer {
			t.Errorf("the child was created as %+v", a)
		}
		if !below(rendered[0], created[0]) || !linked(rendered[0], created[0]) || !linked(rendered[0], attempts[0]) || linked(rendered[0], attempts[1]) {
			t.Errorf("the child is linked to %+v", rendered[0].Links)
		}
		if !linked(attempts[0], created[0]) || linked(attempts[1], created[0]) {
			t.Errorf("the parent's attempts are linked to %+v and %+v", attempts[0].Links, attempts[1].Links)
		}
		for _, span := range slices.Concat(attempts, rendered) {
			if span.Status.Code != codes.Unset {
				t.Errorf("%s ended as %+v", span.Name, span.Status)
			}
		}
	})
}

func TestAStepThatFailsIsAFailureAndOneThatPanicsIsToo(t *testing.T) {
	for name, fail := range map[string]func() error{"fails": func() error { return errors.New("no") }, "panics": func() error { panic("oops") }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := workertest.Store(t)
				s := newSite(t, st)
				worker.Handle(s.sup, "order", func(ctx context.Context, _ struct{}) error {
					return worker.Do(ctx, "charge", func(context.Context) error { return fail() })
				}, worker.Retry(retry.Schedule()))
				if _, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(t.Context(), "order", nil); err != nil {
					t.Fatal(err)
				}
				workertest.Start(t, s.sup)
				time.Sleep(time.Minute)
				runs := s.named("run step")
				if len(runs) != 1 || runs[0].Status.Code != codes.Error || attributes(runs[0])["stint.step.outcome"] == "committed" {
					t.Errorf("%+v", runs)
				}
			})
		})
	}
}

func TestATickIsOneSpanThatTheAttemptsOfItsJobAreLinkedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		all := []*site{newSite(t, st), newSite(t, st), newSite(t, st)}
		for _, s := range all[:2] {
			s.sup.Schedule(worker.Cron{Key: "report", Spec: "@every 10m", Instance: "reports"})
		}
		worker.Handle(all[2].sup, "reports", func(ctx context.Context, _ struct{}) error {
			if job, _ := worker.JobFrom(ctx); job.Attempt == 1 {
				return errors.New("once more")
			}
			return nil
		}, worker.Retry(retry.Fixed(time.Second)))
		for _, s := range all {
			workertest.Start(t, s.sup)
		}
		time.Sleep(time.Hour + time.Minute)
		dispatched := slices.Concat(all[0].named("create reports"), all[1].named("create reports"))
		attempts := all[2].named("process reports")
		if len(dispatched) != 6 || len(attempts) != 12 {
			t.Fatalf("%d ticks and %d attempts, want 6 and 12", len(dispatched), len(attempts))
		}
		for _, tick := range dispatched {
			a := attributes(tick)
			at, err := time.Parse(time.RFC3339, a["stint.tick"])
			if a["stint.entry"] != "report" || err != nil || at.Minute()%10 != 0 || tick.SpanKind != trace.SpanKindProducer || tick.Parent.IsValid() {
				t.Errorf("a tick is %+v, %v", a, err)
			}
			n := 0
			for _, attempt := range attempts {
				if below(attempt, tick) && linked(attempt, tick) && attributes(attempt)["messaging.message.id"] == a["messaging.message.id"] {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%d attempts are below the tick of %v and linked to it, want 2", n, at)
			}
		}
	})
}

func TestAJobThatAHandlerEnqueuesIsNoChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := workertest.Store(t)
		s := newSite(t, st)
		tr := tracing.New(tracing.Config{Provider: s.provider})
		client := worker.NewClient(st, worker.ClientConfig{Hooks: []worker.EnqueueHook{tr.Enqueue}})
		worker.Handle(s.sup, "order", func(ctx context.Context, _ struct{}) error {
			_, err := client.Enqueue(ctx, "mail", nil)
			return errors.Join(err, worker.Do(ctx, "charge", func(ctx context.Context) error {
				_, err := client.Enqueue(ctx, "mail", nil)
				return err
			}))
		})
		worker.Handle(s.sup, "mail", func(context.Context, struct{}) error { return nil })
		if _, err := worker.NewClient(st, worker.ClientConfig{}).Enqueue(t.Context(), "order", nil); err != nil {
			t.Fatal(err)
		}
		workertest.Start(t, s.sup)
		time.Sleep(time.Minute)
		orders, steps, created, mails := s.named("process order"), s.named("run step"), s.named("create mail"), s.named("process mail")
		if len(orders) != 1 || len(steps) != 1 || len(created) != 2 || len(mails) != 2 {
			t.Fatalf("%d orders with %d steps, %d mails created and %d sent", len(orders), len(steps), len(created), len(mails))
		}
		if !slices.ContainsFunc(created, func(c tracetest.SpanStub) bool { return below(c, orders[0]) }) ||
			!slices.ContainsFunc(created, func(c tracetest.SpanStub) bool { return below(c, steps[0]) }) {
			t.Error("one mail is not below the attempt, or the other not below the step, that enqueued it")
		}
		for _, span := range slices.Concat(created, mails) {
			a := attributes(span)
			if _, has := a["stint.parent"]; has {
				t.Errorf("%s says of a parent: %v", span.Name, a)
			}
			if _, has := a["stint.step"]; has {
				t.Errorf("%s says of a step: %v", span.Name, a)
			}
			for _, l := range span.Links {
				if len(l.Attributes) > 0 {
					t.Errorf("%s has a link of %v", span.Name, l.Attributes)
				}
			}
		}
		if len(orders[0].Links)+len(steps[0].Links) > 0 {
			t.Errorf("the order is linked to %+v, its step to %+v", orders[0].Links, steps[0].Links)
		}
	})
}
