package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

var update = flag.Bool("update", false, "rewrite the golden frames that the host sends")

// The goldens are one frame per file, as on the wire. The guest's tests read
// the same files.

func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldensToGuest(t *testing.T) {
	frame := func(f Frame, err error) Frame {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	tests := []struct {
		name  string
		frame Frame
	}{
		{"exec", frame(EncodeExec(&Exec{ID: 1, Nonce: "0123abcd", Code: "print(1+1)"}))},
		{"exec-script", frame(EncodeExec(&Exec{ID: 3, Nonce: "n", Code: "1", Filename: "a.py", Script: true}))},
		{"exec-task", frame(EncodeExec(&Exec{ID: 4, Nonce: "n", Task: TaskTakeOut}))},
		{"exec-stdin", frame(EncodeExec(&Exec{ID: 5, Nonce: "n", Code: "1", Args: []string{"--x"}, Stdin: true}))},
		{"exec-html", frame(EncodeExec(&Exec{ID: 6, Nonce: "n", Code: "1", HTML: true}))},
		{"exec-servers", frame(EncodeExec(&Exec{
			ID: 2, Nonce: "n", Code: "x = \"ä\U0001F600<&>\"\n", Filename: "<cell 2>", Grants: []string{"my-fs"},
			Define: []Server{{Name: "my-fs", Alias: "my_fs", Description: "Files.", Cwd: "/srv", Tools: []tool.Tool{{
				Name: "read-file", Alias: "read_file", Description: "Read.",
				InputSchema: json.RawMessage(`{"type":"object","properties":{"z":{"default":9007199254740993},"a":{}},"required":["z"]}`),
			}}}},
			Discovered: []ServerInfo{{Name: "my-fs", Alias: "my_fs", Description: "Files."}, {Name: "other"}},
		}))},
		{"reply", frame(EncodeReply(7, json.RawMessage(`{"z":9007199254740993,"a":null,"u":"\ud800"}`)))},
		{"reply-null", frame(EncodeReply(8, nil))},
		{"reply-error", frame(EncodeError(9, &CallError{Kind: KindDenied, Message: "no \"x\""}))},
		{"shutdown", EncodeShutdown()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := "to-guest-" + tt.name
			got := tt.frame.Bytes()
			if *update {
				if err := os.WriteFile(filepath.Join("testdata", name), got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := golden(t, name); !bytes.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			body, err := NewReader(bytes.NewReader(got)).Control(MaxToGuest)
			if err != nil || !json.Valid(body) {
				t.Errorf("%v: %q", err, body)
			}
			if tt.frame.Len() != len(got) {
				t.Errorf("Len is %d, not %d", tt.frame.Len(), len(got))
			}
		})
	}
}

func TestGoldensFromGuest(t *testing.T) {
	tests := []struct {
		name string
		want FromGuest
	}{
		{"ready", FromGuest{Ready: &Ready{Protocol: Protocol, Runtime: "Python 3.11.2"}}},
		{"call", FromGuest{Call: &Call{ID: 7, Run: 1, Method: MethodCallTool,
			Params: json.RawMessage(`{"server":"my-fs","tool":"read-file","arguments":{"z":9007199254740993,"a":"\u00e4\ud83d\ude00"}}`)}}},
		{"behind", FromGuest{Behind: &Behind{Run: 1, Calls: 12}}},
		{"cancel", FromGuest{Cancel: &Cancel{ID: 7}}},
		{"done", FromGuest{Done: &Done{ID: 1, Status: StatusOK}}},
		{"done-drained", FromGuest{Done: &Done{ID: 5, Status: StatusOK, Drained: true, Stdout: "2\nä\U0001f600\x00\n"}}},
		{"done-full", FromGuest{Done: &Done{ID: 2, Status: StatusExit, ExitCode: 3,
			Artifacts: []Artifact{{Path: "a/b.png", Size: 5, About: "A “title”"}}, ArtifactsTruncated: true,
			Background: Background{Threads: 1, Tasks: 2, Children: 3}}}},
		{"done-running", FromGuest{Done: &Done{ID: 4, Status: StatusOK, Background: Background{Threads: 1, Children: 1},
			Running: []string{"thread Thread-1 (tick)", "process 34 sleep 60"}}}},
		{"done-error", FromGuest{Done: &Done{ID: 3, Status: StatusError, ExitCode: 1,
			Error: &Exception{Type: "ValueError", Message: "é \"x\""}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(bytes.NewReader(golden(t, "from-guest-"+tt.name)))
			body, err := r.Control(MaxFromGuest)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeFromGuest(body)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%v: got %+v, want %+v", err, got, tt.want)
			}
			if _, err := r.Control(MaxFromGuest); err != io.EOF {
				t.Errorf("after the frame: %v", err)
			}
		})
	}
}

func TestGoldensOutput(t *testing.T) {
	tests := []struct {
		name    string
		kind    Kind
		payload string
	}{
		{"stdout", KindStdout, "2\n\xff"},
		{"stderr", KindStderr, "e"},
		{"nonce", KindNonce, "0123abcd"},
		{"exit-code", KindExit, `{"code":3}`},
		{"exit-signal", KindExit, `{"signal":9}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := golden(t, "output-"+tt.name)
			if got := AppendOutput(nil, tt.kind, []byte(tt.payload)); !bytes.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			kind, payload, err := NewReader(bytes.NewReader(want)).Output()
			if err != nil || kind != tt.kind || string(payload) != tt.payload {
				t.Errorf("%v: %c %q", err, kind, payload)
			}
		})
	}
	if e, err := DecodeExit([]byte(`{"signal":9}`)); err != nil || e != (Exit{Signal: 9}) {
		t.Error(e, err)
	}
}

func TestBounds(t *testing.T) {
	frame := func(n uint32, body string) []byte {
		return append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
	}
	tests := []struct {
		name string
		in   []byte
		max  int
		err  error
	}{
		{"nothing", nil, 10, io.EOF},
		{"half a length", []byte{0, 0}, 10, io.ErrUnexpectedEOF},
		{"no body", frame(2, ""), 10, io.ErrUnexpectedEOF},
		{"half a body", frame(4, "{}"), 10, io.ErrUnexpectedEOF},
		{"too small", frame(1, "{"), 10, ErrFrame},
		{"too large", frame(11, "{}         "), 10, ErrFrame},
		{"largest", frame(10, "{}        "), 10, nil},
		{"absurd", frame(1<<32-1, "{}"), MaxToGuest, ErrFrame},
		{"large and truncated", frame(MaxFromGuest, "{}"), MaxFromGuest, io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(tt.in)).Control(tt.max)
			if !errors.Is(err, tt.err) {
				t.Errorf("%v, want %v", err, tt.err)
			}
		})
	}
}

// TestTruncatedLengthCostsLittle: a length that is not followed by a body must
// not make the reader allocate what it announces.
func TestTruncatedLengthCostsLittle(t *testing.T) {
	in := []byte{1, 0xff, 0xff, 0xff} // nearly 32 MiB
	cost := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = NewReader(bytes.NewReader(in)).Control(MaxFromGuest)
		}
	})
	if got := cost.AllocedBytesPerOp(); got > 2<<20 {
		t.Errorf("%d bytes for a frame that never came", got)
	}
}

func TestLargeFramesSurvive(t *testing.T) {
	for _, n := range []int{keep - 5, keep, keep + 1, 1<<20 + 1, 5 << 20, 20 << 20} {
		body := bytes.Repeat([]byte("x"), n)
		r := NewReader(bytes.NewReader(append(AppendControl(nil, body), AppendControl(nil, []byte("{}"))...)))
		got, err := r.Control(MaxFromGuest)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if next, err := r.Control(MaxFromGuest); err != nil || string(next) != "{}" {
			t.Errorf("after %d bytes: %q, %v", n, next, err)
		}
	}
}

func TestEncodeRefusesTooMuch(t *testing.T) {
	if _, err := EncodeReply(1, make(json.RawMessage, MaxToGuest)); err == nil {
		t.Error("a reply larger than a frame was encoded")
	}
	if _, err := EncodeExec(&Exec{Code: string(make([]byte, MaxToGuest/6+1))}); err == nil {
		t.Error("code larger than a frame was encoded")
	}
	if _, err := EncodeExec(&Exec{Define: []Server{{Tools: []tool.Tool{{InputSchema: json.RawMessage("{")}}}}}); err == nil {
		t.Error("a schema that is not JSON was encoded")
	}
}

// TestLargeReplyIsNotCopied: the payload of a large frame is the slice itself.
func TestLargeReplyIsNotCopied(t *testing.T) {
	result := append(append([]byte{'"'}, bytes.Repeat([]byte("x"), joinBelow)...), '"')
	f, err := EncodeReply(1, result)
	if err != nil || &f[1][0] != &result[0] {
		t.Fatal("copied", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"type":"exec","id":1}`, `{"type":"reply"}`, `{"type":1}`, `{"type":"done"`,
		`{"type":"done","id":-1,"status":"ok"}`, `{"type":"done","id":1}`, `{"type":"done","id":1,"status":"fine"}`,
		`{"type":"done","id":1,"status":"ok","artifacts":[{"path":"a","size":-1}]}`,
		`{"type":"done","id":1,"status":"ok","artifacts":[{"path":"a","about":"` + strings.Repeat("x", maxAbout+1) + `"}]}`,
		`{"type":"done","id":1,"status":"ok","artifacts":{}}`, `{"type":"done","id":1,"status":"ok","artifacts":[1]}`,
		`{"type":"done","id":1,"status":"ok","artifacts":[` + strings.Repeat("{},", maxArtifacts) + `{}]}`,
		`{"type":"done","id":1,"status":"ok","background":{"threads":-1}}`,
		`{"type":"done","id":1,"status":"ok","stdout":"not drained"}`,
		`{"type":"done","id":1,"status":"ok","drained":true,"stdout":"` + strings.Repeat("x", MaxOutput+1) + `"}`,
		`{"type":"done","id":1,"status":"error","error":"x"}`,
		`{"type":"done","id":1,"status":"error","error":{"type":"E","message":"` + strings.Repeat("x", maxException) + `"}}`,
		`{"type":"call","id":1}`, `{"type":"call","id":1.5,"method":"x"}`, `{"type":"ready","protocol":"1"}`,
	} {
		if m, err := DecodeFromGuest([]byte(body)); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %+v, %v", body, m, err)
		}
	}
	for _, body := range []string{``, `{"code":256}`, `{"code":-1}`, `{"signal":65}`, `3`} {
		if e, err := DecodeExit([]byte(body)); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %+v, %v", body, e, err)
		}
	}
}
