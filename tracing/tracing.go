// Package tracing joins the traces of those who enqueue jobs and of those who run them, with OpenTelemetry.
//
//	tr := tracing.New(tracing.Config{})
//	client := worker.NewClient(st, worker.ClientConfig{Hooks: []worker.EnqueueHook{tr.Enqueue}})
//	sup, err := worker.New(st, worker.Config{Middleware: []worker.Middleware{tr.Handle}})
//
// A span "create mail" of kind producer stands for a job that is enqueued, in the trace of whoever enqueues it. It travels in the
// job's metadata, as W3C traceparent. Each attempt is a span "process mail" of kind consumer, a child of it, however much later
// and wherever it is made. The context of the handler carries the span.
//
// It is a package of its own, so that only a program that imports it links OpenTelemetry.
package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// Config configures a Tracing; its zero value is ready for use.
type Config struct {
	// Provider makes the tracer; by default that of otel.GetTracerProvider, at the time of New.
	Provider trace.TracerProvider
	// Propagator writes what travels with a job, and reads it; by default W3C Trace Context. It adds to the job's metadata, whose
	// 16 KiB are the bound of what Baggage may have.
	Propagator propagation.TextMapPropagator
}

// Tracing makes spans of jobs. It is safe for concurrent use.
type Tracing struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

// New returns a Tracing.
func New(cfg Config) *Tracing {
	if cfg.Provider == nil {
		cfg.Provider = otel.GetTracerProvider()
	}
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	return &Tracing{cfg.Provider.Tracer("github.com/stint-go/stint/tracing"), cfg.Propagator}
}

// The attributes that all spans have, in OpenTelemetry's words for messaging where it has some.
func about(instance, operation string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "stint"),
		attribute.String("messaging.destination.name", instance),
		attribute.String("messaging.operation.type", operation),
	}
}

// Enqueue is the hook that makes a span of a job that is enqueued, and sends it along. The span ends with the hook: it says that the
// job was made, not that it was accepted, and not how long that took.
func (t *Tracing) Enqueue(ctx context.Context, r *worker.Request) error {
	ctx, span := t.tracer.Start(ctx, "create "+r.Instance, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(about(r.Instance, "create")...))
	defer span.End()
	t.propagator.Inject(ctx, luggage{r})
	return nil
}

// luggage writes what travels into the metadata of a job that is enqueued.
type luggage struct{ r *worker.Request }

func (luggage) Get(string) string { return "" }
func (luggage) Keys() []string    { return nil }
func (l luggage) Set(key, value string) {
	l.r.Options = append(l.r.Options, worker.Metadata(key, value))
}

// Handle is the middleware that makes a span of each attempt. A failure is its status; a snooze is none. So is an attempt whose end
// was not its own doing: a cancel, a shutdown, a lost lease.
func (t *Tracing) Handle(next worker.Handler) worker.Handler {
	return func(ctx context.Context, job store.Job) (err error) {
		ctx = t.propagator.Extract(ctx, propagation.MapCarrier(job.Metadata))
		attributes := append(about(job.Instance, "process"),
			attribute.String("messaging.message.id", job.ID.String()), attribute.Int("stint.attempt", job.Attempt))
		ctx, span := t.tracer.Start(ctx, "process "+job.Instance, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
		returned := false
		defer func() {
			if !returned {
				span.SetStatus(codes.Error, "the handler panicked, or called runtime.Goexit")
			}
			span.End()
		}()
		err = next(ctx, job)
		returned = true
		note(ctx, span, err)
		return err
	}
}

// note writes how an attempt has ended.
func note(ctx context.Context, span trace.Span, err error) {
	if err == nil {
		return
	}
	if d, snoozed := worker.SnoozeDelay(err); snoozed {
		span.AddEvent("snoozed", trace.WithAttributes(attribute.String("stint.delay", d.String())))
		return
	}
	switch cause := context.Cause(ctx); cause {
	case worker.ErrCancelled, worker.ErrShutdown, worker.ErrLeaseLost, worker.ErrParked:
		span.AddEvent("interrupted", trace.WithAttributes(attribute.String("stint.cause", cause.Error())))
		return
	}
	span.RecordError(err)
	span.SetAttributes(attribute.String("error.type", fmt.Sprintf("%T", err)))
	span.SetStatus(codes.Error, err.Error())
}
