package tracing_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/tracing"
	"github.com/stint-go/stint/worker"
)

func Example() {
	spans := tracetest.NewInMemoryExporter() // yours sends them somewhere
	tr := tracing.New(tracing.Config{Provider: sdk.NewTracerProvider(sdk.WithSyncer(spans))})

	st, _ := store.OpenEmbedded(store.Options{})
	defer st.Close()
	client := worker.NewClient(st, worker.ClientConfig{Hooks: []worker.EnqueueHook{tr.Enqueue}})
	id, _ := client.Enqueue(context.Background(), "mail", "hello")

	// What a supervisor with Middleware: tr.Handle does with the job, in another process.
	job, _ := st.Get(context.Background(), id)
	_ = tr.Handle(func(context.Context, store.Job) error { return nil })(context.Background(), job)

	all := spans.GetSpans()
	for _, s := range all {
		fmt.Println(s.Name, s.SpanKind)
	}
	fmt.Println("one trace:", all[0].SpanContext.TraceID() == all[1].SpanContext.TraceID())
	// Output:
	// create mail producer
	// process mail consumer
	// one trace: true
}
