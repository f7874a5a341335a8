package fake

import (
	"os"
	"os/exec"
	"syscall"
)

// ownRoot makes a copy of the host's root in which /workspace is the run's, and
// becomes the program there. Its arguments are the run's directory and the
// program's. The mounts go with the last process.
const ownRoot = `
set -e
dir=$1
shift
mkdir "$dir/root"
mount --make-rprivate /
mount -t tmpfs tmpfs "$dir/root"
for entry in /*; do
	if [ "$entry" = /workspace ]; then
		continue
	elif [ -L "$entry" ]; then
		cp -P "$entry" "$dir/root$entry"
	elif [ -d "$entry" ]; then
		mkdir "$dir/root$entry"
		mount --rbind "$entry" "$dir/root$entry"
	fi
done
mkdir "$dir/root/workspace"
mount --bind "$dir/workspace" "$dir/root/workspace"
chroot=$(PATH=/usr/sbin:/sbin:/usr/bin:/bin command -v chroot)
exec "$chroot" "$dir/root" "$@"
`

// inOwnRoot changes cmd to run so, which needs a host that lets the caller make
// namespaces.
func inOwnRoot(cmd *exec.Cmd, dir string) {
	cmd.Args = append([]string{"/bin/sh", "-c", ownRoot, "sh", dir}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}
