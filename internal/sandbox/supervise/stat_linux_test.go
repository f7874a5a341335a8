package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadProcessStat(t *testing.T) {
	own, err := ReadProcessStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if own.Parent != os.Getppid() {
		t.Errorf("parent: got %d, want %d", own.Parent, os.Getppid())
	}
	if own.Resident < 1<<20 || own.Resident > 1<<32 {
		t.Errorf("resident: got %d bytes, want megabytes", own.Resident)
	}

	// A child whose name tries to be read as fields, stopped after some work.
	child := exec.Command("/usr/bin/python3", "-c", `
import os, signal
open("/proc/self/comm", "w").write(") Z 1 1")
while sum(os.times()[:2]) < 0.1:
    pass
os.kill(os.getpid(), signal.SIGSTOP)
`)
	if err := child.Start(); err != nil {
		t.Skip(err)
	}
	pid := child.Process.Pid
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("waiting until the child stops: got %v, %v", status, err)
	}
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if !strings.Contains(string(comm), ")") {
		t.Errorf("the child's name: got %q, want one with a parenthesis", comm)
	}
	got, err := ReadProcessStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != 'T' || got.Parent != os.Getpid() || got.CPU < 10*clockTick {
		t.Errorf("got %+v, want state T, parent %d and at least %v of CPU time", got, os.Getpid(), 10*clockTick)
	}
	if _, err := ReadProcessStat(1 << 30); err == nil {
		t.Error("a process that does not exist: got no error")
	}
}
