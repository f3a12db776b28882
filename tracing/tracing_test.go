package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/tracing"
	"github.com/stint-go/stint/worker"
	"github.com/stint-go/stint/worker/workertest"
)

// recorder returns a provider and what it has exported.
func recorder(t *testing.T) (*sdk.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	out := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(out))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return provider, out
}

// rig is a client and a supervisor with tracers of their own, as two processes have them.
type rig struct {
	client           *worker.Client
	st               *store.Store
	produced, ran    *tracetest.InMemoryExporter
	outside, handler trace.Tracer
}

func setup(t *testing.T, handler func(context.Context, struct{}) error, propagator propagation.TextMapPropagator) *rig {
	t.Helper()
	r := &rig{st: workertest.Store(t)}
	producer, produced := recorder(t)
	consumer, ran := recorder(t)
	r.produced, r.ran, r.outside, r.handler = produced, ran, producer.Tracer("app"), consumer.Tracer("app")
	here := tracing.New(tracing.Config{Provider: producer, Propagator: propagator})
	there := tracing.New(tracing.Config{Provider: consumer, Propagator: propagator})
	sup, err := worker.New(r.st, worker.Config{Middleware: []worker.Middleware{there.Handle}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(sup, "mail", handler, worker.Retry(retry.Schedule(time.Second, time.Second)))
	running, stop := context.WithCancel(t.Context())
	running, _ = r.handler.Start(running, "main") // it is the process', and no job's
	var run sync.WaitGroup
	run.Go(func() {
		if err := sup.Run(running); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); run.Wait() })
	r.client = worker.NewClient(r.st, worker.ClientConfig{Hooks: []worker.EnqueueHook{here.Enqueue}})
	return r
}

func attributes(s tracetest.SpanStub) map[attribute.Key]string {
	m := map[attribute.Key]string{}
	for _, kv := range s.Attributes {
		m[kv.Key] = kv.Value.String()
	}
	return m
}

func TestATraceGoesFromWhoEnqueuesToEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = setup(t, func(ctx context.Context, _ struct{}) error {
			_, inner := r.handler.Start(ctx, "send")
			inner.End()
			if job, _ := worker.JobFrom(ctx); job.Attempt == 1 {
				return errors.New("no connection")
			}
			return nil
		}, nil)
		ctx, request := r.outside.Start(t.Context(), "POST /mail")
		id, err := r.client.Enqueue(ctx, "mail", nil, worker.Metadata("tenant", "a"))
		if err != nil {
			t.Fatal(err)
		}
		request.End()
		time.Sleep(time.Minute)

		produced, ran := r.produced.GetSpans(), r.ran.GetSpans()
		if len(produced) != 2 || len(ran) != 4 {
			t.Fatalf("%d and %d spans", len(produced), len(ran))
		}
		create := produced[0]
		if create.Name != "create mail" || create.SpanKind != trace.SpanKindProducer || create.Parent.SpanID() != request.SpanContext().SpanID() ||
			attributes(create)["messaging.destination.name"] != "mail" {
			t.Errorf("the producer's span is %+v", create)
		}
		for i, attempt := range []tracetest.SpanStub{ran[1], ran[3]} {
			a := attributes(attempt)
			if attempt.Name != "process mail" || attempt.SpanKind != trace.SpanKindConsumer ||
				attempt.Parent.SpanID() != create.SpanContext.SpanID() || attempt.SpanContext.TraceID() != request.SpanContext().TraceID() ||
				!attempt.Parent.IsRemote() || a["messaging.message.id"] != id.String() || a["stint.attempt"] != string(rune('1'+i)) {
				t.Errorf("attempt %d is %+v", i+1, attempt)
			}
			if inner := ran[2*i]; inner.Name != "send" || inner.Parent.SpanID() != attempt.SpanContext.SpanID() {
				t.Errorf("within attempt %d is %+v", i+1, inner)
			}
		}
		if ran[1].Status.Code != codes.Error || ran[1].Status.Description != "no connection" || ran[3].Status.Code != codes.Unset {
			t.Errorf("they ended as %+v and %+v", ran[1].Status, ran[3].Status)
		}
		job, err := r.st.Get(t.Context(), id)
		if err != nil || job.Metadata["tenant"] != "a" || !strings.HasPrefix(job.Metadata["traceparent"], "00-"+request.SpanContext().TraceID().String()) {
			t.Errorf("%v, %v", job.Metadata, err)
		}
	})
}

func TestHowAnAttemptEndsIsItsStatus(t *testing.T) {
	for name, c := range map[string]struct {
		handler func() error
		code    codes.Code
		event   string
	}{
		"well":      {func() error { return nil }, codes.Unset, ""},
		"an error":  {func() error { return errors.New("no") }, codes.Error, "exception"},
		"permanent": {func() error { return retry.Permanent(errors.New("no")) }, codes.Error, "exception"},
		"snoozed":   {func() error { return worker.Snooze(time.Hour) }, codes.Unset, "snoozed"},
		"a panic":   {func() error { panic("oops") }, codes.Error, ""},
		"a Goexit":  {func() error { runtime.Goexit(); return nil }, codes.Error, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, func(context.Context, struct{}) error { return c.handler() }, nil)
				if _, err := r.client.Enqueue(t.Context(), "mail", nil); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				spans := r.ran.GetSpans()
				if len(spans) != 1 || spans[0].Status.Code != c.code {
					t.Fatalf("%+v", spans)
				}
				if events := spans[0].Events; c.event == "" && len(events) > 0 || c.event != "" && (len(events) != 1 || events[0].Name != c.event) {
					t.Errorf("events %+v, want %q", events, c.event)
				}
			})
		})
	}
}

func TestACancelIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, func(ctx context.Context, _ struct{}) error { <-ctx.Done(); return ctx.Err() }, nil)
		id, err := r.client.Enqueue(t.Context(), "mail", nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := r.client.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if spans := r.ran.GetSpans(); len(spans) != 1 || spans[0].Status.Code != codes.Unset || spans[0].Events[0].Name != "interrupted" {
			t.Errorf("%+v", spans)
		}
	})
}

func TestAJobWithoutATraceBeginsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, func(context.Context, struct{}) error { return nil }, nil)
		untraced := worker.NewClient(r.st, worker.ClientConfig{})
		for _, options := range [][]worker.EnqueueOption{nil, {worker.Metadata("traceparent", "nonsense")}} {
			if _, err := untraced.Enqueue(t.Context(), "mail", nil, options...); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		spans := r.ran.GetSpans()
		if len(spans) != 2 || spans[0].Parent.IsValid() || spans[1].Parent.IsValid() || spans[0].SpanContext.TraceID() == spans[1].SpanContext.TraceID() {
			t.Errorf("%+v", spans)
		}
	})
}

func TestLuggageThatIsTooMuchIsRefusedWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
		var got string
		r := setup(t, func(ctx context.Context, _ struct{}) error {
			got = baggage.FromContext(ctx).Member("user").Value()
			return nil
		}, both)
		with := func(value string) context.Context {
			m, err := baggage.NewMember("user", value)
			if err != nil {
				t.Fatal(err)
			}
			b, err := baggage.New(m)
			if err != nil {
				t.Fatal(err)
			}
			return baggage.ContextWithBaggage(t.Context(), b)
		}
		if _, err := r.client.Enqueue(with("ada"), "mail", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got != "ada" {
			t.Errorf("the handler's baggage is %q", got)
		}
		_, err := r.client.Enqueue(with(strings.Repeat("x", 8000)), "mail", nil, worker.Metadata("k", strings.Repeat("x", store.MaxMetadata-1000)))
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "metadata") {
			t.Errorf("%v", err)
		}
	})
}
