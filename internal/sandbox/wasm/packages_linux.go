//go:build linux && (amd64 || arm64)

package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// archives are the archives of packages that sessions were started with last. Each stays
// open, so that it is read for its digest once, and a session can start again when its
// environment has been removed.
type archives struct {
	mu      sync.Mutex
	opened  map[string]*os.File      // by digest
	opening map[string]chan struct{} // by digest; closed when that has ended
	closed  bool
}

// keptArchives bounds how many archives stay open.
const keptArchives = 32

// open returns the archive of a spec, or nil if it has none. The caller closes it.
func (a *archives) open(ctx context.Context, spec *sandbox.Spec) (*os.File, error) {
	digest := spec.Root.PackagesDigest()
	if digest == "" {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.opened[digest] == nil && !a.closed {
		if err := a.add(ctx, spec.Root.Packages, digest); err != nil {
			return nil, err
		}
	}
	if a.closed {
		return nil, supervise.ErrClosed
	}
	f := a.opened[digest]
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if limit := spec.Limits.WithDefaults().PackagesBytes; info.Size() > limit {
		return nil, fmt.Errorf("the packages take more than %d MB (setting limits.packages)", limit/1e6)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// add opens an archive, or waits for whoever does so. a.mu is held, but not meanwhile.
func (a *archives) add(ctx context.Context, name, digest string) error {
	if others := a.opening[digest]; others != nil {
		a.mu.Unlock()
		defer a.mu.Lock()
		select {
		case <-others:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if a.opening == nil {
		a.opened, a.opening = map[string]*os.File{}, map[string]chan struct{}{}
	}
	done := make(chan struct{})
	a.opening[digest] = done
	a.mu.Unlock()
	f, err := verified(ctx, name, digest)
	a.mu.Lock()
	delete(a.opening, digest)
	close(done)
	if err != nil {
		return err
	}
	if a.closed {
		return f.Close()
	}
	for other, old := range a.opened {
		if len(a.opened) >= keptArchives {
			old.Close()
			delete(a.opened, other)
		}
	}
	a.opened[digest] = f
	return nil
}

// close closes all of them, and those that are being opened.
func (a *archives) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, f := range a.opened {
		f.Close()
	}
	a.opened = nil
}

// verified opens an archive and checks that it is what its name says.
func verified(ctx context.Context, name, digest string) (*os.File, error) {
	// Opening a pipe would wait.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	regular := false
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			regular = info.Mode().IsRegular()
		}
		if !regular {
			f.Close()
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || err == nil && !regular {
		err = fmt.Errorf("the packages of the environment are not there any more: build it anew, or start a new session (%s: %w)", name, sandbox.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	// Whoever removes archives leaves one that is locked. Where files cannot be locked,
	// sessions lose it with their environment.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	sum := sha256.New()
	_, err = io.Copy(sum, contextReader{ctx, f})
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != digest {
		err = fmt.Errorf("%s is damaged: remove the environment and build it anew", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// A contextReader fails when its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}
