//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExplain(t *testing.T) {
	masks := []string{"/proc/bus", "/proc/fs", "/proc/irq"}
	const (
		sec      = "--security-opt seccomp=unconfined"
		apparmor = "--security-opt apparmor=unconfined"
		dockerFS = "--security-opt systempaths=unconfined"
		podmanFS = "--security-opt unmask=ALL"
	)
	for _, tt := range []struct {
		name      string
		host      host
		said      string
		title     string
		remedy    []string
		notRemedy []string
	}{
		{"docker, root", host{container: "docker", root: true, setfcap: true, filtered: true, masked: masks, bare: unix.EPERM}, "starting", "container",
			[]string{"`docker run`: " + sec + " " + dockerFS + " (safer with --user", ", or --cap-add SYS_ADMIN " + sec}, []string{"podman", "SETFCAP", "apparmor"}},
		{"docker, root, AppArmor", host{container: "docker", root: true, setfcap: true, filtered: true, apparmor: "docker-default (enforce)", masked: masks, bare: unix.EPERM}, "starting", "container",
			[]string{sec + " " + apparmor + " " + dockerFS, "--cap-add SYS_ADMIN " + sec + " " + apparmor}, nil},
		{"docker, root without capabilities", host{container: "docker", root: true, filtered: true, masked: masks, bare: unix.EPERM}, "starting", "container",
			[]string{sec + " --cap-add SETFCAP " + dockerFS}, nil},
		{"docker, user", host{container: "docker", filtered: true, masked: masks, bare: unix.EPERM}, "starting", "container",
			[]string{"`docker run`: " + sec + " " + dockerFS}, []string{"podman", "--cap-add", "--user"}},
		{"docker with SYS_ADMIN", host{container: "docker", root: true, admin: true, setfcap: true, filtered: true, masked: masks}, "pivot_root failed", "container",
			[]string{"`docker run`: " + sec}, []string{dockerFS, "--cap-add"}},
		{"docker without a filter", host{container: "docker", masked: masks}, "mounting /proc", "container",
			[]string{"`docker run`: " + dockerFS}, []string{sec}},
		{"podman without capabilities", host{container: "podman", filtered: true, masked: masks}, "mounting /proc", "container",
			[]string{"`podman run`: " + sec + " " + podmanFS}, nil},
		{"podman, root", host{sysChroot: true, container: "podman", root: true, setfcap: true, filtered: true, masked: masks}, "mounting /proc", "container",
			[]string{"`podman run`: " + podmanFS, ", or --cap-add SYS_ADMIN"}, []string{"docker", sec}},
		{"podman, user", host{sysChroot: true, container: "podman", filtered: true, masked: masks}, "mounting /proc", "container",
			[]string{"`podman run`: " + podmanFS}, []string{"docker", sec, "--cap-add"}},
		{"another container", host{filtered: true, masked: masks, bare: unix.EPERM}, "starting", "container",
			[]string{"`docker run`: " + sec + " " + dockerFS, "`podman run`: " + sec + " " + podmanFS}, nil},
		{"a filter alone", host{filtered: true}, "unable to attach", "container", []string{sec}, []string{dockerFS, podmanFS}},
		{"chroot", host{root: true, admin: true, setfcap: true, chroot: true, bare: unix.EPERM}, "making mounts private", "chroot", []string{"podman run --rootfs"}, []string{"--security-opt"}},
		{"chroot at a mount point", host{bare: unix.EPERM}, "starting", "chroot", []string{"podman run --rootfs"}, nil},
		{"no user namespaces left", host{bare: unix.ENOSPC, settings: map[string]string{maxUserNamespaces: "0"}}, "no space left", "switched off", []string{"user.max_user_namespaces=15000"}, []string{"container"}},
		{"no user namespaces left, in a container", host{filtered: true, bare: unix.ENOSPC, settings: map[string]string{maxUserNamespaces: "0"}}, "no space left", "switched off", []string{"user.max_user_namespaces=15000, on the container's host"}, nil},
		{"many user namespaces", host{bare: unix.ENOSPC, settings: map[string]string{maxUserNamespaces: "100"}}, "no space left", "no more", []string{"user.max_user_namespaces"}, nil},
		{"Debian's setting", host{bare: unix.EPERM, settings: map[string]string{usernsClone: "0"}}, "starting", "ordinary users", []string{"unprivileged_userns_clone=1"}, nil},
		{"Ubuntu's setting", host{settings: map[string]string{apparmorUserns: "1"}}, "making mounts private", "AppArmor", []string{"apparmor_restrict_unprivileged_userns=0"}, nil},
		{"no such kernel feature", host{bare: unix.EINVAL}, "starting", "no user namespaces", []string{"CAP_SYS_ADMIN"}, nil},
		{"root without capabilities", host{root: true, mapped: unix.EPERM}, "starting", "CAP_SETFCAP", []string{"ordinary user"}, []string{"docker"}},
		{"a limit", host{limits: []string{"RLIMIT_AS is 1 (ulimit -v)"}}, "panic", "limit", []string{"ulimit"}, nil},
		{"built with cgo", host{dynamic: true, settings: map[string]string{maxUserNamespaces: "0"}, bare: unix.ENOSPC}, "EOF", "static", []string{"CGO_ENABLED=0"}, []string{"sysctl"}},
		{"unknown", host{}, "something", "no sandbox starts here", []string{"SALLYPORT_DEBUG_GVISOR"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.host.explain([]attempt{{usernsWay, errors.New(tt.said)}})
			if !strings.Contains(f.Title, tt.title) {
				t.Errorf("title %q, want one with %q", f.Title, tt.title)
			}
			if !strings.Contains(f.Detail, tt.said) {
				t.Errorf("detail %q, want one with %q", f.Detail, tt.said)
			}
			for _, want := range tt.remedy {
				if !strings.Contains(f.Remedy, want) {
					t.Errorf("remedy %q, want one with %q", f.Remedy, want)
				}
			}
			for _, not := range tt.notRemedy {
				if strings.Contains(f.Remedy, not) {
					t.Errorf("remedy %q, want none with %q", f.Remedy, not)
				}
			}
		})
	}
}

func TestExitProgram(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(exitProgram()))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Progs) != 1 || f.Progs[0].Flags != elf.PF_R|elf.PF_X || f.Entry <= f.Progs[0].Vaddr || f.Entry >= f.Progs[0].Vaddr+f.Progs[0].Filesz {
		t.Errorf("got %+v, entry %#x: want one segment that can be read and executed, and an entry in it", f.Progs, f.Entry)
	}
}

func TestDynamic(t *testing.T) {
	const shell = "/bin/sh" // linked dynamically on Debian
	if _, err := os.Stat(shell); err != nil {
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, exitProgram(), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{shell: true, program: false, "/none": false} {
		if got := dynamic(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}
