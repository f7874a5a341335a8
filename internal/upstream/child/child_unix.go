//go:build unix

package child

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// processOS is the process group that the program leads.
type processOS struct{ group int }

// ownGroup gives the program a session and thereby a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// signal reaches the whole group; its id is the program's process id, which
// stays taken as long as the group has a member.
func (p *Process) signal(s syscall.Signal) error {
	return syscall.Kill(-p.os.group, s)
}

func (p *Process) terminate() { _ = p.signal(syscall.SIGTERM) }
func (p *Process) kill()      { _ = p.signal(syscall.SIGKILL) }

// endRest ends what the program left behind in its group.
func (p *Process) endRest() {
	if p.signal(syscall.SIGTERM) != nil {
		return // the usual case: there is none
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(p.grace)
	for {
		select {
		case <-tick.C:
			// EPERM: only zombies are left (macOS).
			if err := p.signal(0); errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
				return
			}
			continue
		case <-deadline:
		case <-p.hurry:
		}
		p.kill()
		return
	}
}

// Find returns the program that command names for a process with this
// environment and working directory.
func Find(command, dir string, env []string) (string, error) {
	if strings.ContainsRune(command, filepath.Separator) {
		path := command
		if !filepath.IsAbs(path) && dir != "" {
			path = filepath.Join(dir, path)
		}
		if err := executable(path); err != nil {
			return "", &os.PathError{Op: "start", Path: command, Err: err}
		}
		return filepath.Abs(path)
	}
	search := ""
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			search = value // the last one counts, as it does for the child
		}
	}
	var denied error
	for _, d := range filepath.SplitList(search) {
		if !filepath.IsAbs(d) {
			continue // never from wherever we happen to run
		}
		path := filepath.Join(d, command)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, syscall.EACCES) && denied == nil {
			denied = &os.PathError{Op: "start", Path: path, Err: err}
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &NotFoundError{Command: command, Path: search}
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		var pathErr *os.PathError
		if errors.As(err, &pathErr) {
			return pathErr.Err
		}
		return err
	}
	switch {
	case info.IsDir():
		return syscall.EISDIR
	case info.Mode()&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}
