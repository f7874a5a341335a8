//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os"
	"os/signal"
	"path"
	"strconv"
	"sync"
	"sync/atomic"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"
	"gvisor.dev/gvisor/runsc/fsgofer/extension"
)

// folderServer serves mounted folders, in the process of gVisor's file server and
// in place of its own implementation, which serves the root. It differs in what the
// code sees and can do:
//
//   - Everything belongs to the code's user, so that the bits of the owner decide in
//     the sandbox. The host decides what this process may do.
//   - What the code makes belongs to the owner of the directory, and has no
//     set-user-ID or set-group-ID bit. Files that have one cannot be written to.
//   - Sockets and pipes cannot be opened or made, devices not even looked at, nor are
//     other mounts below the folder entered. There are no extended attributes.
//   - What the code holds open and the host has removed while a session was suspended
//     is a ghost: the session is restored, reads fail with ESTALE, and all else as if
//     it were not there.
type folderServer struct {
	descriptors int // the directory /proc/self/fd
	readOnly    map[string]bool
	// restoring is set until the sandbox runs: the kernel looks for what it had open.
	restoring atomic.Bool
	// ghosts are the files that were gone then, by their places.
	ghosts sync.Map // of *lisafs.Node to lisafs.Statx
	count  atomic.Uint64
}

// restoredSignal tells the file server that the restored sandbox runs.
const restoredSignal = unix.SIGUSR1

// guestID is the user and group of the code.
const guestID = 65534

// serveFolders makes this process, a file server, serve the folders of a
// specification.
func serveFolders(spec *specs.Spec) {
	s := &folderServer{readOnly: map[string]bool{}}
	for _, m := range folderMounts(spec) {
		s.readOnly[m.Destination] = folderMode(m) != modeReadWrite
	}
	s.restoring.Store(spec.Annotations[restoreAnnotation] != "")
	if s.restoring.Load() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, restoredSignal)
		go func() {
			<-signals
			s.restoring.Store(false)
		}()
	}
	extension.Register(s)
}

// Name implements extension.Extension.
func (s *folderServer) Name() string { return "folders" }

// SeccompRules implements extension.Extension. The rules of the stock server
// are enough.
func (s *folderServer) SeccompRules() seccomp.SyscallRules { return seccomp.NewSyscallRules() }

// PrepareGofer is called while /proc is there.
func (s *folderServer) PrepareGofer(extension.GoferPrepareContext) (extension.GoferPrepareResult, error) {
	var err error
	s.descriptors, err = unix.Open(sandboxsetup.ProcFDBindMount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return extension.GoferPrepareResult{}, err
}

// TryHandleMount implements extension.Extension.
func (s *folderServer) TryHandleMount(_ *specs.Spec, mount *specs.Mount, mountPath string, readonly bool) (lisafs.ConnectionImpl, lisafs.ConnectionOpts, error) {
	if mount == nil {
		return nil, lisafs.ConnectionOpts{}, nil
	}
	readOnly, ok := s.readOnly[mountPath]
	if !ok {
		return nil, lisafs.ConnectionOpts{}, unix.EINVAL
	}
	readOnly = readOnly || readonly
	return &servedFolder{folderServer: s, readOnly: readOnly}, lisafs.ConnectionOpts{
		Readonly:          readOnly,
		WalkStatSupported: true,
		SetAttrOnDeleted:  true,
		AllocateOnDeleted: true,
		OpenOnDeleted:     true,
	}, nil
}

// servedFolder is a mounted folder.
type servedFolder struct {
	*folderServer
	readOnly bool
	root     *entry
}

// SupportedMessages implements lisafs.ConnectionImpl.
func (s *servedFolder) SupportedMessages() []lisafs.MID {
	return []lisafs.MID{
		lisafs.Mount, lisafs.Channel, lisafs.FStat, lisafs.SetStat, lisafs.Walk, lisafs.WalkStat, lisafs.OpenAt, lisafs.OpenCreateAt,
		lisafs.Close, lisafs.FSync, lisafs.PWrite, lisafs.PRead, lisafs.MkdirAt, lisafs.MknodAt, lisafs.SymlinkAt, lisafs.LinkAt,
		lisafs.FStatFS, lisafs.FAllocate, lisafs.ReadLinkAt, lisafs.UnlinkAt, lisafs.RenameAt, lisafs.RenameAt2, lisafs.Getdents64,
	}
}

// MaxMessageSize implements lisafs.ConnectionImpl.
func (s *servedFolder) MaxMessageSize() uint32 { return lisafs.MaxMessageSize() }

// Mount implements lisafs.ConnectionImpl.
func (s *servedFolder) Mount(c *lisafs.Connection, node *lisafs.Node) (*lisafs.ControlFD, lisafs.Statx, int, error) {
	fd, err := unix.Open(path.Join(node.FilePath(), folderName), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, lisafs.Statx{}, -1, err
	}
	st, err := stat(fd)
	if err != nil {
		unix.Close(fd)
		return nil, lisafs.Statx{}, -1, err
	}
	e := &entry{server: s, fd: fd}
	s.root = e
	node.IncRef() // for the control descriptor
	e.ControlFD.Init(c, node, linux.FileMode(st.Mode), e)
	return e.FD(), shown(st), -1, nil
}

// stat returns what the host says of an open file.
func stat(fd int) (unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	return st, err
}

// visible returns what the host says of a file that the sandbox looks up. It sees
// no devices: its kernel would open its own device of the same number.
func visible(fd int) (unix.Statx_t, error) {
	st, err := stat(fd)
	if kind := st.Mode & unix.S_IFMT; err == nil && (kind == unix.S_IFBLK || kind == unix.S_IFCHR) {
		err = unix.EPERM
	}
	return st, err
}

// shown returns what the sandbox is shown of a file.
func shown(st unix.Statx_t) lisafs.Statx {
	at := func(t unix.StatxTimestamp) lisafs.StatxTimestamp {
		return lisafs.StatxTimestamp{Sec: t.Sec, Nsec: t.Nsec}
	}
	return lisafs.Statx{
		Mask: st.Mask, Mode: st.Mode &^ (unix.S_ISUID | unix.S_ISGID), UID: guestID, GID: guestID,
		DevMinor: st.Dev_minor, DevMajor: st.Dev_major, Ino: st.Ino, Nlink: st.Nlink, RdevMinor: st.Rdev_minor, RdevMajor: st.Rdev_major,
		Size: st.Size, Blksize: st.Blksize, Blocks: st.Blocks,
		Atime: at(st.Atime), Btime: at(st.Btime), Mtime: at(st.Mtime), Ctime: at(st.Ctime),
	}
}

// lookup opens a name in a directory without following or entering anything.
func lookup(dir int, name string) (int, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err == unix.EXDEV {
		err = unix.EACCES // another mount
	}
	return fd, err
}

// reopen opens what a descriptor refers to, with other flags.
func (s *folderServer) reopen(fd int, flags int) (int, error) {
	return unix.Openat(s.descriptors, strconv.Itoa(fd), flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
}

// entry is a file or directory that the sandbox's kernel knows.
type entry struct {
	lisafs.ControlFD
	server *servedFolder
	fd     int // O_PATH; -1: it was gone when the sandbox was restored
	// restored: the kernel knew the name before, and another kind of file may have it
	// now. It notices that when it looks up the name, but panics at a file that changes
	// its kind.
	restored bool
}

var _ lisafs.ControlFDImpl = (*entry)(nil)

// FD implements lisafs.ControlFDImpl.
func (e *entry) FD() *lisafs.ControlFD {
	if e == nil {
		return nil
	}
	return &e.ControlFD
}

// Close implements lisafs.ControlFDImpl.
func (e *entry) Close() {
	if e.fd < 0 {
		e.server.ghosts.Delete(e.Node())
		return
	}
	_ = unix.Close(e.fd)
	e.fd = -1
}

// ghost makes the entry of a file that was gone when the sandbox was restored. Nothing
// of it is known, not even what it was: a file can be open for writing, a directory
// have others below.
func (e *entry) ghost(name string) (*lisafs.ControlFD, lisafs.Statx) {
	kind := linux.FileMode(linux.ModeRegular)
	if e.server.readOnly {
		kind = linux.ModeDirectory
	}
	g := e.child(name, -1, kind)
	st := lisafs.Statx{Ino: ^e.server.count.Add(1)}
	e.server.ghosts.Store(g.Node(), st)
	return g.FD(), st
}

// ghostBelow returns what is shown of a ghost, if there is one of that name in the
// directory.
func (s *folderServer) ghostBelow(dir *lisafs.Node, name string) (st lisafs.Statx, ok bool) {
	if dir == nil {
		return st, false
	}
	var node *lisafs.Node
	dir.WithChildrenMu(func() { node = dir.LookupChildLocked(name) })
	return s.ghostAt(node)
}

func (s *folderServer) ghostAt(node *lisafs.Node) (st lisafs.Statx, ok bool) {
	v, ok := s.ghosts.Load(node)
	if ok {
		st = v.(lisafs.Statx)
	}
	return st, ok
}

// child makes the entry of a name in a directory, open at fd.
func (e *entry) child(name string, fd int, mode linux.FileMode) *entry {
	var node *lisafs.Node
	parent := e.Node()
	parent.WithChildrenMu(func() {
		if node = parent.LookupChildLocked(name); node == nil {
			node = &lisafs.Node{}
			node.InitLocked(name, parent)
		} else {
			node.IncRef()
		}
	})
	c := &entry{server: e.server, fd: fd, restored: e.server.restoring.Load()}
	c.ControlFD.Init(e.Conn(), node, mode, c)
	return c
}

// found makes the entry of a name that was just opened at fd, and closes fd if
// that fails.
func (e *entry) found(name string, fd int) (*entry, lisafs.Statx, error) {
	st, err := visible(fd)
	if err != nil {
		unix.Close(fd)
		return nil, lisafs.Statx{}, err
	}
	c := e.child(name, fd, linux.FileMode(st.Mode))
	return c, c.shown(st), nil
}

// shown returns what the sandbox is shown of an entry that it knows.
func (e *entry) shown(st unix.Statx_t) lisafs.Statx {
	out := shown(st)
	if e.restored {
		out.Mask &^= unix.STATX_TYPE | unix.STATX_MODE
	}
	return out
}

// Stat implements lisafs.ControlFDImpl.
func (e *entry) Stat() (lisafs.Statx, error) {
	if e.fd < 0 {
		st, _ := e.server.ghostAt(e.Node())
		return st, nil // an error would keep the sandbox from being saved again
	}
	st, err := stat(e.fd)
	return e.shown(st), err
}

// Walk implements lisafs.ControlFDImpl.
func (e *entry) Walk(name string) (*lisafs.ControlFD, lisafs.Statx, error) {
	fd, err := -1, error(unix.ENOENT)
	if e.fd >= 0 {
		fd, err = lookup(e.fd, name)
	}
	if err != nil && e.server.restoring.Load() {
		c, st := e.ghost(name)
		return c, st, nil
	}
	if err != nil {
		return nil, lisafs.Statx{}, err
	}
	c, st, err := e.found(name, fd)
	return c.FD(), st, err
}

// WalkStat implements lisafs.ControlFDImpl.
func (e *entry) WalkStat(names lisafs.StringArray, record func(lisafs.Statx)) error {
	if len(names) > 0 && names[0] == "" {
		st, err := e.Stat()
		if err != nil {
			return err
		}
		record(st)
		names = names[1:]
	}
	if !e.IsDir() {
		return nil
	}
	dir, node := e.fd, e.Node()
	defer func() {
		if dir != e.fd {
			unix.Close(dir)
		}
	}()
	for _, name := range names {
		fd, err := -1, error(unix.ENOENT)
		if dir >= 0 {
			fd, err = lookup(dir, name)
		}
		if err == unix.ENOENT {
			if st, ok := e.server.ghostBelow(node, name); ok {
				record(st)
			}
			return nil // the kernel sees that some are missing
		}
		if err != nil {
			return err
		}
		if dir != e.fd {
			unix.Close(dir)
		}
		dir = fd
		st, err := visible(fd)
		if err != nil {
			return err
		}
		record(shown(st))
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil
		}
		if node != nil {
			parent := node
			parent.WithChildrenMu(func() { node = parent.LookupChildLocked(name) })
		}
	}
	return nil
}

// Open implements lisafs.ControlFDImpl.
func (e *entry) Open(flags uint32) (*lisafs.OpenFD, int, error) {
	fd, err := e.open(flags)
	if err != nil {
		if !e.server.restoring.Load() {
			return nil, -1, err
		}
		fd = -1
	}
	o := &openEntry{entry: e, fd: fd}
	o.OpenFD.Init(e.FD(), flags, o)
	donated := -1
	if fd >= 0 && e.IsRegular() {
		donated, _ = unix.Dup(fd) // reads and maps it without asking
	}
	return o.FD(), donated, nil
}

func (e *entry) open(flags uint32) (int, error) {
	if e.fd < 0 {
		return -1, unix.ENOENT
	}
	st, err := stat(e.fd)
	switch {
	case err != nil:
		return -1, err
	case st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return -1, unix.EPERM
	case flags&(unix.O_ACCMODE|unix.O_TRUNC) != unix.O_RDONLY && !writable(&st):
		return -1, unix.EPERM
	}
	const kept = unix.O_ACCMODE | unix.O_TRUNC | unix.O_APPEND | unix.O_DIRECTORY | unix.O_SYNC | unix.O_DSYNC
	return e.server.reopen(e.fd, int(flags)&kept|unix.O_NONBLOCK)
}

// writable reports whether code may write to a file: not to a program that runs with
// another's rights. This process may be root's, whose writes keep the bits.
func writable(st *unix.Statx_t) bool { return st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 }

// StatFS implements lisafs.ControlFDImpl.
func (e *entry) StatFS() (lisafs.StatFS, error) {
	var s unix.Statfs_t
	if e.fd < 0 {
		return lisafs.StatFS{}, unix.ENOENT
	}
	if err := unix.Fstatfs(e.fd, &s); err != nil {
		return lisafs.StatFS{}, err
	}
	return lisafs.StatFS{
		Type: uint64(s.Type), BlockSize: s.Bsize, Blocks: s.Blocks, BlocksFree: s.Bfree, BlocksAvailable: s.Bavail,
		Files: s.Files, FilesFree: s.Ffree, NameLength: uint64(s.Namelen),
	}, nil
}

// Readlink implements lisafs.ControlFDImpl.
func (e *entry) Readlink(buffer func(uint32) []byte) (uint16, error) {
	b := buffer(unix.PathMax)
	n, err := unix.Readlinkat(e.fd, "", b)
	if err != nil {
		return 0, err
	}
	return uint16(n), nil
}

// Renamed implements lisafs.ControlFDImpl.
func (e *entry) Renamed() {}

// The kernel answers for extended attributes without asking, and sockets are its own:
// see SupportedMessages.

// GetXattr implements lisafs.ControlFDImpl.
func (e *entry) GetXattr(string, uint32, func(uint32) []byte) (uint16, error) {
	return 0, unix.EOPNOTSUPP
}

// SetXattr implements lisafs.ControlFDImpl.
func (e *entry) SetXattr(string, string, uint32) error { return unix.EOPNOTSUPP }

// ListXattr implements lisafs.ControlFDImpl.
func (e *entry) ListXattr(uint64) (lisafs.StringArray, error) { return nil, unix.EOPNOTSUPP }

// RemoveXattr implements lisafs.ControlFDImpl.
func (e *entry) RemoveXattr(string) error { return unix.EOPNOTSUPP }

// Connect implements lisafs.ControlFDImpl.
func (e *entry) Connect(uint32) (int, error) { return -1, unix.EPERM }

// ConnectWithCreds implements lisafs.ControlFDImpl.
func (e *entry) ConnectWithCreds(uint32, lisafs.UID, lisafs.GID) (int, error) { return -1, unix.EPERM }

// BindAt implements lisafs.ControlFDImpl.
func (e *entry) BindAt(string, uint32, linux.FileMode, lisafs.UID, lisafs.GID) (*lisafs.ControlFD, lisafs.Statx, *lisafs.BoundSocketFD, int, error) {
	return nil, lisafs.Statx{}, nil, -1, unix.EPERM
}
