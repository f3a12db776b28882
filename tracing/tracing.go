// Package tracing joins the traces of those who enqueue jobs and of those who run them, with OpenTelemetry.
//
//	tr := tracing.New(tracing.Config{})
//	client := worker.NewClient(st, worker.ClientConfig{Hooks: []worker.EnqueueHook{tr.Enqueue}})
//	sup, err := worker.New(st, worker.Config{
//		Middleware: []worker.Middleware{tr.Handle},
//		Hooks:      []worker.EnqueueHook{tr.Enqueue}, // for children
//		OnTick:     tr.Tick,                          // for cron
//	})
//
// The spans of a job, in one trace, however much later and wherever it is run:
//
//	create mail    producer   in the trace of whoever enqueues it; it travels in the job's metadata, as W3C traceparent
//	process mail   consumer   an attempt, below create mail and linked to it; the context of the handler carries it
//	run step       internal   a step that is run, below its attempt, until it is kept; the context of its function carries it
//	replay step    internal   a step of which what is kept was returned instead, an async step included
//
// The job of an async step, the child, has the same: its create is below the attempt of the parent that dispatched it, and linked from there;
// its attempts are linked to that attempt. The job of a tick has a create of its own, with the entry and the tick, in a trace that begins
// with it, made by the process that dispatched it.
//
// The attributes are OpenTelemetry's for messaging, and stint.attempt, stint.step, stint.step.outcome (committed, replayed, failed), stint.child,
// stint.parent, stint.entry, stint.tick.
//
// It is a package of its own, so that only a program that imports it links OpenTelemetry.
package tracing

import (
	"context"
	"fmt"
	"time"

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
	attributes := about(r.Instance, "create")
	step, child := worker.StepFrom(ctx)
	if child {
		parent, _ := worker.JobFrom(ctx)
		attributes = append(attributes, attribute.String("stint.step", step), attribute.String("stint.parent", parent.ID.String()))
	}
	attempt := trace.SpanFromContext(ctx)
	ctx, span := t.tracer.Start(ctx, "create "+r.Instance, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	defer span.End()
	t.propagator.Inject(ctx, luggage{r, ""})
	if child {
		attempt.AddLink(trace.Link{SpanContext: span.SpanContext(), Attributes: attributes})
		propagation.TraceContext{}.Inject(trace.ContextWithSpan(ctx, attempt), luggage{r, parentPrefix})
	}
	return nil
}

// parentPrefix is before the keys of the metadata under which a child has the attempt that dispatched it.
const parentPrefix = "stint-parent-"

// luggage writes what travels into the metadata of a job that is enqueued.
type luggage struct {
	r      *worker.Request
	prefix string
}

func (luggage) Get(string) string { return "" }
func (luggage) Keys() []string    { return nil }
func (l luggage) Set(key, value string) {
	l.r.Options = append(l.r.Options, worker.Metadata(l.prefix+key, value))
}

// Tick is the hook that makes a span of a tick of cron that is dispatched, and sends it along with its job. Where another process was the one
// that dispatched it, the span never ends, and so is dropped.
func (t *Tracing) Tick(instance string, tick worker.Tick) (map[string]string, func(*worker.TickDispatched)) {
	attributes := append(about(instance, "create"),
		attribute.String("stint.entry", tick.Entry), attribute.String("stint.tick", tick.At.Format(time.RFC3339Nano)))
	ctx, span := t.tracer.Start(context.Background(), "create "+instance, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	metadata := map[string]string{}
	t.propagator.Inject(ctx, propagation.MapCarrier(metadata))
	return metadata, func(e *worker.TickDispatched) {
		if e == nil {
			return
		}
		span.SetAttributes(attribute.String("messaging.message.id", e.Job.String()), attribute.Float64("stint.lag_seconds", e.Late.Seconds()))
		span.End()
	}
}

// Handle is the middleware that makes a span of each attempt, and of its steps. Of a job that brings no trace each attempt begins one. A
// failure is its status; a snooze is none. So is an attempt whose end was not its own doing: a cancel, a shutdown, a lost lease, a wait for
// a step.
func (t *Tracing) Handle(next worker.Handler) worker.Handler {
	return func(ctx context.Context, job store.Job) error {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // a span of who called Run is none of the job's
		ctx = t.propagator.Extract(ctx, propagation.MapCarrier(job.Metadata))
		attributes := append(about(job.Instance, "process"),
			attribute.String("messaging.message.id", job.ID.String()), attribute.Int("stint.attempt", job.Attempt))
		ctx, span := t.tracer.Start(ctx, "process "+job.Instance, trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(attributes...), trace.WithLinks(origins(ctx, job)...))
		_ = worker.AroundSteps(ctx, t.step) // outside of a supervisor there are none
		return within(ctx, span, func(ctx context.Context) error { return next(ctx, job) })
	}
}

// origins links an attempt to where its job was made, and that of a child to the attempt of its parent.
func origins(ctx context.Context, job store.Job) (links []trace.Link) {
	if created := trace.SpanContextFromContext(ctx); created.IsRemote() {
		links = append(links, trace.Link{SpanContext: created})
	}
	from := propagation.MapCarrier{}
	for _, key := range (propagation.TraceContext{}).Fields() {
		if value, ok := job.Metadata[parentPrefix+key]; ok {
			from[key] = value
		}
	}
	if parent := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), from)); parent.IsValid() {
		links = append(links, trace.Link{SpanContext: parent, Attributes: []attribute.KeyValue{
			attribute.String("stint.parent", job.Parent.ID.String()), attribute.String("stint.step", job.Parent.Step),
		}})
	}
	return links
}

// step makes a span of a step. Names of steps are an attribute, since they may have a key in them.
func (t *Tracing) step(ctx context.Context, s store.Step, run func(context.Context) error) {
	attributes := []attribute.KeyValue{attribute.String("stint.step", s.Name), attribute.String("messaging.message.id", s.Job.String())}
	name, outcome := "replay step", "replayed"
	if s.State == "" {
		name, outcome = "run step", "committed"
	}
	if s.Kind == store.AsyncStep {
		attributes = append(attributes, attribute.String("stint.child", s.Child.String()))
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	_ = within(ctx, span, func(ctx context.Context) error {
		err := run(ctx)
		if err != nil {
			outcome = "failed"
		}
		span.SetAttributes(attribute.String("stint.step.outcome", outcome))
		return err
	})
}

// within calls f, notes in the span how it ends, and ends the span.
func within(ctx context.Context, span trace.Span, f func(context.Context) error) error {
	returned := false
	defer func() {
		if !returned {
			span.SetStatus(codes.Error, "the handler panicked, or called runtime.Goexit")
		}
		span.End()
	}()
	err := f(ctx)
	returned = true
	note(ctx, span, err)
	return err
}

// note writes how an attempt, or a step, has ended.
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
