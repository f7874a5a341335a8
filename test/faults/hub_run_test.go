//go:build linux

package faults

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHubKillRun kills the hub while it runs the program of `sallyport run`: the
// command says what is lost and fails, and the program does not run again.
func TestHubKillRun(t *testing.T) {
	h, _ := newHubHost(t, 1)
	first := h.must(t)
	hub := h.hub(t)
	code := `x = 1
await mcp_note.append(token="run")
open("left", "w").write("partial")
print("up", flush=True)
import time
time.sleep(300)`
	out := filepath.Join(h.place, "out")
	args := func(more ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), h.host.Executable, append([]string{"run", "--session", "work", "--out", out}, more...)...)
		cmd.Env, cmd.Dir = h.env, h.home
		return cmd
	}
	cmd := args("--server", "note", "-c", code)
	var said bytes.Buffer
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "up\n" {
		t.Fatalf("got %q, %v: %s", line, err, &said)
	}
	if err := syscall.Kill(hub, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if len(rest) > 0 || err != nil {
		t.Errorf("got more output: %q, %v", rest, err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 125 {
		t.Errorf("got %v, want exit status 125", err)
	}
	for _, want := range []string{"sallyport: Sallyport's hub (process ", "ended while the program ran, and its result is lost", "Session work goes on from where it was last saved"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("got %q, want %q in it", &said, want)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files of a lost result: %v", err)
	}
	if noted, err := os.ReadFile(h.noted); string(noted) != "run\n" {
		t.Errorf("got the notes %q, %v, want one", noted, err)
	}
	// The session begins anew: for the next program, and for a client, whose new hub
	// removes what the old one left.
	next, err := args("-c", `"x" in globals()`).CombinedOutput()
	if err != nil || !strings.Contains(string(next), "False\n") {
		t.Errorf("the next program: %v: %s", err, next)
	}
	if a := wait(first.runIn("work", `"x" in globals()`), hubPatience); a.err != nil || !strings.Contains(a.text(), "False") {
		t.Errorf("the client: %v", a)
	}
	if err := h.hangUp(first); err != nil {
		t.Error(err)
	}
	h.end(t)
}
