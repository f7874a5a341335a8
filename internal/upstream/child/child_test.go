//go:build unix

package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary play a part of a test.
const roleVariable = "CHILD_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "owner" {
		owner()
		return
	}
	goleak.VerifyTestMain(m)
}

// owner starts a stubborn program with a child of its own, says their process
// ids and waits to be killed.
func owner() {
	keeper := NewKeeper(slog.New(slog.DiscardHandler))
	p, err := keeper.Start(shell(stubborn))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	text, err := bufio.NewReader(p.Stdout).ReadString('\n')
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Print(text)
	keeper.os.mu.Lock()
	fmt.Println(len(keeper.os.groups))
	keeper.os.mu.Unlock()
	select {}
}

// stubborn ignores every polite request, and so does its child.
const stubborn = `trap '' TERM HUP INT; sleep 1000 & echo $$ $!; while :; do sleep 1000; done`

func shell(script string) Spec {
	return Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ(), Grace: 200 * time.Millisecond}
}

func start(t *testing.T, spec Spec) *Process {
	t.Helper()
	keeper := NewKeeper(slog.New(slog.DiscardHandler))
	p, err := keeper.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		keeper.Close()
	})
	return p
}

func pids(t *testing.T, r io.Reader) []int {
	t.Helper()
	text, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, f := range strings.Fields(text) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("%q", text)
		}
		out = append(out, n)
	}
	return out
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || !hasProc()
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

func waitDead(t *testing.T, within time.Duration, pids ...int) {
	t.Helper()
	deadline := time.Now().Add(within)
	for _, pid := range pids {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still alive", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// What a program wrote before it ended is there to be read after it has ended.
func TestLastOutputIsRead(t *testing.T) {
	for range 50 {
		p := start(t, shell(`echo usage: server --port N`))
		<-p.Exited()
		text, err := io.ReadAll(p.Stdout)
		if string(text) != "usage: server --port N\n" || err != nil {
			t.Fatalf("%q, %v", text, err)
		}
	}
}

func TestEndOfInputIsEnough(t *testing.T) {
	p := start(t, shell(`cat; echo bye >&2; exit 3`))
	if p.ExitStatus() != "" {
		t.Error("an exit status before the end")
	}
	go func() { _, _ = io.Copy(io.Discard, p.Stdout) }()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.ExitStatus() != "exit status 3" || string(p.Stderr()) != "bye\n" {
		t.Errorf("%s, stderr %q", p.ExitStatus(), p.Stderr())
	}
}

func TestStopEndsTheWholeGroup(t *testing.T) {
	for name, script := range map[string]string{
		"polite child":       `sleep 1000 & echo $$ $!; wait`,
		"stubborn":           stubborn,
		"child left behind":  `trap '' TERM; (trap '' TERM; sleep 1000) & echo $$ $!; cat`,
		"two levels":         `sh -c 'sleep 1000 & echo '$$' $$ $!; wait'`,
		"leader ends itself": `sleep 1000 & echo $$ $!; exit 0`,
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, shell(script))
			group := pids(t, p.Stdout)
			if err := p.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitDead(t, time.Minute, group...)
		})
	}
}

func TestStopInAHurry(t *testing.T) {
	spec := shell(stubborn)
	spec.Grace = time.Minute
	p := start(t, spec)
	group := pids(t, p.Stdout)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= spec.Grace {
		t.Errorf("took %v", took)
	}
	waitDead(t, time.Minute, group...)
	if p.ExitStatus() != "" || p.state.String() != "signal: killed" {
		t.Error(p.ExitStatus(), p.state)
	}
}

func TestStderrFlood(t *testing.T) {
	p := start(t, shell(`i=0; while [ $i -lt 20000 ]; do echo "line $i of a flood on standard error" >&2; i=$((i+1)); done; echo done; cat`))
	if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); line != "done\n" {
		t.Fatal(line, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := p.Stderr()
	if len(kept) > keepStderr || !strings.HasSuffix(string(kept), "line 19999 of a flood on standard error\n") {
		t.Errorf("%d bytes kept, the last %q", len(kept), kept[max(0, len(kept)-40):])
	}
}

// A process outside the group that holds the pipes open delays nobody for long.
func TestAnEscapedProcessHoldsThePipes(t *testing.T) {
	if _, err := Find("setsid", "", []string{"PATH=" + os.Getenv("PATH")}); err != nil {
		t.Skip("needs setsid(1)")
	}
	p := start(t, shell(`setsid sleep 60 & exit 0`))
	began := time.Now()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}

// Killed with SIGKILL, we leave nothing behind.
func TestLifeline(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: a process must have read its list after 50 ms")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"owner", "lifeline, then owner"} {
		t.Run(first, func(t *testing.T) {
			outer := start(t, Spec{Path: exe, Env: append(os.Environ(), roleVariable+"=owner"), Grace: time.Second})
			out := bufio.NewReader(outer.Stdout)
			group := pids(t, out)
			if n := pids(t, out); n[0] != 1 {
				t.Fatalf("%d groups kept", n[0])
			}
			for _, pid := range group {
				if !alive(pid) {
					t.Fatalf("process %d did not live in the first place", pid)
				}
			}
			if first != "owner" {
				old := lifelineOf(t, outer.PID())
				if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for lifelineOf(t, outer.PID()) == old {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(50 * time.Millisecond) // it reads its list
			}
			if err := syscall.Kill(outer.PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			waitDead(t, time.Minute, group...)
		})
	}
}

// lifelineOf finds the lifeline of a process through /proc.
func lifelineOf(t *testing.T, owner int) int {
	t.Helper()
	if !hasProc() {
		t.Skip("needs /proc")
	}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		dirs, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range dirs {
			stat, _ := os.ReadFile(path)
			_, rest, _ := strings.Cut(string(stat), ") ")
			fields := strings.Fields(rest)
			if len(fields) < 2 || fields[1] != strconv.Itoa(owner) || fields[0] == "Z" {
				continue
			}
			dir := filepath.Dir(path)
			if cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline")); strings.HasPrefix(string(cmdline), "mcp-lifeline\x00") {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				return pid
			}
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no lifeline")
	return 0
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("bin/tool", 0o755)
	file("bin/plain", 0o644)
	file("bin/folder/x", 0o644)
	env := []string{"PATH=/nonexistent", "PATH=relative:" + filepath.Join(dir, "empty") + ":" + filepath.Join(dir, "bin")}
	tests := []struct {
		command, dir, want, err string
	}{
		{"tool", "", good, ""},
		{good, "", good, ""},
		{"bin/tool", dir, good, ""},
		{"./tool", filepath.Join(dir, "bin"), good, ""},
		{"plain", "", "", "permission denied"},
		{"folder", "", "", "not found"},
		{filepath.Join(dir, "bin"), "", "", "is a directory"},
		{"npx", "", "", "install Node.js"},
		{"missing", "", "", "(PATH is relative:"},
	}
	for _, test := range tests {
		got, err := Find(test.command, test.dir, env)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("Find(%q, %q) = %q, %v", test.command, test.dir, got, err)
		}
	}
	if _, err := Find("tool", "", nil); err == nil || !strings.Contains(err.Error(), "PATH is empty") {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	keeper := NewKeeper(slog.New(slog.DiscardHandler))
	defer keeper.Close()
	if _, err := keeper.Start(Spec{Path: "/nonexistent/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
