package mcpserver

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/broker"
)

// outcomes are the kinds of answers.
func outcomes() map[string]*broker.Result {
	one := 1
	traceback := []string{"Traceback (most recent call last):", `  File "<cell 1>", line 1, in <module>`, "ZeroDivisionError: division by zero"}
	return map[string]*broker.Result{
		"ok": {Status: broker.Success, Summary: "Success", ExitCode: new(int), Stdout: []string{"the answer is 42"}, Servers: []string{"jira"}, Session: "work",
			Artifacts: []broker.Artifact{{Path: "plot.png", Size: 9, URI: "sallyport://workspace/plot.png"}}, DurationMs: 1500, Notes: []string{"a timeout of 1s was asked for"}},
		"error": {Status: broker.Failed, Summary: "Uncaught exception: ZeroDivisionError: division by zero", ExitCode: &one, Stdout: []string{"before that"}, Stderr: traceback,
			Error: "Uncaught exception: ZeroDivisionError: division by zero", Notes: []string{"a note about it"}},
		"syntax error": {Status: broker.Failed, Summary: "Uncaught exception: SyntaxError: invalid syntax (<cell 2>, line 1)", ExitCode: &one,
			Stderr: []string{`  File "<cell 2>", line 1`, "    a b", "SyntaxError: invalid syntax"}, Error: "Uncaught exception: SyntaxError: invalid syntax (<cell 2>, line 1)"},
		"sandbox error": {Status: broker.Failed, Summary: "Sandbox error: the sandbox ran out of memory", Error: "the sandbox ran out of memory", StateLost: "the sandbox ran out of memory"},
		"cancelled":     {Status: broker.Failed, Summary: "Cancelled by the client; all is kept", Error: "Cancelled by the client; all is kept", Stdout: []string{"partial"}},
		"invalid":       {Status: broker.ValidationError, Summary: "Missing 'code' argument", Error: "Missing 'code' argument"},
		"timeout": {Status: broker.Timeout, Summary: "Timeout: execution exceeded 5s", Error: "Execution timed out after 5s; all is kept", TimeoutSeconds: 5,
			Interrupted: true, Stdout: []string{"partial"}},
		"long": {Status: broker.Success, Cell: 7, Stdout: numbered(100_000), DurationMs: 2000},
		"long error": {Status: broker.Failed, ExitCode: &one, Cell: 7, Stdout: numbered(100_000), Stderr: append(slices.Repeat(numbered(1000), 10), traceback...),
			Summary: "Uncaught exception: ZeroDivisionError: division by zero", Error: "Uncaught exception: ZeroDivisionError: division by zero"},
		"long message": {Status: broker.Failed, ExitCode: &one, Cell: 7, Stderr: []string{"ValueError: " + strings.Repeat("word ", 50_000)},
			Summary: "Uncaught exception: ValueError: " + strings.Repeat("word ", 50_000), Error: "Uncaught exception: ValueError: " + strings.Repeat("word ", 50_000)},
	}
}

// TestAnswers: in every form, a model gets the output, the error and the notes, no
// sentence twice, and no more than the limit.
func TestAnswers(t *testing.T) {
	const limit = 10_000
	for _, who := range []struct {
		client     string
		structured Structured
		want       string // of structured content: no, facts, all
	}{
		{"claude-code", "", "no"}, {"mcp", "", "no"}, {"codex-mcp-client", StructuredAuto, "no"}, {"x", "", "no"}, {"", "", "no"},
		{"mcp-inspector", "", "facts"}, {"ai-sdk-mcp-client", "", "facts"}, {"mcp-use", StructuredAuto, "facts"},
		{"claude-code", StructuredAlways, "all"}, {"x", StructuredAlways, "all"}, {"mcp-inspector", StructuredNever, "no"},
	} {
		for name, r := range outcomes() {
			t.Run(who.client+"/"+string(who.structured)+"/"+name, func(t *testing.T) {
				s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), AnswerTokens: limit, Structured: who.structured})
				if err != nil {
					t.Fatal(err)
				}
				text, structured := (&conn{server: s}).answerOf(who.client, r)
				for _, want := range slices.Concat(ends(r.Stdout), ends(r.Stderr), r.Notes, []string{r.Error, string(r.Status)}) {
					want, _, _ = strings.Cut(want, " (<cell ")
					if want == "success" || len(want) > 1000 {
						continue
					}
					if !strings.Contains(text, strings.TrimPrefix(want, "Uncaught exception: ")) {
						t.Errorf("the text lacks %q: %.2000s", want, text)
					}
				}
				saidOnce(t, text, r)
				if got := kind(structured, r); got != who.want && (got != "no" || who.want != "facts" || r.Facts() != nil) {
					t.Errorf("got %s as structured content, want %s: %+v", got, who.want, structured)
				}
				if who.want == "facts" && structured != nil {
					for _, line := range strings.Split(text, "\n") {
						if encoded, _ := marshal(structured); len(line) > 15 && strings.Contains(string(encoded), line) {
							t.Errorf("%q stands in both: %s", line, encoded)
						}
					}
				}
				n := cost(text, structured, who.structured == StructuredAlways, limit)
				if n > limit || strings.HasPrefix(name, "long") && n < limit/3 {
					t.Errorf("got %d tokens, want at most %d", n, limit)
				}
			})
		}
	}
}

// ends are the first and the last line.
func ends(lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return []string{lines[0], lines[len(lines)-1]}
}

// saidOnce checks that the text says the parts of a failure once.
func saidOnce(t *testing.T, text string, r *broker.Result) {
	t.Helper()
	for _, sentence := range []string{r.Error, r.Summary, r.StateLost} {
		sentence = strings.TrimPrefix(strings.TrimPrefix(sentence, "Uncaught exception: "), "Sandbox error: ")
		sentence, _, _ = strings.Cut(sentence, " (<cell ")
		if len(sentence) > 100 {
			sentence = sentence[:100]
		}
		if sentence != "" && sentence != "Success" && strings.Count(text, sentence) > 1 && !strings.HasPrefix(sentence, "ValueError: word") {
			t.Errorf("%q stands twice: %.2000s", sentence, text)
		}
	}
}

// kind says what structured content has.
func kind(structured, r *broker.Result) string {
	switch {
	case structured == nil:
		return "no"
	case structured.Stdout == nil && structured.Stderr == nil && structured.Error == "" && structured.Summary == "" && structured.Notes == nil && structured.StateLost == "":
		return "facts"
	case (structured.Stdout == nil) == (r.Stdout == nil) && structured.Error != "" == (r.Error != ""):
		return "all"
	}
	return "some"
}
