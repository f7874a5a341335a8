package child

import (
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// keeperOS needs no lifeline: a job object ends with its last handle.
type keeperOS struct{ log *slog.Logger }

func (k *keeperOS) init(log *slog.Logger) { k.log = log }
func (k *keeperOS) close()                {}

// processOS is the job object that holds the program and what it starts.
type processOS struct {
	mu  sync.Mutex
	job windows.Handle // 0: none
}

func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW,
	}
}

// started puts the program into a job that is killed when its handle closes,
// ours included. What the program starts in the microseconds before that is
// not in the job.
func (k *keeperOS) started(p *Process) {
	if err := p.os.capture(uint32(p.PID())); err != nil {
		k.log.Warn("a server's processes cannot be held together", "err", err)
	}
}

func (k *keeperOS) ended(p *Process) {
	p.os.mu.Lock()
	defer p.os.mu.Unlock()
	if p.os.job != 0 {
		_ = windows.CloseHandle(p.os.job)
		p.os.job = 0
	}
}

func (o *processOS) capture(pid uint32) error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("create job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return errors.Join(err, windows.CloseHandle(job))
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err == nil {
		err = windows.AssignProcessToJobObject(job, process)
	}
	_ = windows.CloseHandle(process)
	if err != nil {
		return errors.Join(err, windows.CloseHandle(job))
	}
	o.mu.Lock()
	o.job = job
	o.mu.Unlock()
	return nil
}

// terminate has no gentle form that reaches a process without a console
// window; closing its input was the gentle step.
func (p *Process) terminate() { p.kill() }

func (p *Process) kill() {
	p.os.mu.Lock()
	defer p.os.mu.Unlock()
	if p.os.job != 0 {
		_ = windows.TerminateJobObject(p.os.job, 1)
		return
	}
	_ = p.cmd.Process.Kill()
}

// endRest is done by closing the job.
func (p *Process) endRest() {}

// Find returns the program that command names, by the rules of Windows
// (PATHEXT) and with the search path of this process.
func Find(command, dir string, _ []string) (string, error) {
	name := command
	if strings.ContainsAny(name, `\/`) && !filepath.IsAbs(name) && dir != "" {
		name = filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", &NotFoundError{Command: command}
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
