package mcpserver

import (
	"fmt"
	"testing"
)

// TestTraceOfClient: the client's trace context arrives with the request, on the
// fast path and on the SDK's, and what is not one does not.
func TestTraceOfClient(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, sdkOnly := range []bool{false, true} {
		e := &stubExecutor{}
		c := serve(t, Config{Executor: e, SDKOnly: sdkOnly})
		c.handshake(legacyLatest)
		for i, tt := range []struct{ meta, want, state string }{
			{fmt.Sprintf(`{"traceparent":%q,"tracestate":"vendor=x"}`, parent), parent, "vendor=x"},
			{`{"traceparent":"00-x"}`, "", ""},
			{`{"traceparent":7}`, "", ""},
			{`{}`, "", ""},
		} {
			if _, failure := c.request(fmt.Sprint(i+10), "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":"1"},"_meta":%s`, tt.meta)); failure != nil {
				t.Fatalf("%s: %v", tt.meta, failure)
			}
			e.mu.Lock()
			got := e.principals[len(e.principals)-1].Trace
			e.mu.Unlock()
			if got.Valid() != (tt.want != "") || got.Valid() && got.TraceParent() != tt.want || got.State != tt.state {
				t.Errorf("SDK only: %v: %s: got %s %q, want %s %q", sdkOnly, tt.meta, got.TraceParent(), got.State, tt.want, tt.state)
			}
		}
	}
}
