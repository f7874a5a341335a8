package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// podmanRun measures a plain `podman run` of the same Python, from its start to
// its end, confined as a sandbox is. Its root is the host's /usr, so that there
// is no image to pull. The text says why there is no figure.
func (b *bench) podmanRun() (sample, string) {
	podman, err := exec.LookPath("podman")
	if err != nil {
		return nil, "podman is not installed"
	}
	if !strings.HasPrefix(b.python, "/usr/") {
		return nil, "podman: " + b.python + " is not in /usr"
	}
	dir := filepath.Join(b.launch.dir, "podman")
	root := filepath.Join(dir, "rootfs")
	for _, name := range []string{"usr", "proc", "dev", "sys", "tmp", "etc", "run", "var"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, name), 0o755))
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		err = errors.Join(err, os.Symlink("usr/"+name, filepath.Join(root, name)))
	}
	if c := b.launch.cred; c != nil && err == nil {
		err = filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
			return errors.Join(err, os.Lchown(path, int(c.Uid), int(c.Gid)))
		})
	}
	if err != nil {
		return nil, "podman: " + err.Error()
	}
	args := []string{"--root", filepath.Join(dir, "storage"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs"}
	if runc, err := exec.LookPath("runc"); err == nil {
		args = append(args, "--runtime", runc)
	}
	args = append(args, "run", "--rm", "--log-driver", "none", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--memory", "512m", "--pids-limit", "128", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=512:512",
		"-v", "/usr:/usr:ro", "--rootfs", root, b.python, "-S", "-c", "print(1+1)")
	s, err := repeat(1, b.few(), func() error {
		out, err := b.launch.command(podman, args...).Output()
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			return fmt.Errorf("%w: %.200s", err, strings.TrimSpace(string(e.Stderr)))
		}
		if err == nil && strings.TrimSpace(string(out)) != "2" {
			err = fmt.Errorf("it printed %.100q", out)
		}
		return err
	})
	if err != nil {
		return nil, "podman run: " + err.Error()
	}
	return s, ""
}

// startFloor is what a new session is held against.
func (f floors) startFloor() string {
	text := "python3 -S -c pass " + show(f.python.p50())
	if f.podman == nil {
		return text + "; " + f.noPodman
	}
	return text + "; podman run of it " + show(f.podman.p50())
}
