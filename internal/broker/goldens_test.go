package broker

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestGoldensOfTheFirstBridge: what the first code-execution bridge made of a
// whole result, as text and as compact structured content, we make of it too.
// What we let a result say instead is in TestResults: an exception is no
// success there, and blank lines stay. Unlike there, no text says a sentence twice
// or leaves the error out.
func TestGoldensOfTheFirstBridge(t *testing.T) {
	tests := []struct {
		name, full, text, compact string
	}{
		{"success with output",
			`{"status":"success","summary":"Success","exitCode":0,"servers":["fs"],"stdout":["alpha","beta"]}`,
			"alpha\nbeta",
			`{"stdout":["alpha","beta"],"servers":["fs"]}`},
		{"success without output",
			`{"status":"success","summary":"Success (no output)","exitCode":0}`,
			"Success (no output)",
			`{"summary":"Success (no output)"}`},
		{"success with standard error alone",
			`{"status":"success","summary":"Success","exitCode":0,"stderr":["Traceback (most recent call last):","  ...","ZeroDivisionError: division by zero"]}`,
			"stderr:\nTraceback (most recent call last):\n  ...\nZeroDivisionError: division by zero",
			`{"stderr":["Traceback (most recent call last):","  ...","ZeroDivisionError: division by zero"],"summary":"Success"}`},
		{"success with both streams",
			`{"status":"success","summary":"Success","exitCode":0,"stdout":["a","b"],"stderr":["w"]}`,
			"a\nb\nstderr:\nw",
			`{"stdout":["a","b"],"stderr":["w"]}`},
		{"timeout with output",
			`{"status":"timeout","summary":"Timeout: execution exceeded 5s","servers":["fs"],"stdout":["partial"],"error":"Execution timed out after 5s","timeoutSeconds":5}`,
			"status: timeout\npartial\nerror: Execution timed out after 5s",
			`{"status":"timeout","stdout":["partial"],"servers":["fs"],"timeoutSeconds":5,"error":"Execution timed out after 5s","summary":"Timeout: execution exceeded 5s"}`},
		{"timeout without output",
			`{"status":"timeout","summary":"Timeout: execution exceeded 5s","error":"Execution timed out after 5s","timeoutSeconds":5}`,
			"status: timeout\nerror: Execution timed out after 5s",
			`{"status":"timeout","timeoutSeconds":5,"error":"Execution timed out after 5s","summary":"Timeout: execution exceeded 5s"}`},
		{"error of the sandbox",
			`{"status":"error","summary":"Sandbox error: Unknown MCP server: foo","servers":["foo"],"error":"Unknown MCP server: foo"}`,
			"status: error\nSandbox error: Unknown MCP server: foo",
			`{"status":"error","servers":["foo"],"error":"Unknown MCP server: foo","summary":"Sandbox error: Unknown MCP server: foo"}`},
		{"error of the sandbox with output",
			`{"status":"error","summary":"Sandbox error: Sandbox exited with code 1","stdout":["x"],"stderr":["Traceback...","ZeroDivisionError: division by zero"],"error":"Sandbox exited with code 1"}`,
			"status: error\nx\nstderr:\nTraceback...\nZeroDivisionError: division by zero\nerror: Sandbox exited with code 1",
			`{"status":"error","stdout":["x"],"stderr":["Traceback...","ZeroDivisionError: division by zero"],"error":"Sandbox exited with code 1","summary":"Sandbox error: Sandbox exited with code 1"}`},
		{"request that is not valid",
			`{"status":"validation_error","summary":"Missing 'code' argument","error":"Missing 'code' argument"}`,
			"status: validation_error\nMissing 'code' argument",
			`{"status":"validation_error","error":"Missing 'code' argument","summary":"Missing 'code' argument"}`},
		{"unexpected failure",
			`{"status":"error","summary":"Unexpected failure","error":"boom"}`,
			"status: error\nerror: boom",
			`{"status":"error","error":"boom","summary":"Unexpected failure"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r Result
			if err := json.Unmarshal([]byte(tt.full), &r); err != nil {
				t.Fatal(err)
			}
			encoded, err := json.Marshal(r)
			if err != nil || string(encoded) != tt.full {
				t.Errorf("the whole result is %s (%v)\nwant %s", encoded, err, tt.full)
			}
			if got := r.Text(); got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			compact, err := json.Marshal(r.Compact())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := decoded(t, string(compact)), decoded(t, tt.compact); !reflect.DeepEqual(got, want) {
				t.Errorf("compact %v, want %v", got, want)
			}
			if r.IsError() != (r.Status != "success") {
				t.Errorf("isError %v of status %s", r.IsError(), r.Status)
			}
		})
	}
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
