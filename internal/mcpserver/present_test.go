package mcpserver

import (
	"fmt"
	"log/slog"
	"reflect"
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
