//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// scopes asks a user's systemd for control groups: an ordinary user may not make
// one, but a part of the hierarchy is delegated to the user's service manager.
// Protocol: org.freedesktop.systemd1(5), StartTransientUnit.
type scopes struct {
	address string // of the user's bus; empty if there is none
	v2      string // where version 2 is mounted
	proc    string // "/proc" except in tests
}

const (
	systemdName    = "org.freedesktop.systemd1"
	systemdPath    = "/org/freedesktop/systemd1"
	systemdManager = "org.freedesktop.systemd1.Manager"
	scopeTimeout   = 3 * time.Second
)

// available reports whether the user's systemd answers and has the memory
// controller delegated to it.
func (s scopes) available(ctx context.Context) bool {
	if s.address == "" || s.v2 == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	conn, err := dbus.Connect(s.address, dbus.WithContext(ctx))
	if err != nil {
		return false
	}
	defer conn.Close()
	v, err := conn.Object(systemdName, systemdPath).GetProperty(systemdManager + ".ControlGroup")
	if err != nil {
		return false
	}
	group, ok := v.Value().(string)
	if !ok {
		return false
	}
	controllers, err := os.ReadFile(filepath.Join(s.v2, group, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory")
}

type property struct {
	Name  string
	Value dbus.Variant
}

type auxiliary struct {
	Name       string
	Properties []property
}

// create moves the process into a new scope with the given limits. systemd
// removes the scope when its last process has ended.
func (s scopes) create(ctx context.Context, name string, pid int, l sandbox.Limits) (*cgroup, error) {
	if s.address == "" || s.v2 == "" {
		return nil, errors.New("this user has no systemd here")
	}
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	conn, err := dbus.Connect(s.address, dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	props := []property{
		{"Description", dbus.MakeVariant("Sallyport sandbox")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"MemoryMax", dbus.MakeVariant(uint64(l.MemoryBytes))},
		{"MemorySwapMax", dbus.MakeVariant(uint64(0))},
		{"TasksMax", dbus.MakeVariant(uint64(hostThreads(l)))},
	}
	if l.CPUs > 0 {
		props = append(props, property{"CPUQuotaPerSecUSec", dbus.MakeVariant(uint64(l.CPUs * 1e6))})
	}
	unit := name + ".scope"
	var job dbus.ObjectPath
	err = conn.Object(systemdName, systemdPath).
		CallWithContext(ctx, systemdManager+".StartTransientUnit", 0, unit, "fail", props, []auxiliary{}).
		Store(&job)
	if err != nil {
		return nil, fmt.Errorf("systemd: %w", err)
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
