//go:build unix

package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMachine: a virtual machine is started only where that is allowed, and
// one that was started here is stopped, unless others use it. It is never made
// or changed.
func TestMachine(t *testing.T) {
	const stopped = `[{"Name":"m","Default":true,"Running":false}]`
	for _, tt := range []struct {
		name     string
		goos     string
		machines string
		allowed  bool
		others   string
		started  bool
		stops    bool
	}{
		{"not allowed", "darwin", stopped, false, "", false, false},
		{"stopped", "darwin", stopped, true, "", true, true},
		{"stopped, Windows", "windows", stopped, true, "", true, true},
		{"others use it", "darwin", stopped, true, "f00\n", true, false},
		{"it runs", "darwin", strings.Replace(stopped, "false", "true", 1), true, "", false, false},
		{"none", "darwin", `[]`, true, "", false, false},
		{"Linux needs none", "linux", stopped, true, "", false, false},
		{"a service is named", "darwin", stopped, true, "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			if tt.name == "a service is named" {
				f.opts.Environ = append(f.opts.Environ, "CONTAINER_HOST=ssh://core@elsewhere/run/podman/podman.sock")
			}
			f.opts.StartMachine, f.opts.IdleTimeout = tt.allowed, time.Millisecond
			f.put(t, "machines", tt.machines)
			f.put(t, "others", tt.others)
			b := f.backend(t)
			b.machine.goos = tt.goos
			log := func() string {
				text, err := os.ReadFile(filepath.Join(f.dir, "log"))
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				return string(text)
			}
			run, conn := f.open(t, b, "one")
			if got := strings.Contains(log(), "machine start"); got != tt.started {
				t.Errorf("started: %v\n%s", got, log())
			}
			if strings.Contains(log(), "machine stop") {
				t.Error("it was stopped under a sandbox")
			}
			_ = conn.Close()
			if err := run.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if got := strings.Contains(log(), "machine stop"); got != tt.stops {
				t.Errorf("stopped: %v\n%s", got, log())
			}
			for _, never := range []string{"machine init", "machine set", "machine rm"} {
				if strings.Contains(log(), never) {
					t.Errorf("%s\n%s", never, log())
				}
			}
		})
	}
}

// TestMachineIdles: it is stopped by itself when it was idle for long.
func TestMachineIdles(t *testing.T) {
	f := newFake(t)
	f.opts.StartMachine, f.opts.IdleTimeout = true, 50*time.Millisecond
	f.put(t, "machines", `[{"Name":"m","Default":true,"Running":false}]`)
	b := f.backend(t)
	b.machine.goos = "darwin"
	run, conn := f.open(t, b, "one")
	_ = conn.Close()
	if err := run.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(f.dir, "log"))
		if strings.Contains(string(text), "machine stop") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it was not stopped:\n%s", text)
		}
	}
}
