//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// PackagesDir is where sessions have the packages of an archive: the interpreter's own
// folder for packages, which its sys.path has once it is there.
const PackagesDir = "/usr/local/lib/python3.13/dist-packages"

// packages are the read-only files of sessions with packages, by the digests of the
// programs and the archives. Sessions with the same ones share them, and they last as
// long as one of these does.
type packages struct {
	mu    sync.Mutex
	bases map[[2]string]*packed
	used  int64 // bytes that all of them take
	most  int64 // that they may take
}

// packed are the files of one archive.
type packed struct {
	turn chan struct{} // held by whoever looks for the base or makes it
	base weak.Pointer[memfs.Base]

	// With the lock of packages.
	waiting int // sessions that look for the base or make it
	cost    int64
}

// packagesMemory is what the packages of all sessions may take: a quarter of the
// machine's memory, because the rest is for the sessions themselves, and a process that
// takes too much is killed with all of them.
func packagesMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 30
	}
	return int64(uint64(info.Totalram)*uint64(info.Unit)) / 4
}

// baseWith returns the read-only files of a session. For the same archive they have the
// same numbers, because what was saved refers to these.
func (img *Image) baseWith(ctx context.Context, c SessionConfig) (*memfs.Base, error) {
	if c.Packages == "" {
		return img.base, nil
	}
	all := &img.machine.packages
	p := all.of([2]string{img.program.Digest, c.Packages})
	defer all.leave(p)
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if base := p.base.Value(); base != nil {
		return base, nil
	}
	all.give(p)
	base, err := newBase(img.machine.interpreter, img.program)
	if err == nil {
		limit := c.Limits.WithDefaults().PackagesBytes
		left := limit
		err = base.AddArchive(ctx, PackagesDir, c.Archive, func(n int64) error {
			if left -= n; left < 0 {
				return fmt.Errorf("they take more than %d MB with their directories (setting limits.packages)", limit/1e6)
			}
			return all.take(p, n)
		})
	}
	if err != nil {
		all.give(p)
		return nil, fmt.Errorf("the packages: %w", err)
	}
	p.base = weak.Make(base)
	return base, nil
}

// of returns the entry of an archive, which stays until leave.
func (a *packages) of(key [2]string) *packed {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bases == nil {
		a.bases = map[[2]string]*packed{}
	}
	p := a.bases[key]
	if p == nil {
		p = &packed{turn: make(chan struct{}, 1)}
		a.bases[key] = p
	}
	p.waiting++
	return p
}

// leave ends what of has begun.
func (a *packages) leave(p *packed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.waiting--
	a.prune()
}

// prune forgets the bases that no session has any more. a.mu is held.
func (a *packages) prune() {
	for key, p := range a.bases {
		if p.waiting == 0 && p.base.Value() == nil {
			a.used -= p.cost
			delete(a.bases, key)
		}
	}
}

// take adds n bytes to what an archive takes, if there is room.
func (a *packages) take(p *packed, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > a.most-a.used {
		runtime.GC() // bases of sessions that have ended may still be there
		a.prune()
	}
	if n > a.most-a.used {
		return errors.New("the packages of all sessions together would take more than a quarter of the machine's memory: end other sessions")
	}
	a.used += n
	p.cost += n
	return nil
}

// give takes back what an archive was charged.
func (a *packages) give(p *packed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= p.cost
	p.cost = 0
}
