package upstream

import (
	"encoding/json"
	"testing"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

func TestParamsWith(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	span := tracecontext.Parse(parent, `v=a"b\c`)
	trace := `"traceparent":"` + parent + `","tracestate":"v=a\"b\\c"`
	const takes = `"io.modelcontextprotocol/clientCapabilities":`
	for _, tt := range []struct {
		meta, members string
		aside         aside
		want          string
	}{
		{"", "", aside{}, `{}`},
		{"", `"a":1`, aside{}, `{"a":1}`},
		{"", `"a":1`, aside{token: 7, span: span, logs: true, takes: inquiry.Takes{Roots: true}}, `{"_meta":{` + trace + `,"progressToken":7},"a":1}`},
		{`{"k":2}`, `"a":1`, aside{}, `{"_meta":{"k":2,` + takes + `{}},"a":1}`},
		{`{"k":2}`, "", aside{token: 7, span: span, logs: true, takes: inquiry.Takes{Roots: true}},
			`{"_meta":{"k":2,` + takes + `{"roots":{}},"io.modelcontextprotocol/logLevel":"info",` + trace + `,"progressToken":7}}`},
	} {
		s := &session{}
		if tt.meta != "" {
			s.meta = []byte(tt.meta)
		}
		for range 2 { // the session's own stays as it is
			got := s.paramsWith([]byte(tt.members), tt.aside)
			if string(got) != tt.want || !json.Valid(got) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		}
	}
}
