package traces

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// receiver is a collector.
func receiver(t *testing.T) (url string, spans func() []*otlp.Span, names func() string) {
	t.Helper()
	got := make(chan *collector.ExportTraceServiceRequest, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		data, err := io.ReadAll(body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		got <- &request
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(s.Close)
	var service string
	spans = func() []*otlp.Span {
		close(got)
		var all []*otlp.Span
		for request := range got {
			for _, r := range request.GetResourceSpans() {
				for _, a := range r.GetResource().GetAttributes() {
					if a.GetKey() == "service.name" {
						service = a.GetValue().GetStringValue()
					}
				}
				for _, scope := range r.GetScopeSpans() {
					all = append(all, scope.GetSpans()...)
				}
			}
		}
		return all
	}
	return s.URL, spans, func() string { return service }
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestTree: one execution that starts a sandbox and calls two tools is one trace,
// which continues its client's.
func TestTree(t *testing.T) {
	url, spans, service := receiver(t)
	e, err := New(url, "1.0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	execution := tracecontext.Parse(parent, "vendor=x").Begin()
	now := time.Now()
	origin := func(c tracecontext.Context) journal.Origin {
		return journal.Origin{Time: now, Execution: "abc", Trace: c}
	}
	ignored := tracecontext.Parse(strings.TrimSuffix(parent, "1")+"0", "").Begin()
	secret := "not for a collector"
	if err := e.Handle([]journal.Event{
		&journal.SessionChanged{Origin: origin(execution.Child()), To: journal.SessionStarted, Cause: "cold", Took: time.Millisecond},
		&journal.SessionChanged{Origin: origin(execution.Child()), To: journal.SessionSuspended},
		&journal.Decided{Origin: origin(execution.Child()), Action: "call_tool", Server: "web", Item: "get", Effect: "ask", Allowed: true, Asked: time.Second, Words: secret, Arguments: []byte(`"` + secret + `"`)},
		&journal.Finished{Origin: origin(execution.Child()), Action: "call_tool", Server: "web", Item: "get", Took: time.Millisecond},
		&journal.Finished{Origin: origin(execution.Child()), Action: "call_tool", Server: "web", Item: "put", Failure: "tool_error"},
		&journal.Finished{Origin: origin(execution.Child()), Action: "run_code"},
		&journal.Decided{Origin: origin(execution.Child()), Action: "call_tool", Server: "web", Item: "rm", Effect: "deny", Rule: "careful", Reason: secret},
		&journal.ExecutionBegan{Origin: origin(execution), Code: secret},
		&journal.ExecutionEnded{Origin: origin(execution), Status: "success", Error: secret, Took: 5 * time.Second},
		&journal.ExecutionEnded{Origin: origin(ignored), Status: "success"},
		&journal.ExecutionEnded{Origin: origin(tracecontext.Context{}), Status: "success"},
	}, 0); err != nil {
		t.Fatal(err)
	}
	e.Close()
	var got []string
	for _, s := range spans() {
		if hex.EncodeToString(s.GetTraceId()) != execution.ID() {
			t.Errorf("%s: got trace %x, want %s", s.GetName(), s.GetTraceId(), execution.ID())
		}
		below := "the execution"
		switch hex.EncodeToString(s.GetParentSpanId()) {
		case "00f067aa0ba902b7":
			below = "the client"
			if took := time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()); took != 5*time.Second || s.GetTraceState() != "vendor=x" {
				t.Errorf("got %s with the state %q, want 5s and the client's", took, s.GetTraceState())
			}
		case fmt.Sprintf("%x", execution.Span):
		default:
			t.Errorf("%s is below %x", s.GetName(), s.GetParentSpanId())
		}
		failure := ""
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "error.type" {
				failure = " " + a.GetValue().GetStringValue()
			}
		}
		if text := s.String(); strings.Contains(text, secret) {
			t.Errorf("a secret leaves the machine: %s", text)
		}
		got = append(got, s.GetName()+" below "+below+failure)
	}
	slices.Sort(got)
	want := []string{
		"approval call_tool below the execution",
		"denied call_tool below the execution denied",
		"execute_tool run_python below the client",
		"start sandbox below the execution",
		"tools/call get below the execution",
		"tools/call put below the execution tool_error",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if service() != "sallyport" {
		t.Errorf("got the service %q, want sallyport", service())
	}
}

// TestUnreachable: a collector that is not there delays the end a little, and is
// reported once.
func TestUnreachable(t *testing.T) {
	var log strings.Builder
	e, err := New("http://127.0.0.1:1", "1.0", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		began := time.Now()
		for range 10000 {
			_ = e.Handle([]journal.Event{&journal.ExecutionEnded{Origin: journal.Origin{Time: began, Trace: tracecontext.Context{}.Begin()}, Status: "success"}}, 0)
		}
		_ = e.provider.ForceFlush(t.Context())
	}
	e.Close()
	if n := strings.Count(log.String(), "could not be sent"); n != 1 {
		t.Errorf("reported %d times, want once:\n%s", n, &log)
	}
}

func TestWanted(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"OTEL_SERVICE_NAME": "x"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		if got := Wanted(func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.env, got, tt.want)
		}
	}
}
