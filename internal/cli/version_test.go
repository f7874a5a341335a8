package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionOf(t *testing.T) {
	tests := []struct{ linked, built, want, reason string }{
		{"", "", "devel", "no build information"},
		{"", "(devel)", "devel", "-buildvcs=false"},
		{"v1.2.3", "(devel)", "1.2.3", ""},
		{"", "v1.2.3", "1.2.3", ""},
		{"", "v1.2.3+dirty", "1.2.3+dirty", ""},
		{"", "v1.2.3-rc.1", "1.2.3-rc.1", ""},
		{"", "v0.0.0-20261121195813-ac48fa8c10ef+dirty", "0.0.0-20261121195813-ac48fa8c10ef+dirty", ""},
		{"v1.2.3", "v0.0.0-20261121195813-ac48fa8c10ef", "1.2.3", ""},
	}
	for _, tt := range tests {
		info := &debug.BuildInfo{Main: debug.Module{Version: tt.built}}
		got := versionOf(tt.linked, info)
		if got.Version != tt.want || (got.Reason == "") != (tt.reason == "") || !strings.Contains(got.Reason, tt.reason) {
			t.Errorf("linked %q, built %q: got %s (%s), want %s (%s)", tt.linked, tt.built, got.Version, got.Reason, tt.want, tt.reason)
		}
	}
}

// TestVersionIsTheSame: the command line, wherever --version stands before a
// command, and the server say the same.
func TestVersionIsTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("looks for an engine, which takes half a minute")
	}
	const want = "0.0.0-20261121195813-ac48fa8c10ef+dirty"
	version = "v" + want
	t.Cleanup(func() { version = "" })
	dir := t.TempDir()
	environ := []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "PATH=" + os.Getenv("PATH")}
	say := func(in string, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if status := Main(t.Context(), args, environ, Stdio{In: strings.NewReader(in), Out: &out, Err: &errs}); status != exitOK {
			t.Fatalf("%q: exit status %d: %s", args, status, errs.String())
		}
		return out.String()
	}
	for _, args := range [][]string{
		{"--version"}, {"version"}, {"--set", "log.level=debug", "--version"}, {"--log-level=debug", "--version"},
		{"--log-level", "debug", "--version", "--log-format", "text"}, {"--version", "run"},
	} {
		if got, _, _ := strings.Cut(say("", args...), " ("); got != "sallyport "+want {
			t.Errorf("%v: got %q, want %q", args, got, "sallyport "+want)
		}
	}
	var reply struct {
		Result struct{ ServerInfo struct{ Version string } }
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"
	if err := json.Unmarshal([]byte(say(hello, "serve", "--standalone")), &reply); err != nil {
		t.Fatal(err)
	}
	if got := reply.Result.ServerInfo.Version; got != want {
		t.Errorf("serverInfo: got %q, want %q", got, want)
	}
}
