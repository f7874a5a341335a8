package mcpserver

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"sallyport/internal/broker"
	"sallyport/internal/toon"
)

func TestTOON(t *testing.T) {
	zero := 0
	tests := []struct {
		name     string
		result   broker.Result
		language string
	}{
		{"lines", broker.Result{Status: broker.Success, Summary: "Success", ExitCode: &zero, Stdout: []string{"line1", "line2"}}, "toon"},
		{"lines that must be quoted", broker.Result{Status: broker.Success, Stdout: []string{"", "a,b", " x", "- y", "\u0000"}}, "toon"},
		{"files", broker.Result{Status: broker.Success, Artifacts: []broker.Artifact{{Path: "a", Size: 1}, {Path: "b", Size: 2}}}, "toon"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, structured := TOON.present(&tt.result)
			body, ok := strings.CutPrefix(text, "```"+tt.language+"\n")
			if !ok || !strings.HasSuffix(body, "\n```") {
				t.Fatalf("text %q", text)
			}
			raw, err := toon.Unmarshal([]byte(strings.TrimSuffix(body, "\n```")), toon.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got broker.Result
			if err := json.Unmarshal(raw, &got); err != nil || !reflect.DeepEqual(got, tt.result) || !reflect.DeepEqual(*structured, tt.result) {
				t.Errorf("came back as %+v (%v)", got, err)
			}
			encoded, err := marshal(tt.result)
			if err != nil || len(body)-4 > len(encoded) {
				t.Errorf("%d bytes, as JSON %d", len(body)-4, len(encoded))
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
