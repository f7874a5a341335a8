//go:build linux

package cli_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestTerminal: on a real terminal, what a server and a program write does
// nothing but show; a pipe gets the bytes.
func TestTerminal(t *testing.T) {
	const hostile = "\x1b]52;c;aGk=\a\u202eevil\x1b[2J"
	bin, home := executable(t), t.TempDir()
	file := filepath.Join(home, "servers.json")
	definition, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"bad": map[string]any{"command": "/bin/sh", "args": []string{"-c", "printf '" + `\033]52;c;aGk=\007\342\200\256evil\033[2J` + "' >&2; exit 1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, definition, 0o600); err != nil {
		t.Fatal(err)
	}
	runtime := t.TempDir()
	if err := os.Chmod(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	environ := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + runtime, "XDG_STATE_HOME=" + home}
	onTerminal := func(args ...string) (string, error) {
		master, tty, err := pty.Open()
		if err != nil {
			t.Skip("no pseudo-terminal: ", err)
		}
		defer master.Close()
		read := make(chan string)
		go func() {
			b, _ := io.ReadAll(master) // ends with an error when the other end is closed
			read <- string(b)
		}()
		cmd := exec.Command(bin, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = environ, tty, tty
		err = cmd.Run()
		tty.Close()
		return <-read, err
	}
	acts := func(s string) bool {
		return strings.ContainsAny(strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(s), "\x1b\a\u202e\u009b")
	}
	if got, _ := onTerminal("servers", "test", "--servers-config", file, "bad"); acts(got) || !strings.Contains(got, "evil") {
		t.Errorf("servers test: the terminal got %q", got)
	}
	program := `import sys
for s in (sys.stdout, sys.stderr):
    for part in ("\x1b", "]52;c;aGk=\x07", "\u202eevil", "\x1b[", "2J", "\x1b[3", "1mred\x1b[0m", "\x9b2J"):
        s.write(part); s.flush()
    s.buffer.write(b"\xc2"); s.flush(); s.buffer.write(b"\x9b2J"); s.flush()
`
	got, err := onTerminal("run", "-c", program)
	if err != nil || acts(got) || !strings.Contains(got, "evil") || !strings.Contains(got, "\x1b[31mred\x1b[0m") {
		t.Errorf("run: the terminal got %q (%v)", got, err)
	}
	cmd := exec.Command(bin, "run", "-c", "import sys; sys.stdout.write("+pythonText(hostile)+");")
	cmd.Env = environ
	if got, err := cmd.Output(); err != nil || string(got) != hostile {
		t.Errorf("run: the pipe got %q (%v), want %q", got, err, hostile)
	}
	// The log of a session is no way around that.
	cmd = exec.Command(bin, "run", "--session", "s", "-c", "import sys; sys.stdout.write("+pythonText(hostile)+");")
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run --session: %v: %q", err, out)
	}
	if got, err := onTerminal("sessions", "logs", "s", "--raw"); err != nil || acts(got) || !strings.Contains(got, "evil") {
		t.Errorf("sessions logs --raw: the terminal got %q (%v)", got, err)
	}
	cmd = exec.Command(bin, "sessions", "logs", "s", "--raw")
	cmd.Env = environ
	if got, err := cmd.Output(); err != nil || string(got) != hostile {
		t.Errorf("sessions logs --raw: the pipe got %q (%v), want %q", got, err, hostile)
	}
}

func pythonText(s string) string {
	b, _ := json.Marshal(s) // of a string
	return string(b)
}
