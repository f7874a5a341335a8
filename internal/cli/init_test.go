//go:build linux

package cli_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// TestInit answers the questions on a terminal: each file is written after the
// last answer, and Ctrl-C at any question leaves all as they were.
func TestInit(t *testing.T) {
	bin := executable(t)
	const cursor = `{"mcpServers": {"other": {"command": "true"}}}` + "\n"
	for _, tt := range []struct {
		name    string
		answers []string // to the questions in order; "^C" interrupts
		want    map[string]string
		fails   bool
	}{
		{"connected, not moved", []string{"y", "n"}, map[string]string{".cursor/mcp.json": `"sallyport"`}, false},
		{"moved", []string{"y", "y", "y"}, map[string]string{".cursor/mcp.json": `"sallyport"`, "MCPs/other.json": `"cursor": {`}, false},
		{"no packages for data", []string{"y", "n", "n"}, map[string]string{".cursor/mcp.json": `"sallyport"`}, false},
		{"not at all", []string{"n"}, nil, true},
		{"interrupted at the first question", []string{"^C"}, nil, true},
		{"interrupted at the second", []string{"y", "^C"}, nil, true},
		{"interrupted at the last", []string{"y", "y", "^C"}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			file := filepath.Join(home, ".cursor", "mcp.json")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(cursor), 0o600); err != nil {
				t.Fatal(err)
			}
			runtime := t.TempDir()
			if err := os.Chmod(runtime, 0o700); err != nil {
				t.Fatal(err)
			}
			master, tty, err := pty.Open()
			if err != nil {
				t.Skip("no pseudo-terminal: ", err)
			}
			defer master.Close()
			cmd := exec.Command(bin, "init")
			cmd.Dir = home
			cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin", "XDG_RUNTIME_DIR=" + runtime, "SALLYPORT_HUB_ENABLED=false"}
			if data := len(tt.answers) == 3 && tt.answers[1] == "n"; !data {
				cmd.Env = append(cmd.Env, "SALLYPORT_ENVIRONMENT=host")
			} else if err := exec.Command("/usr/bin/python3", "-m", "pip", "--version").Run(); err != nil {
				t.Skip("no packages are offered without pip: ", err)
			}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			tty.Close()
			var said bytes.Buffer
			for _, answer := range tt.answers {
				for !strings.HasSuffix(said.String(), "[y/N] ") {
					b := make([]byte, 1)
					if _, err := master.Read(b); err != nil {
						t.Fatalf("it ended before the question for %q: %v\n%s", answer, err, &said)
					}
					said.Write(b)
				}
				if answer == "^C" {
					answer = "\x03"
				} else {
					answer += "\n"
				}
				if _, err := io.WriteString(master, answer); err != nil {
					t.Fatal(err)
				}
				said.WriteString(" ")
			}
			_, _ = io.Copy(&said, master) // ends with an error when the other end is closed
			if err := cmd.Wait(); (err != nil) != tt.fails {
				t.Errorf("got %v, want an error: %v\n%s", err, tt.fails, &said)
			}
			if _, err := os.Stat(filepath.Join(home, ".config", "sallyport")); err == nil {
				t.Errorf("there are settings, want none\n%s", &said)
			}
			if tt.want == nil {
				if got, err := os.ReadFile(file); err != nil || string(got) != cursor {
					t.Errorf("got %q (%v), want %q\n%s", got, err, cursor, &said)
				}
			}
			for path, want := range tt.want {
				if got, err := os.ReadFile(filepath.Join(home, path)); err != nil || !strings.Contains(string(got), want) {
					t.Errorf("%s: got %q (%v), want %q in it\n%s", path, got, err, want, &said)
				}
			}
		})
	}
}
