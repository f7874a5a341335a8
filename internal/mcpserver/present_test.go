package mcpserver

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/toon"
)

func TestTOON(t *testing.T) {
	zero := 0
	tests := []struct {
		name   string
		result broker.Result
		want   string
	}{
		{"lines", broker.Result{Status: broker.Success, Summary: "Success", ExitCode: &zero, Stdout: []string{"line1", "line2"}},
			"status: success\nsummary: Success\nexitCode: 0\nstdout[2]: line1,line2"},
		{"lines that must be quoted", broker.Result{Status: broker.Success, Stdout: []string{"", "a,b", " x", "- y", "\u0000"}},
			"status: success\n" + `stdout[5]: "","a,b"," x","- y","\u0000"`},
		{"files", broker.Result{Status: broker.Success, Artifacts: []broker.Artifact{{Path: "a", Size: 1}, {Path: "b", Size: 2}}},
			"status: success\nartifacts[2]{path,size}:\n  a,1\n  b,2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, structured := TOON.present(&tt.result)
			if want := "```toon\n" + tt.want + "\n```"; text != want {
				t.Errorf("got %q, want %q", text, want)
			}
			if !reflect.DeepEqual(*structured, tt.result) {
				t.Errorf("structured content %+v, want %+v", *structured, tt.result)
			}
			encoded, err := marshal(tt.result)
			if err != nil || len(tt.want) > len(encoded) {
				t.Errorf("%d bytes (%v), as JSON %d", len(tt.want), err, len(encoded))
			}
		})
	}
}

func TestTheShorterFormIsTaken(t *testing.T) {
	r := &broker.Result{Artifacts: []broker.Artifact{{Path: "", Size: 0}}, Usage: &broker.Usage{CPUSeconds: new(float64)}}
	encoded, err := marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	short, err := toon.Marshal(r, toon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := TOON.present(r)
	want := "```json\n" + string(encoded) + "\n```"
	if len(short) <= len(encoded) {
		want = "```toon\n" + string(short) + "\n```"
	}
	if text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestTOONOverTheProtocol(t *testing.T) {
	short, sdk := serve(t, Config{Output: TOON}), serve(t, Config{Output: TOON, SDKOnly: true})
	for _, c := range []*client{short, sdk} {
		c.handshake(legacyLatest)
		c.send(call("1", "print hello", ""))
	}
	got, want := short.receive(), sdk.receive()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n short way: %v\n       SDK: %v", got, want)
	}
	if text := fmt.Sprint(got["result"].(map[string]any)["content"]); !strings.Contains(text, "```toon\nstatus: success\n") {
		t.Errorf("text %s", text)
	}
	if _, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), Output: "yaml"}); err == nil {
		t.Error("an unknown form")
	}
}

// TestFoldedAnswers: progress takes no room from the rest, in either form of an
// answer, and the answer says once where all of it is.
func TestFoldedAnswers(t *testing.T) {
	var states strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&states, "\r%4d of 2000 \x1b[32m%s\x1b[0m", i+1, strings.Repeat("#", 20))
	}
	const last = "2000 of 2000 ####################"
	progress := &broker.Result{Status: broker.Success, Cell: 7, Stdout: []string{"begin", states.String(), "end"}}
	for _, tt := range []struct {
		name   string
		output Output
		result *broker.Result
		stdout []string
		notes  []string // the ends of them
	}{
		{"progress", Compact, progress, []string{"begin", last, "end"}, []string{"folded: 1999 earlier states of lines that were written over left out. In the next call, runtime.output(-1) returns all of it"}},
		{"progress", TOON, progress, []string{"begin", last, "end"}, []string{"folded: 1999 earlier states of lines that were written over left out. In the next call, runtime.output(-1) returns all of it"}},
		{"shortened, too", Compact, &broker.Result{Status: broker.Success, Cell: 7, Stdout: append([]string{"1\r2"}, numbered(1000)...)}, nil,
			[]string{"So do the resource sallyport://output/default/7 and `sallyport sessions logs default`"}},
		{"a run", Compact, &broker.Result{Status: broker.Success, Run: "r1", Stdout: []string{"1%\r2%"}}, []string{"2%"}, []string{"`sallyport runs wait r1` prints all of it"}},
		{"colours", Compact, &broker.Result{Status: broker.Success, Cell: 7, Stdout: []string{"\x1b[31ma"}}, []string{"a"}, nil},
		{"repetition", Compact, &broker.Result{Status: broker.Success, Cell: 7, Stdout: slices.Repeat([]string{"0"}, 100)}, []string{"0", "[… 100 times in all …]"}, nil},
	} {
		s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), AnswerTokens: 1000, Structured: StructuredAlways, Output: tt.output})
		if err != nil {
			t.Fatal(err)
		}
		text, structured := (&conn{server: s}).answerOf("x", tt.result)
		if tt.stdout != nil && !slices.Equal(structured.Stdout, tt.stdout) || tt.stdout != nil && structured.Truncated != nil {
			t.Errorf("%s, %s: got %q, %+v, want %q", tt.name, tt.output, structured.Stdout, structured.Truncated, tt.stdout)
		}
		for _, line := range tt.stdout {
			if !strings.Contains(text, line) {
				t.Errorf("%s, %s: the text is %q, want %q", tt.name, tt.output, text, line)
			}
		}
		if len(structured.Notes) != len(tt.notes) {
			t.Errorf("%s: got notes %q, want %q", tt.name, structured.Notes, tt.notes)
			continue
		}
		for i, want := range tt.notes {
			if !strings.HasSuffix(structured.Notes[i], want) || !strings.HasPrefix(structured.Notes[i], "folded: ") || strings.Count(text, want) != 1 {
				t.Errorf("%s, %s: got %q in %q, want %q once", tt.name, tt.output, structured.Notes[i], text, want)
			}
		}
	}
	s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), Structured: StructuredAlways, Unfolded: true})
	if err != nil {
		t.Fatal(err)
	}
	if text, structured := (&conn{server: s}).answerOf("x", progress); !strings.Contains(text, states.String()) || !slices.Equal(structured.Stdout, progress.Stdout) || structured.Notes != nil {
		t.Errorf("unfolded: got %.80q with notes %q, want the raw output", text, structured.Notes)
	}
	if len(progress.Stdout[1]) < 2000 || len(progress.Notes) > 0 {
		t.Error("the raw result was changed")
	}
}
