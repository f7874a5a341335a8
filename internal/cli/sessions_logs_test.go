package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/session/sessionlog"
)

// TestLogsShowWhatServersTell: on lines of their own, whatever the log has, and not
// among the exact bytes of the output.
func TestLogsShowWhatServersTell(t *testing.T) {
	entries := []sessionlog.Entry{
		{Execution: 1, Start: true},
		{Execution: 1, Stream: "stdout", Text: "half a line"},
		{Execution: 1, Server: "github", Told: "warning: text"},
		{Execution: 1, Server: "git\x1b", Told: "info: \x1b[2J"},
		{Execution: 1, Stream: "stdout", Text: "a line\n"},
		{Execution: 1, Told: "3 more lines of servers were dropped"},
		{Execution: 1, End: "finished"},
	}
	for _, test := range []struct {
		cmd  sessionsLogsCmd
		want string
	}{
		{sessionsLogsCmd{}, "half a line\n[server github] warning: text\n[server \"git\\x1b\"] \"info: \\x1b[2J\"\na line\n[3 more lines of servers were dropped]\n"},
		{sessionsLogsCmd{Raw: true}, "half a linea line\n"},
	} {
		var out bytes.Buffer
		p := &logPrinter{cmd: &test.cmd, app: &ui{stdio: Stdio{Out: &out}}}
		for _, e := range entries {
			if err := p.print(e); err != nil {
				t.Fatal(err)
			}
		}
		if got := out.String(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.cmd, got, test.want)
		}
	}
	var out bytes.Buffer
	p := &logPrinter{cmd: &sessionsLogsCmd{JSON: true}, app: &ui{stdio: Stdio{Out: &out}}}
	if err := p.print(entries[2]); err != nil || !strings.Contains(out.String(), `"server":"github","told":"warning: text"`) {
		t.Errorf("as JSON: got %q, %v, want the server and what it told", out.String(), err)
	}
}
