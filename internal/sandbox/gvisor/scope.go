//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/systemd"
)

// scopes are control groups that a user's systemd makes.
type scopes struct {
	address string // of the user's bus; empty if there is none
	v2      string // where version 2 is mounted
	proc    string // "/proc" except in tests
}

const scopeTimeout = 3 * time.Second

// available reports whether the user's systemd answers and has the memory
// controller delegated to it.
func (s scopes) available(ctx context.Context) bool {
	if s.address == "" || s.v2 == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	group, err := systemd.ControlGroup(ctx, s.address)
	if err != nil {
		return false
	}
	controllers, err := os.ReadFile(filepath.Join(s.v2, group, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory")
}

// create moves the process into a new scope with the given limits. systemd
// removes the scope when its last process has ended.
func (s scopes) create(ctx context.Context, name string, pid int, l sandbox.Limits) (*cgroup, error) {
	if s.address == "" || s.v2 == "" {
		return nil, systemd.ErrNone
	}
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	limits := []systemd.Property{
		systemd.Set("MemoryMax", uint64(l.MemoryBytes)),
		systemd.Set("MemorySwapMax", uint64(0)),
		systemd.Set("TasksMax", uint64(hostThreads(l))),
	}
	if l.CPUs > 0 {
		limits = append(limits, systemd.Set("CPUQuotaPerSecUSec", uint64(l.CPUs*1e6)))
	}
	unit := name + ".scope"
	if err := systemd.Scope(ctx, s.address, unit, "Sallyport sandbox", pid, limits...); err != nil {
		return nil, err
	}
	dir, err := s.waitForScope(ctx, unit, pid)
	if err != nil {
		return nil, err
	}
	got, err := os.ReadFile(filepath.Join(dir, "memory.max"))
	if err != nil {
		return nil, fmt.Errorf("the scope has no memory controller: %w", err)
	}
	if want := fmt.Sprint(l.MemoryBytes); string(bytes.TrimSpace(got)) != want {
		return nil, fmt.Errorf("the scope's memory.max is %s, not %s", bytes.TrimSpace(got), want)
	}
	return &cgroup{v2: dir, foreign: true}, nil
}

// waitForScope waits until systemd has moved the process, and returns the
// scope's directory.
func (s scopes) waitForScope(ctx context.Context, unit string, pid int) (string, error) {
	for {
		b, err := os.ReadFile(filepath.Join(s.proc, strconv.Itoa(pid), "cgroup"))
		if err != nil {
			return "", err
		}
		for _, line := range strings.Split(string(b), "\n") {
			if group, ok := strings.CutPrefix(line, "0::"); ok && filepath.Base(group) == unit {
				return filepath.Join(s.v2, group), nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("systemd did not make the scope in time: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}
