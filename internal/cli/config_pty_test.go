//go:build linux

package cli_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// TestConfigOnTerminal: Ctrl-C ends a question and the reading of a secret, but
// not an editor, whose draft is never lost.
func TestConfigOnTerminal(t *testing.T) {
	bin := executable(t)
	const editor = `#!/bin/sh
echo 'engin: x' >"$1"
`
	const patient = `#!/bin/sh
trap 'echo "engine: docker" >"$1"; exit 0' INT
echo started
while :; do sleep 0.05; done
`
	for _, tt := range []struct {
		name, editor string
		args         []string
		wait, typed  string
		want         string // in what it says
		status       int
		file         string // in the end; empty: none
	}{
		{"a question", editor, []string{"edit"}, "[Y/n] ", "\x03", "what you wrote is kept in ", 130, ""},
		{"no", editor, []string{"edit"}, "[Y/n] ", "n\n", "what you wrote is kept in ", 1, ""},
		{"the editor", patient, []string{"edit"}, "started", "\x03", "", 0, "engine: docker\n"},
		{"a secret is interrupted", "", []string{"set", "runpod.key", "-"}, "not shown: ", "\x03", "interrupted", 130, ""},
		{"a secret", "", []string{"set", "runpod.key", "-"}, "not shown: ", "hunter2-hunter2\n", "", 0, "runpod:\n  key: hunter2-hunter2\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home, runtime, temporary := t.TempDir(), t.TempDir(), t.TempDir()
			script := filepath.Join(home, "editor")
			if err := os.WriteFile(script, []byte(tt.editor), 0o755); err != nil {
				t.Fatal(err)
			}
			master, tty, err := pty.Open()
			if err != nil {
				t.Skip("no pseudo-terminal: ", err)
			}
			defer master.Close()
			cmd := exec.Command(bin, append([]string{"config"}, tt.args...)...)
			cmd.Dir = home
			cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin", "XDG_RUNTIME_DIR=" + runtime, "TMPDIR=" + temporary, "EDITOR=" + script}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			tty.Close()
			said := ""
			for b := make([]byte, 1); !strings.HasSuffix(said, tt.wait); said += string(b) {
				if _, err := master.Read(b); err != nil {
					t.Fatalf("it ended before %q: %v\n%s", tt.wait, err, said)
				}
			}
			for echo := tt.args[0] == "set"; echo; { // until the terminal hides what is typed
				mode, err := unix.IoctlGetTermios(int(master.Fd()), unix.TCGETS)
				if err != nil {
					t.Fatal(err)
				}
				echo = mode.Lflag&unix.ECHO != 0
				goruntime.Gosched()
			}
			if _, err := io.WriteString(master, tt.typed); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(master) // ends with an error when the other end is closed
			said += string(rest)
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(said, tt.want) || strings.Contains(said, "hunter2") {
				t.Errorf("got status %d, want %d, and %q in\n%s", got, tt.status, tt.want, said)
			}
			drafts, err := filepath.Glob(filepath.Join(temporary, "sallyport-config-*", "config.yaml"))
			if kept := strings.Contains(tt.want, "kept"); err != nil || (len(drafts) == 1) != kept || kept && !strings.Contains(said, drafts[0]) {
				t.Errorf("got drafts %v (%v), want one: %v\n%s", drafts, err, kept, said)
			}
			got, err := os.ReadFile(filepath.Join(home, ".config", "sallyport", "config.yaml"))
			if string(got) != tt.file || (err == nil) != (tt.file != "") {
				t.Errorf("the file is %q (%v), want %q\n%s", got, err, tt.file, said)
			}
		})
	}
}
