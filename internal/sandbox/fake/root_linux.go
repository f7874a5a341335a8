package fake

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// ownRoot makes a copy of the host's root in which /workspace is the run's and the
// folders are at their places, and becomes the program there. Its arguments are the
// run's directory, the entries of / that folders lie in, the number of folders, source,
// place and mode of each, and the program's. The mounts go with the last process.
const ownRoot = `
set -e
dir=$1 places=$2 folders=$3
shift 3
mkdir "$dir/root"
mount --make-rprivate /
mount -t tmpfs tmpfs "$dir/root"
for entry in /*; do
	if [ "$entry" = /workspace ]; then
		continue
	fi
	case " $places " in *" $entry "*) continue ;; esac
	if [ -L "$entry" ]; then
		cp -P "$entry" "$dir/root$entry"
	elif [ -d "$entry" ]; then
		mkdir "$dir/root$entry"
		mount --rbind "$entry" "$dir/root$entry"
	fi
done
mkdir "$dir/root/workspace"
mount --bind "$dir/workspace" "$dir/root/workspace"
while [ "$folders" -gt 0 ]; do
	mkdir -p "$dir/root$2"
	case $3 in
	ro) mount --bind "$1" "$dir/root$2" && mount -o remount,bind,ro "$dir/root$2" ;;
	rw) mount --bind "$1" "$dir/root$2" ;;
	copy) cp -a "$1/." "$dir/root$2" ;;
	esac
	shift 3
	folders=$((folders - 1))
done
chroot=$(PATH=/usr/sbin:/sbin:/usr/bin:/bin command -v chroot)
exec "$chroot" "$dir/root" "$@"
`

// inOwnRoot changes cmd to run so, which needs a host that lets the caller make
// namespaces.
func inOwnRoot(cmd *exec.Cmd, dir string, mounts []sandbox.Mount) {
	args := []string{"/bin/sh", "-c", ownRoot, "sh", dir, "", strconv.Itoa(len(mounts))}
	for _, m := range mounts {
		args[5] += " /" + strings.SplitN(m.Target, "/", 3)[1]
		args = append(args, m.Source, m.Target, string(m.Mode))
	}
	cmd.Args = append(args, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}
