package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// watchMemory calls hit when the kernel has killed a process of the control
// groups for its memory. It returns when ctx is done or the groups are gone. A
// control group is removed with its container, so it must be watched before that;
// and not every engine reports what ended a container.
func watchMemory(ctx context.Context, dirs map[string]string, hit func()) error {
	if dir, ok := dirs[""]; ok {
		return watchEvents(ctx, dir, hit)
	}
	if dir, ok := dirs["memory"]; ok {
		return watchControl(ctx, dir, hit)
	}
	return errors.New("no control group for memory")
}

// watchEvents watches the events file of a cgroup v2 group.
func watchEvents(ctx context.Context, dir string, hit func()) error {
	path := filepath.Join(dir, "memory.events")
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY|unix.IN_DELETE_SELF); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { events.Close() })()
	buffer := make([]byte, 4096)
	for {
		n, err := readKey(dir, "memory.events", "oom_kill")
		if err != nil {
			return nil // the group is gone
		}
		if n > 0 {
			hit()
			return nil
		}
		if _, err := events.Read(buffer); err != nil {
			return nil
		}
	}
}

// watchControl watches a group of cgroup v1: the kernel signals a registered
// descriptor when the group runs out of memory and when it is removed.
func watchControl(ctx context.Context, dir string, hit func()) error {
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	event := os.NewFile(uintptr(fd), "eventfd")
	defer event.Close()
	line := fmt.Sprintf("%d %d", fd, control.Fd())
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(line), 0); err != nil {
		return err
	}
	if n, err := readKey(dir, "memory.oom_control", "oom_kill"); err == nil && n > 0 {
		hit() // before it was watched
		return nil
	}
	defer context.AfterFunc(ctx, func() { event.Close() })()
	if _, err := event.Read(make([]byte, 8)); err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "memory.oom_control")); err == nil {
		hit()
	}
	return nil
}
