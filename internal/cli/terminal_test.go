//go:build linux

package cli_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/sallyport/sallyport/internal/table"
)

// onTerminal runs a command on a terminal of this many columns and returns what
// the terminal got.
func onTerminal(t *testing.T, columns uint16, environ []string, args ...string) string {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Skip("no pseudo-terminal: ", err)
	}
	defer master.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(master) // ends with an error when the other end is closed
		read <- string(b)
	}()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, tty, tty
	_ = cmd.Run() // the output says it
	tty.Close()
	return strings.ReplaceAll(<-read, "\r\n", "\n")
}

// writeServers makes a home with definitions.
func writeServers(t *testing.T, servers map[string]any) (environ []string) {
	t.Helper()
	home := t.TempDir()
	b, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, "MCPs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "MCPs", "a.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + home, "TERM=xterm"}
}

// TestColoursAreForTerminals: every way of printing uses colours on a terminal
// that has them, unless the user says otherwise, and nowhere else.
func TestColoursAreForTerminals(t *testing.T) {
	bin := executable(t)
	environ := writeServers(t, map[string]any{"good": map[string]any{"command": "true"}, "broken": map[string]any{"command": 1}, "warns": map[string]any{"command": "true", "unknown": true}})
	const escape = "\x1b["
	for _, tt := range []struct {
		args string
		want string // with colours
	}{
		{"servers", escape + "1mNAME"},
		{"servers show nothing", escape + "31msallyport:" + escape + "0m"},
		{"servers --wrong", escape + "31msallyport:" + escape + "0m"},
		{"memory get x --set stateDir=/proc/x", escape + "31msallyport:" + escape + "0m"},
		{"carbon", ""},
		{"state", ""},
		{"config", ""},
		{"help run", ""},
	} {
		args := append([]string{bin}, strings.Fields(tt.args)...)
		if got := onTerminal(t, 80, environ, args...); !strings.Contains(got, tt.want) || tt.want == "" && strings.Contains(got, escape) {
			t.Errorf("%s: the terminal got %q, want %q in it", tt.args, got, tt.want)
		}
		for _, no := range []string{"NO_COLOR=1", "TERM=dumb", "CLICOLOR=0"} {
			if got := onTerminal(t, 80, append(slices.Clone(environ), no), args...); strings.Contains(got, escape) || got == "" {
				t.Errorf("%s %s: the terminal got %q, want no colours", no, tt.args, got)
			}
		}
		for force, want := range map[string]string{"TERM=xterm": "", "FORCE_COLOR=1": tt.want} {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(slices.Clone(environ), force)
			out, _ := cmd.CombinedOutput() // some fail
			if got := string(out); !strings.Contains(got, want) || want == "" && strings.Contains(got, escape) || got == "" {
				t.Errorf("%s %s: the pipe got %q, want %q in it", force, tt.args, got, want)
			}
		}
	}
}

// TestTablesFitTheTerminal: lines are as wide as the terminal at most, with all
// their words; a pipe gets one line for each row.
func TestTablesFitTheTerminal(t *testing.T) {
	bin := executable(t)
	environ := append(writeServers(t, map[string]any{
		"filesystem": map[string]any{"command": "npx", "args": []string{"-y", "@modelcontextprotocol/server-filesystem", "/home/someone/documents", "/home/someone/notes"}},
		"broken":     map[string]any{"command": "", "url": ""},
		"日本語":        map[string]any{"url": "https://example.com/mcp/with/a/long/path/that/goes/on/and/on"},
	}), "NO_COLOR=1")
	cmd := exec.Command(bin, "servers")
	cmd.Env = environ
	piped, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(piped)), "\n")
	if len(lines) != 4 || !strings.Contains(string(piped), "/home/someone/documents /home/someone/notes") {
		t.Fatalf("the pipe got %q, want a head and three whole rows", piped)
	}
	for _, columns := range []uint16{60, 80, 100} {
		got := onTerminal(t, columns, environ, bin, "servers")
		for line := range strings.Lines(got) {
			if n := table.Columns(strings.TrimSuffix(line, "\n")); n > int(columns) {
				t.Errorf("%d columns: %q has %d", columns, line, n)
			}
		}
		squeezed := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if len(squeezed(got)) != len(squeezed(string(piped))) {
			t.Errorf("%d columns: got %q, want all of %q", columns, got, piped)
		}
	}
}

// TestSlowStartIsShown: on a terminal, a server that npx has to download is named
// while it starts; a command that prints JSON says nothing.
func TestSlowStartIsShown(t *testing.T) {
	bin := executable(t)
	environ := writeServers(t, map[string]any{"slow": map[string]any{"command": "npx", "args": []string{"slow-server"}}})
	home := strings.TrimPrefix(environ[0], "HOME=")
	fifo := filepath.Join(home, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// It waits once, until the test opens the other end.
	if err := os.WriteFile(filepath.Join(home, "npx"), []byte("#!/bin/sh\n[ -e "+home+"/once ] || read x <"+fifo+"\n: >"+home+"/once\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	environ = append(environ, "PATH="+home+":"+os.Getenv("PATH"))
	s := startShell(t, environ, home, bin, "servers", "test", "slow")
	s.until("sallyport: starting slow with npx, which downloads it the first time")
	if err := os.WriteFile(fifo, []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	s.until("exit status 1")

	cmd := exec.Command(bin, "servers", "test", "slow", "--json")
	cmd.Env = environ
	out, _ := cmd.CombinedOutput() // the server ends
	if got := string(out); strings.Contains(got, "starting slow") || !strings.Contains(got, "exit status 1") {
		t.Errorf("with --json got %q, want the failure and no progress", got)
	}
}
