package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/capture"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

func all(s string) capture.Output { return capture.Output{Head: s} }

// TestResults keeps every kind of result in its three forms: all of it, what
// an agent gets as structured content, and what it gets as text.
func TestResults(t *testing.T) {
	b := newParts().broker(t)
	const traceback = "Traceback (most recent call last):\n  File \"<cell 1>\", line 1, in <module>\nZeroDivisionError: division by zero\n"
	of := func(servers []string, out session.Outcome) *Result {
		req := Request{Servers: servers, Submission: Submission{Code: "…"}}
		return b.finish(&req, (&execution{broker: b.Broker, req: &req}).result(t.Context(), &out))
	}
	tests := []struct {
		name   string
		result *Result
	}{
		{"success with output", of([]string{"math"}, session.Outcome{Stdout: all("alpha\nbeta\n")})},
		{"success without output", of(nil, session.Outcome{})},
		{"success with blank lines", of(nil, session.Outcome{Stdout: all("a\n\n()\n  \nb\n\n")})},
		{"success with an unfinished line", of(nil, session.Outcome{Stdout: all("a\nb")})},
		{"success with one blank line", of(nil, session.Outcome{Stdout: all("\n")})},
		{"success with standard error only", of(nil, session.Outcome{Stderr: all("warning\n")})},
		{"success with both", of(nil, session.Outcome{Stdout: all("a\nb\n"), Stderr: all("w\n")})},
		{"success with all that can be said", b.finish(&Request{Session: "work", Servers: []string{"math"}}, func() *Result {
			r := of([]string{"math"}, session.Outcome{
				Stdout:     capture.Output{Head: "head\nhe", Tail: "il\ntail\n", Omitted: 1234},
				Stderr:     capture.Output{Head: "x", Omitted: 5},
				Lost:       "the interpreter ended with status 7",
				Artifacts:  []wire.Artifact{{Path: "plots/sine.png", Size: 20480}},
				IdleOutput: "late\n", IdleOmitted: 9,
				Background: wire.Background{Threads: 1, Tasks: 2, Children: 3},
				Usage:      &usage.Usage{CPU: 1500 * time.Millisecond, PeakBytes: 64 << 20},
			})
			r.DurationMs = 2345
			return r
		}())},
		{"exception", of(nil, session.Outcome{End: session.Raised, ExitCode: 1, Stderr: all(traceback)})},
		{"exception after output", of(nil, session.Outcome{End: session.Raised, ExitCode: 1, Stdout: all("x\n"), Stderr: all(traceback)})},
		{"exception that the guest names", of(nil, session.Outcome{End: session.Raised, ExitCode: 1, Stderr: all(traceback + "Hint: …\n"),
			Error: &wire.Exception{Type: "ValueError", Message: "bad\x1b[1m"}})},
		{"exception without a traceback", of(nil, session.Outcome{End: session.Raised, ExitCode: 1})},
		{"exit with a code", of(nil, session.Outcome{End: session.Exited, ExitCode: 3, Stdout: all("x\n")})},
		{"exit with a code and no output", of(nil, session.Outcome{End: session.Exited, ExitCode: 3})},
		{"exit with zero", of(nil, session.Outcome{End: session.Exited, ExitCode: 0})},
		{"timeout with output, interrupted", of([]string{"math"}, session.Outcome{End: session.TimedOut, Limit: 5 * time.Second, Survived: true, Stdout: all("partial\n")})},
		{"timeout without output, interrupted", of(nil, session.Outcome{End: session.TimedOut, Limit: 5 * time.Second, Survived: true})},
		{"timeout, killed", of(nil, session.Outcome{End: session.TimedOut, Limit: 5 * time.Second, Lost: "the sandbox was killed: the code did not end when its time was up", Reason: "…"})},
		{"timeout of the whole run", of(nil, session.Outcome{End: session.TimedOut, Limit: 600 * time.Second, Whole: true, Survived: true})},
		{"cancelled, interrupted", of(nil, session.Outcome{End: session.Cancelled, Survived: true})},
		{"cancelled, killed", of(nil, session.Outcome{End: session.Cancelled, Lost: "the sandbox was killed: the code did not end when it was cancelled", Reason: "…"})},
		{"the interpreter ended", of(nil, session.Outcome{End: session.Died, Known: true, ExitCode: 7, Stdout: all("last words\n"),
			Reason: "the interpreter ended with status 7", Lost: "the interpreter ended with status 7"})},
		{"out of memory", of(nil, session.Outcome{End: session.Died, Reason: "the sandbox ran out of memory: more than 512 MiB", Lost: "the sandbox ran out of memory: more than 512 MiB"})},
		{"unknown server", b.Execute(context.Background(), Request{Principal: user, Servers: []string{"foo"}, Submission: Submission{Code: "1"}})},
		{"no engine", b.finish(&Request{}, failure(errors.New("the engine is missing")))},
		{"no code", b.Execute(context.Background(), Request{Principal: user})},
		{"before the code ran", unrun(context.Background(), session.ErrClosed)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "unknown server" {
				tt.result.DurationMs = 0
			}
			var got bytes.Buffer
			for _, part := range []struct {
				title string
				value *Result
			}{{"full", tt.result}, {"compact", tt.result.Compact()}} {
				fmt.Fprintf(&got, "## %s\n", part.title)
				enc := json.NewEncoder(&got)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				if err := enc.Encode(part.value); err != nil {
					t.Fatal(err)
				}
			}
			fmt.Fprintf(&got, "## isError\n%v\n## text\n%s\n", tt.result.IsError(), tt.result.Text())
			path := filepath.Join("testdata", "result", strings.NewReplacer(" ", "-", ",", "").Replace(tt.name)+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (go test -update writes it)", err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s has changed (go test -update accepts it)\n got: %s\nwant: %s", path, got.Bytes(), want)
			}
		})
	}
}

// TestResultKeys: the keys and their order are what clients of the first
// code-execution bridge know, then ours.
func TestResultKeys(t *testing.T) {
	one := 1
	full := Result{
		Status: Failed, Summary: "s", ExitCode: &one, Servers: []string{"a"}, Stdout: []string{"o"}, Stderr: []string{"e"},
		Error: "e", TimeoutSeconds: 1, Session: "s", StateLost: "l", Interrupted: true, Truncated: &Truncated{1, 1},
		Artifacts: []Artifact{{"p", 1, "u", "m"}}, Backend: "b", Run: "r", QueuedMs: 1, DurationMs: 1, Usage: &Usage{CPUSeconds: new(float64), PeakMemoryBytes: 1}, Notes: []string{"n"},
	}
	encoded, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(encoded))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key.(string))
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	const want = "status summary exitCode servers stdout stderr error timeoutSeconds " +
		"session stateLost interrupted truncated artifacts backend run queuedMs durationMs usage notes"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("keys %s\nwant %s", got, want)
	}
}

func TestUnusableEngineSaysWhatToDo(t *testing.T) {
	err := unusable("sandbox engine", &sandbox.Report{Backend: "gvisor"})
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "sallyport doctor") {
		t.Errorf("%v", err)
	}
}

// TestNamesOfPictures: what hides or runs on does not reach the line before a picture.
func TestNamesOfPictures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ path, about, want string }{
		{"a.png", "Größe ❤️", "a.png: Größe ❤️"},
		{"a\nb.png", "x\x1b[31m", `"a\nb.png": "x\x1b[31m"`},
		{"a\U000e0101.png", "b\u3164", `a\u{e0101}.png: b\u{3164}`},
		{strings.Repeat("\n", 4096), "", `"` + strings.Repeat(`\n`, 99) + `\…`},
	} {
		if got := (&Image{Path: tt.path, About: tt.about}).Name(); got != tt.want {
			t.Errorf("%.40q, %q: got %s, want %s", tt.path, tt.about, got, tt.want)
		}
	}
}
