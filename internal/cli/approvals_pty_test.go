//go:build linux

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// notesServer has a tool that only reads, which notes its calls in a file, and tools
// that are asked about.
const notesServer = `import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "get", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
             + [{"name": name, "inputSchema": {"type": "object"}} for name in ("put", "drop")]}
    else:
        if m["params"]["name"] == "get":
            open(sys.argv[1], "a").write(".")
        r = {"content": []}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`

// callingProgram calls a tool for each line that it reads, "TOOL NAME", and says how
// that ended. With "noise" it also writes all the time.
const callingProgram = `import asyncio, sys, time
from mcp import runtime
async def call(tool, name):
    try:
        await runtime.call_tool("notes", tool, {"name": name})
        print("allowed", tool, name, flush=True)
    except runtime.MCPError as e:
        print("denied", tool, name, e, flush=True)
async def noise():
    while True:
        print("noise", flush=True)
        await runtime.call_tool("notes", "get", {})
async def main():
    loop, tasks = asyncio.get_running_loop(), []
    noisy = asyncio.create_task(noise()) if "noise" in sys.argv else None
    print("begun", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print("read", repr(line), flush=True)
        if line == "end\n":
            break
        if " " in line:
            tasks.append(asyncio.create_task(call(*line.split())))
    await asyncio.gather(*tasks)
    if noisy:
        noisy.cancel()
    print("ended", flush=True)
asyncio.run(main())
`

// newAskingUser is a user whose calls are asked about.
func newAskingUser(t *testing.T) *hubUser {
	t.Helper()
	h := newHubUser(t, "SALLYPORT_POLICY_PROFILE=careful", "SALLYPORT_HUB_IDLE=1m", "TERM=xterm", "NO_COLOR=1")
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	if err := os.Mkdir(filepath.Join(h.home, "MCPs"), 0o700); err != nil {
		t.Fatal(err)
	}
	definition, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"notes": map[string]any{"command": "python3", "args": []string{h.file("notes.py"), h.file("gets")}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"MCPs/mine.json": string(definition), "notes.py": notesServer, "calls.py": callingProgram, "gets": ""} {
		if err := os.WriteFile(h.file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *hubUser) file(name string) string { return filepath.Join(h.home, name) }

// approvals runs a command about questions.
func (h *hubUser) approvals(args ...string) string {
	h.t.Helper()
	cmd := exec.Command(h.bin, append([]string{"approvals"}, args...)...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("approvals %s: %v: %s", args, err, out)
	}
	return string(out)
}

// shows reads until a question about a tool is shown, and returns its ID and
// revision, and what was shown before and with it.
func (s *shellTerminal) shows(tool string) (id, revision, text string) {
	s.t.Helper()
	text = s.until("\n? ")
	found := regexp.MustCompile(`(?m)^([a-z0-9]{4})\.(\d+): notes\.` + tool + `, `).FindStringSubmatch(strings.ReplaceAll(text, "\r", ""))
	if found == nil {
		s.t.Fatalf("got %q, want a question about %s", text, tool)
	}
	return found[1], found[2], text
}

// program is a program that runs without a terminal.
type program struct {
	t   *testing.T
	in  io.WriteCloser
	cmd *exec.Cmd
	out bytes.Buffer
}

func (h *hubUser) program() *program {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	h.t.Cleanup(cancel)
	p := &program{t: h.t, cmd: exec.CommandContext(ctx, h.bin, "run", "--standalone", "--server", "notes", h.file("calls.py"))}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = h.env, &p.out, &p.out
	var err error
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

func (p *program) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) ends(want string) {
	p.t.Helper()
	p.send("end")
	if err := p.cmd.Wait(); err != nil || !strings.Contains(p.out.String(), want) {
		p.t.Errorf("the program wrote %q (%v), want %q in it", p.out.String(), err, want)
	}
}

// exits returns the exit status of a command on a terminal, and what is left to read.
func (s *shellTerminal) exits() (status int, rest string) {
	s.t.Helper()
	if err := s.tty.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	b, err := io.ReadAll(s.tty) // an error: the other end is closed
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Fatalf("it does not end; got %q", s.output.String()+string(b))
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode(), s.output.String() + string(b)
}

// TestWatchOnTerminal: a question that is answered elsewhere makes room for the next,
// which nothing answers that was typed for another one, or for it before it grew.
func TestWatchOnTerminal(t *testing.T) {
	h := newAskingUser(t)
	s := startShell(t, h.env, h.home, h.bin, "approvals", "--watch")
	s.until("No call waits for approval.")
	s.send("a\na\n") // for nothing
	one, two := h.program(), h.program()
	one.send("put x")
	first, _, _ := s.shows("put")
	two.send("drop y")
	for !strings.Contains(h.approvals(), "notes.drop") {
		time.Sleep(time.Millisecond)
	}
	s.send("a")
	h.approvals("approve", first+".1")
	s.until(first + " was answered already: allowed (the calls that waited) by sallyport approvals")
	second, _, _ := s.shows("drop")
	s.send("\n") // not "a": it stays open
	two.send("drop z")
	id, revision, _ := s.shows("drop")
	if id != second || revision != "2" {
		t.Errorf("got question %s.%s, want %s.2", id, revision, second)
	}
	s.send("a")
	two.send("drop w")
	s.until(second + " has grown: it has 3 calls now.")
	if id, revision, _ := s.shows("drop"); id != second || revision != "3" {
		t.Errorf("got question %s.%s, want %s.3", id, revision, second)
	}
	s.send("x\n")
	s.until("x: choose one of these answers.")
	s.send("n none\n")
	s.until("say how many calls")
	s.until("\n? ")
	s.send("d not so\n")
	s.until("3 calls: refused.")
	one.ends("allowed put x")
	two.ends("denied drop z the user did not allow notes.drop: not so")
	s.send("\x04")
	if status, rest := s.exits(); status != 0 || strings.TrimSpace(strings.ReplaceAll(rest, "^D", "")) != "" {
		t.Errorf("at the end of the input: got status %d and %q, want 0 and nothing", status, rest)
	}

	for _, tt := range []struct {
		typed  string
		status int
	}{{"\x03", 130}, {"\x04", 0}} {
		one := h.program()
		s := startShell(t, h.env, h.home, h.bin, "approvals", "--watch")
		one.send("put x")
		id, _, _ := s.shows("put")
		s.send(tt.typed)
		if status, rest := s.exits(); status != tt.status || strings.Contains(rest, "sallyport:") {
			t.Errorf("%q: got status %d and %q, want %d", tt.typed, status, rest, tt.status)
		}
		h.approvals("deny", id+".1")
		one.ends("denied put x")
	}
}

// TestRunAsksOnTerminal: 'sallyport run' asks on its terminal. The program and the
// question take turns: neither gets what is typed for the other, and only the
// question is shown.
func TestRunAsksOnTerminal(t *testing.T) {
	for _, where := range []string{"in a hub", "alone"} {
		t.Run(where, func(t *testing.T) {
			h := newAskingUser(t)
			process := ""
			args := []string{"run", "--server", "notes", "calls.py"}
			if where == "alone" {
				args = []string{"run", "--standalone", "--server", "notes", "calls.py"}
			} else {
				c := h.serve()
				process = fmt.Sprintf(`"process": %d,`, h.hub())
				defer h.leave(c)
			}
			s := startShell(t, h.env, h.home, h.bin, append(args, "noise")...)
			s.until("begun")
			s.send("put x\na\n") // the second line came too early
			first, _, before := s.shows("put")
			if !strings.Contains(before, "noise") {
				t.Errorf("got %q, want output before the question", before)
			}
			if out := h.approvals("list", "--json"); !strings.Contains(out, process) {
				t.Errorf("got %s, want a question of %s", out, process)
			}
			for had := h.gets(); h.gets() < had+3; { // it writes more
				time.Sleep(time.Millisecond)
			}
			s.send("d not so\n")
			if got := s.until("--- The program goes on. ---"); strings.Contains(got, "noise") || !strings.Contains(got, "1 call: refused.") {
				t.Errorf("got %q, want nothing of the program before the answer", got)
			}
			s.until("denied put x the user did not allow notes.put: not so")
			if out := h.approvals(); strings.Contains(out, first) {
				t.Errorf("got %q, want no question", out)
			}

			s.send("drop y\n")
			second, _, _ := s.shows("drop")
			s.send("a")
			h.approvals("approve", second+".1")
			s.until(second + " was answered already: allowed (the calls that waited) by sallyport approvals")
			s.until("allowed drop y")
			s.send("drop z\n")
			third, _, _ := s.shows("drop")
			s.send("\n")
			s.until(third + " is left open: answer in another terminal")
			s.until("--- The program goes on. ---")
			s.send("put w\n")
			s.shows("put")
			s.send("1\nput w\n")
			s.until("1 call: allowed.")
			s.until("allowed put w")
			h.approvals("deny", third+".1")
			s.until("denied drop z")
			s.send("end\n")
			status, rest := s.exits()
			if status != 0 || !strings.Contains(rest, "ended") {
				t.Errorf("got status %d and %q", status, rest)
			}
			for _, typed := range []string{"d not so", "1"} {
				if text := fmt.Sprintf(`read '%s\n'`, typed); strings.Contains(s.all.String(), text) {
					t.Errorf("the program got %q, which was an answer", typed)
				}
			}

			// Ctrl-C ends the program, as ever.
			s = startShell(t, h.env, h.home, h.bin, args...)
			s.until("begun")
			s.send("put x\n")
			s.shows("put")
			s.send("\x03")
			if status, rest := s.exits(); status != 130 {
				t.Errorf("after Ctrl-C got status %d and %q, want 130", status, rest)
			}
		})
	}
}

// gets returns how often the tool was called that only reads.
func (h *hubUser) gets() int {
	h.t.Helper()
	b, err := os.ReadFile(h.file("gets"))
	if err != nil {
		h.t.Fatal(err)
	}
	return len(b)
}
