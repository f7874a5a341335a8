//go:build linux

package boxes

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machinesEnv is a directory that has one for each architecture, with what a virtual
// machine needs: kernel, init (this test binary), the tests of package host as host.test,
// and sallyport where it is to run, for which an emulated machine needs minutes.
const machinesEnv = "SALLYPORT_TEST_MACHINES"

// TestMachines runs the tests of what confines sessions, and the README's main job, on
// Debian's kernels, which have an older Landlock, and arm64's other numbers of system
// calls.
func TestMachines(t *testing.T) {
	dir := os.Getenv(machinesEnv)
	if dir == "" {
		t.Skip(machinesEnv + " is not set: test/boxes/run sets it")
	}
	for arch, command := range map[string][]string{
		"amd64": {"qemu-system-x86_64", "-append", "console=ttyS0 quiet panic=-1"},
		"arm64": {"qemu-system-aarch64", "-machine", "virt", "-append", "console=ttyAMA0 quiet panic=-1"},
	} {
		t.Run(arch, func(t *testing.T) {
			files := filepath.Join(dir, arch)
			if _, err := os.Stat(files); err != nil {
				t.Skip("test/boxes/run has made nothing for it")
			}
			memory := filepath.Join(t.TempDir(), "initramfs")
			archive(t, memory, files)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // an emulated machine is slow
			defer cancel()
			// Without KVM, which is not the same everywhere.
			command = append(command, "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "2048", "-nodefaults", "-no-reboot",
				"-nographic", "-serial", "stdio", "-kernel", filepath.Join(files, "kernel"), "-initrd", memory)
			out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
			text := strings.ReplaceAll(string(out), "\r", "")
			if err != nil {
				t.Fatalf("got %v, want that the machine ends; it said:\n%s", err, text)
			}
			wanted := []string{`(?m)^--- PASS: TestConfinement `, `(?m)^--- PASS: TestLandlock `, `(?m)^exit of /host\.test: <nil>$`}
			if _, err := os.Stat(filepath.Join(files, "sallyport")); err == nil {
				wanted = append(wanted, `(?m)^in a sandbox: 3\.13`, `(?m)^exit of /sallyport: <nil>$`)
			}
			for _, want := range wanted {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("the machine did not say %s", want)
				}
			}
			if strings.Contains(text, "--- SKIP") {
				t.Error("the machine skipped a test, want that it runs all")
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// archive writes the first file system of a machine: what the directory has, and what a
// kernel needs before its first process runs (cpio's format newc).
func archive(t *testing.T, path, dir string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	put := func(name string, mode, major, minor int, data string) {
		n++
		head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
			n, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
		pad := func(n int) string { return "\x00\x00\x00"[:-n&3] }
		if _, err := io.WriteString(f, head+pad(len(head))+data+pad(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "dev", "proc", "root", "run", "tmp"} {
		put(name, syscall.S_IFDIR|0o755, 0, 0, "")
	}
	put("dev/console", syscall.S_IFCHR|0o600, 5, 1, "")
	put("bin/sh", syscall.S_IFLNK|0o777, 0, 0, "/init")
	put("bin/sleep", syscall.S_IFLNK|0o777, 0, 0, "/init")
	put("config.yaml", syscall.S_IFREG|0o644, 0, 0, "engine: wasm\n") // gVisor could run, too
	for _, name := range []string{"init", "sallyport", "host.test"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if name == "sallyport" && os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		put(name, syscall.S_IFREG|0o755, 0, 0, string(data))
	}
	put("TRAILER!!!", 0, 0, 0, "")
}

// play makes the test binary the first process of a machine, or one of the two programs
// there that the tests of package host use.
func play() {
	switch {
	case os.Args[0] == "/bin/sleep":
		time.Sleep(time.Hour)
	case os.Args[0] == "sh":
		fmt.Println("worked")
	case os.Getpid() == 1 && os.Args[0] == "/init":
		for _, kind := range []string{"devtmpfs=/dev", "proc=/proc", "tmpfs=/tmp", "tmpfs=/run", "tmpfs=/root"} {
			name, at, _ := strings.Cut(kind, "=")
			if err := unix.Mount(name, at, name, 0, ""); err != nil {
				fmt.Println(at, err)
			}
		}
		for _, c := range [][]string{
			{"/sallyport", "run", "-c", `import sys; print("in a sandbox:", sys.version)`},
			{"/host.test", "-test.v", "-test.run=^(TestConfinement|TestLandlock|TestInherited)$"},
		} {
			if _, err := os.Stat(c[0]); err != nil {
				continue
			}
			cmd := exec.Command(c[0], c[1:]...)
			cmd.Env = []string{"HOME=/root", "TMPDIR=/tmp", "SALLYPORT_CONFIG=/config.yaml"}
			out, err := cmd.CombinedOutput() // no terminal, which would show progress
			fmt.Printf("%s\nexit of %s: %v\n", out, c[0], err)
		}
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	default:
		return
	}
	os.Exit(0)
}
