// Package traces makes OpenTelemetry spans of the journal's events and sends them to
// a collector over OTLP/HTTP. Spans are made once they have ended, so that what is
// traced does nothing but publish. They name servers, tools and how something ended:
// never code, arguments, results or the words of a person.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/metrics"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// Topics are those whose events become spans.
const Topics = journal.Executions | journal.Actions | journal.Sessions

// closeTimeout bounds how long the end of a program waits for a collector.
const closeTimeout = 2 * time.Second

// An Exporter sends spans.
type Exporter struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
}

// Wanted reports whether the standard variables name a collector.
func Wanted(variable func(name string) string) bool {
	if strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") || variable("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || variable("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// New returns an exporter to a collector, or to the one that the standard variables
// of this process name where endpoint is empty. It connects to nothing yet.
func New(endpoint, version string, log *slog.Logger) (*Exporter, error) {
	var options []otlptracehttp.Option
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		if strings.Trim(u.Path, "/") == "" {
			u.Path = "/v1/traces"
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.String()))
	}
	told := sync.Once{}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		told.Do(func() {
			log.Warn("spans could not be sent to the collector; further failures are not reported", "error", err)
		})
	}))
	ctx := context.Background()
	out, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("sending traces: %w", err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "sallyport"), attribute.String("service.version", version))
	if named, err := resource.New(ctx, resource.WithFromEnv()); err == nil {
		if merged, err := resource.Merge(about, named); err == nil {
			about = merged
		}
	}
	p := trace.NewTracerProvider(trace.WithBatcher(out), trace.WithIDGenerator(given{}), trace.WithResource(about))
	return &Exporter{p, p.Tracer("sallyport", api.WithInstrumentationVersion(version))}, nil
}

// Close sends what is left, but does not wait long for that.
func (e *Exporter) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = e.provider.Shutdown(ctx) // the error handler has reported it
}

// given is an IDGenerator that takes the IDs of the span that is made: they were
// chosen when it began, and servers know them.
type given struct{}

func (given) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	c := tracecontext.From(ctx)
	return c.Trace, c.Span
}

func (given) NewSpanID(ctx context.Context, _ api.TraceID) api.SpanID {
	return tracecontext.From(ctx).Span
}

// Handle makes spans: see [journal.Options].
func (e *Exporter) Handle(events []journal.Event, _ int) error {
	for _, event := range events {
		switch v := event.(type) {
		case *journal.ExecutionEnded:
			e.execution(v)
		case *journal.Finished:
			e.call(v)
		case *journal.Decided:
			e.decision(v)
		case *journal.SessionChanged:
			if name := map[journal.SessionState]string{journal.SessionStarted: "start sandbox", journal.SessionResumed: "resume session"}[v.To]; name != "" {
				e.span(v.Origin, v.Took, name, api.SpanKindInternal, "", attribute.String("sallyport.cause", v.Cause))
			}
		}
	}
	return nil
}

// span records a span that ends when the event happened.
func (e *Exporter) span(o journal.Origin, took time.Duration, name string, kind api.SpanKind, failure string, attributes ...attribute.KeyValue) {
	c := o.Trace
	if !c.Recorded {
		return
	}
	ctx := tracecontext.With(context.Background(), c)
	if c.Parent != [8]byte{} {
		state, _ := api.ParseTraceState(c.State) // none where it is not valid
		ctx = api.ContextWithRemoteSpanContext(ctx, api.NewSpanContext(api.SpanContextConfig{
			TraceID: c.Trace, SpanID: c.Parent, TraceFlags: api.TraceFlags(c.Flags), TraceState: state, Remote: true,
		}))
	}
	_, span := e.tracer.Start(ctx, name, api.WithSpanKind(kind), api.WithTimestamp(o.Time.Add(-took)))
	for _, a := range attributes {
		if a.Value.AsString() != "" || a.Value.Type() != attribute.STRING {
			span.SetAttributes(a)
		}
	}
	if failure != "" {
		span.SetAttributes(attribute.String("error.type", failure))
		span.SetStatus(codes.Error, failure)
	}
	span.End(api.WithTimestamp(o.Time))
}

func (e *Exporter) execution(v *journal.ExecutionEnded) {
	failure := v.Status
	if failure == "success" {
		failure = ""
	}
	e.span(v.Origin, v.Took, "execute_tool run_python", api.SpanKindServer, failure,
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", "run_python"), attribute.String("gen_ai.tool.type", "function"),
		attribute.String("sallyport.request", v.Execution), attribute.String("sallyport.session", v.Session), attribute.String("sallyport.engine", v.Engine))
}

func (e *Exporter) call(v *journal.Finished) {
	method := metrics.MethodOf(v.Action)
	if method == "" {
		return
	}
	name, kind := strings.TrimSpace(method+" "+v.Item), api.SpanKindClient
	attributes := []attribute.KeyValue{attribute.String("mcp.method.name", method), attribute.String("sallyport.server", v.Server)}
	switch v.Action {
	case "call_tool":
		attributes = append(attributes, attribute.String("gen_ai.tool.name", v.Item), attribute.String("gen_ai.operation.name", "execute_tool"))
	case "get_prompt":
		attributes = append(attributes, attribute.String("gen_ai.prompt.name", v.Item))
	}
	if v.Cached { // nothing was sent
		kind, attributes = api.SpanKindInternal, append(attributes, attribute.Bool("sallyport.reused", true))
	}
	e.span(v.Origin, v.Took, name, kind, v.Failure, attributes...)
}

// decision records what was not allowed, and how long a person took to answer.
func (e *Exporter) decision(v *journal.Decided) {
	name, outcome := "approval "+v.Action, "allowed"
	switch {
	case !v.Allowed:
		outcome = "denied"
	case v.Asked == 0:
		return // the action has a span
	}
	if v.Asked == 0 {
		name = "denied " + v.Action
	}
	failure := ""
	if !v.Allowed {
		failure = "denied"
	}
	e.span(v.Origin, v.Asked, name, api.SpanKindInternal, failure, attribute.String("sallyport.server", v.Server),
		attribute.String("sallyport.rule", v.Rule), attribute.String("sallyport.outcome", outcome))
}
