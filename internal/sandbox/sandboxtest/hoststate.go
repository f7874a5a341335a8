//go:build linux

package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A HostState recognizes what an engine has on the host.
type HostState struct {
	// Executable is a copy of the engine's program that nothing else runs:
	// every process that runs it belongs to the engine.
	Executable string
	// Dirs are the engine's directories whose contents must not outlive its
	// runs. The directories themselves may stay, empty.
	Dirs []string
	// Mark is part of the names of the engine's cgroups.
	Mark string
}

// A Process is a process of the host.
type Process struct {
	PID, Parent int
	Name        string // argv[0], without its directory
}

func (p Process) String() string { return fmt.Sprintf("process %d, %s", p.PID, p.Name) }

// Processes lists the processes that run the executable, zombies excepted.
func (h *HostState) Processes() []Process {
	want, err := os.Stat(h.Executable)
	if err != nil {
		return nil
	}
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []Process
	for _, dir := range names {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, err := os.Stat(dir + "/exe") // a zombie has none
		if err != nil || !os.SameFile(exe, want) {
			continue
		}
		found = append(found, Process{PID: pid, Parent: parentOf(pid), Name: programName(pid)})
	}
	return found
}

func parentOf(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(f[1]))
	return ppid
}

func programName(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := bytes.Cut(b, []byte{0})
	return filepath.Base(string(name))
}

// Left lists everything that the engine has on the host now: processes, mounts,
// cgroups, files.
func (h *HostState) Left() []string {
	var left []string
	for _, p := range h.Processes() {
		left = append(left, p.String())
	}
	for line := range strings.Lines(readString("/proc/self/mountinfo")) {
		for _, dir := range h.Dirs {
			if strings.Contains(line, dir) {
				left = append(left, "mount "+strings.TrimSpace(line))
			}
		}
	}
	if h.Mark != "" {
		_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.Contains(d.Name(), h.Mark) {
				left = append(left, "cgroup "+path)
			}
			return nil
		})
	}
	for _, dir := range h.Dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			left = append(left, "file "+filepath.Join(dir, e.Name()))
		}
	}
	return left
}

// Copy copies an executable to a place where nothing is yet, so that every process
// which runs the copy belongs to one test. It returns the place.
func Copy(t testing.TB, from, to string) string {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	return to
}
