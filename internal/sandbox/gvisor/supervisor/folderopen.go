//go:build linux && (amd64 || arm64)

package supervisor

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fsutil"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/marshal/primitive"
)

// openEntry is an open file or directory.
type openEntry struct {
	lisafs.OpenFD
	entry *entry
	fd    int // -1: it was gone when the sandbox was restored
}

var _ lisafs.OpenFDImpl = (*openEntry)(nil)

// FD implements lisafs.OpenFDImpl.
func (o *openEntry) FD() *lisafs.OpenFD {
	if o == nil {
		return nil
	}
	return &o.OpenFD
}

// Close implements lisafs.OpenFDImpl.
func (o *openEntry) Close() {
	if o.fd >= 0 {
		_ = unix.Close(o.fd)
		o.fd = -1
	}
}

// Stat implements lisafs.OpenFDImpl.
func (o *openEntry) Stat() (lisafs.Statx, error) { return o.entry.Stat() }

// Sync implements lisafs.OpenFDImpl.
func (o *openEntry) Sync() error {
	if o.fd < 0 {
		return nil
	}
	return unix.Fsync(o.fd)
}

// Write implements lisafs.OpenFDImpl.
func (o *openEntry) Write(b []byte, off uint64) (uint64, error) {
	return transfer(o.fd, b, off, unix.Pwrite)
}

// Read implements lisafs.OpenFDImpl.
func (o *openEntry) Read(b []byte, off uint64) (uint64, error) {
	return transfer(o.fd, b, off, unix.Pread)
}

func transfer(fd int, b []byte, off uint64, call func(int, []byte, int64) (int, error)) (uint64, error) {
	if fd < 0 {
		return 0, unix.ESTALE
	}
	done := 0
	for done < len(b) {
		n, err := call(fd, b[done:], int64(off)+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil && done == 0 {
			return 0, err
		}
		if err != nil || n <= 0 {
			break
		}
		done += n
	}
	return uint64(done), nil
}

// Allocate implements lisafs.OpenFDImpl.
func (o *openEntry) Allocate(mode, off, length uint64) error {
	switch {
	case o.fd < 0:
		return unix.ESTALE
	case mode != 0:
		return unix.EOPNOTSUPP // the system call filter would end this process
	}
	return unix.Fallocate(o.fd, 0, int64(off), int64(length))
}

// Flush implements lisafs.OpenFDImpl.
func (o *openEntry) Flush() error { return nil }

// Renamed implements lisafs.OpenFDImpl.
func (o *openEntry) Renamed() {}

// Getdent64 implements lisafs.OpenFDImpl.
func (o *openEntry) Getdent64(count uint32, first bool, record func(lisafs.Dirent64)) error {
	if o.fd < 0 {
		return unix.ENOENT
	}
	if first {
		if _, err := unix.Seek(o.fd, 0, 0); err != nil {
			return err
		}
	}
	st, err := stat(o.fd)
	if err != nil {
		return err
	}
	var buf [8192]byte
	for read := 0; read < int(count); {
		n, err := unix.Getdents(o.fd, buf[:min(len(buf), int(count)-read)])
		if err == unix.EINVAL && read > 0 {
			return nil // no room for another
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		read += n
		fsutil.ParseDirents(buf[:n], func(ino uint64, off int64, kind uint8, name string, _ uint16) {
			// Other mounts are not entered, so all is on one device.
			record(lisafs.Dirent64{
				Ino: primitive.Uint64(ino), Off: primitive.Uint64(off), Type: primitive.Uint8(kind), Name: lisafs.SizedString(name),
				DevMajor: primitive.Uint32(st.Dev_major), DevMinor: primitive.Uint32(st.Dev_minor),
			})
		})
	}
	return nil
}
