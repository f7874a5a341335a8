//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
	"github.com/sallyport/sallyport/internal/systemd"
)

// userSystemd stands in for a user's service manager, which needs a machine
// that systemd started: it takes the real call over a real bus, and writes
// into folders what the kernel would show.
type userSystemd struct {
	dir      string // holds cgroup and proc
	noMemory bool
	unit     string
	props    map[string]any
}

func (s *userSystemd) StartTransientUnit(name, mode string, props []systemd.Property, _ []systemd.Auxiliary) (dbus.ObjectPath, *dbus.Error) {
	s.unit, s.props = name, map[string]any{}
	for _, p := range props {
		s.props[p.Name] = p.Value.Value()
	}
	group := "/user.slice/user@1000.service/app.slice/" + name
	dir := filepath.Join(s.dir, "cgroup", group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", dbus.MakeFailedError(err)
	}
	if !s.noMemory {
		if err := os.WriteFile(filepath.Join(dir, "memory.max"), fmt.Appendln(nil, s.props["MemoryMax"]), 0o644); err != nil {
			return "", dbus.MakeFailedError(err)
		}
	}
	for _, pid := range s.props["PIDs"].([]uint32) {
		proc := filepath.Join(s.dir, "proc", fmt.Sprint(pid))
		if err := os.MkdirAll(proc, 0o755); err != nil {
			return "", dbus.MakeFailedError(err)
		}
		if err := os.WriteFile(filepath.Join(proc, "cgroup"), []byte("0::"+group+"\n"), 0o644); err != nil {
			return "", dbus.MakeFailedError(err)
		}
	}
	return "/org/freedesktop/systemd1/job/1", nil
}

func (s *userSystemd) serve(t *testing.T, address string) scopes {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.Export(s, systemd.Path, systemd.Manager); err != nil {
		t.Fatal(err)
	}
	_, err = prop.Export(conn, systemd.Path, prop.Map{systemd.Manager: {
		"ControlGroup": {Value: "/user.slice/user@1000.service"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(systemd.Name, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	manager := filepath.Join(s.dir, "cgroup/user.slice/user@1000.service")
	if err := os.MkdirAll(manager, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(manager, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return scopes{address: address, v2: filepath.Join(s.dir, "cgroup"), proc: filepath.Join(s.dir, "proc")}
}

func TestScope(t *testing.T) {
	manager := &userSystemd{dir: t.TempDir()}
	s := manager.serve(t, sandboxtest.Bus(t))
	ctx := context.Background()
	if !s.available(ctx) {
		t.Fatal("not available")
	}
	limits := sandbox.Limits{MemoryBytes: 512 << 20, Processes: 128, CPUs: 1.5}
	g, err := s.create(ctx, "sallyport-a", 4242, limits)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(g.v2) != "sallyport-a.scope" {
		t.Errorf("group %s", g.v2)
	}
	want := map[string]any{
		"MemoryMax":          uint64(512 << 20),
		"MemorySwapMax":      uint64(0),
		"TasksMax":           uint64(hostThreads(limits)),
		"CPUQuotaPerSecUSec": uint64(1_500_000),
		"CollectMode":        "inactive-or-failed",
	}
	for k, v := range want {
		if manager.props[k] != v {
			t.Errorf("%s is %v, want %v", k, manager.props[k], v)
		}
	}
	if err := g.remove(); err != nil || !exists(g.v2) {
		t.Errorf("a scope is systemd's to remove: %v", err)
	}
}

// A scope whose memory nobody limits must not pass for a hard limit.
func TestScopeWithoutMemoryController(t *testing.T) {
	manager := &userSystemd{dir: t.TempDir(), noMemory: true}
	s := manager.serve(t, sandboxtest.Bus(t))
	if g, err := s.create(context.Background(), "sallyport-a", 4242, sandbox.DefaultLimits); err == nil {
		t.Errorf("accepted: %+v", g)
	}
}

func TestNoBus(t *testing.T) {
	for _, s := range []scopes{{}, {address: "unix:path=" + filepath.Join(t.TempDir(), "none"), v2: "/sys/fs/cgroup"}} {
		if s.available(context.Background()) {
			t.Errorf("%+v is available", s)
		}
		if _, err := s.create(context.Background(), "sallyport-a", 1, sandbox.DefaultLimits); err == nil {
			t.Errorf("%+v made a scope", s)
		}
	}
}
