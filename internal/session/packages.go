package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/wire"
)

// maxArchives bounds how many archives of packages a session returns to its next
// sandbox.
const maxArchives = 64

// reserve is the memory for installing, and for code after it.
const reserve = 32 << 20

// packages remembers the archives of packages that code has added to a session.
type packages struct {
	mu       sync.Mutex
	offered  []string // by the host, and perhaps not added
	archives []string // oldest first
	// keep records the archives, while code runs; nil: none does.
	keep func(archives []string)
}

// keepWith sets keep. The holder of the turn calls it.
func (p *packages) keepWith(keep func([]string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep = keep
}

// list returns the archives, oldest first.
func (p *packages) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.archives)
}

func (p *packages) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offered, p.archives = nil, nil
}

// adopt takes what the record has: another process may have used the session.
func (p *packages) adopt(r *hibernate.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.archives = slices.Clone(r.Packages)
}

// observe returns call, and notes what its answers and the guest say about
// packages. The guest can only name archives that the host has offered, and gets those
// that fit into the memory that is left.
func (p *packages) observe(call func(context.Context, wire.Call) ([]byte, error), left func() (bytes, limit int64, known bool)) func(context.Context, wire.Call) ([]byte, error) {
	if call == nil {
		return nil
	}
	return func(ctx context.Context, c wire.Call) ([]byte, error) {
		switch c.Method {
		case wire.MethodPackagesInstalled:
			return p.installed(c.Params)
		case wire.MethodPackagePart:
			if !p.has(c.Params) {
				return nil, &wire.CallError{Kind: wire.KindNotFound, Message: "package_part: there is no such archive"}
			}
		}
		result, err := call(ctx, c)
		var failed *wire.CallError
		switch {
		case errors.As(err, &failed) && failed.Kind == wire.KindNotFound && c.Method == wire.MethodPackagePart:
			p.drop(c.Params)
		case err != nil:
		case c.Method == wire.MethodInstallPackages:
			p.offer(result)
		case c.Method == wire.MethodPackagePart:
			err = withinMemory(c.Params, result, left)
		}
		return result, err
	}
}

func (p *packages) offer(result []byte) {
	var offered wire.PackagesInstalled
	if json.Unmarshal(result, &offered) != nil || offered.Archive == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.offered, offered.Archive) {
		p.offered = append(p.offered, offered.Archive)
	}
	if len(p.offered) > maxArchives {
		p.offered = p.offered[1:]
	}
}

// drop forgets an archive that the host no longer keeps, so that a session misses it
// once.
func (p *packages) drop(params json.RawMessage) {
	var part wire.PackagePart
	if json.Unmarshal(params, &part) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.archives = slices.DeleteFunc(p.archives, func(a string) bool { return a == part.Archive })
	if p.keep != nil {
		p.keep(slices.Clone(p.archives))
	}
}

// has reports whether an archive has been offered to the session, or is one of its own.
func (p *packages) has(params json.RawMessage) bool {
	var part wire.PackagePart
	if json.Unmarshal(params, &part) != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.offered, part.Archive) || slices.Contains(p.archives, part.Archive)
}

// withinMemory returns an error if an archive whose first part is asked for would make the
// sandbox run out of memory.
func withinMemory(params json.RawMessage, result []byte, left func() (bytes, limit int64, known bool)) error {
	var part wire.PackagePart
	var data wire.PackageData
	if json.Unmarshal(params, &part) != nil || part.Offset != 0 || json.Unmarshal(result, &data) != nil {
		return nil
	}
	bytes, limit, known := left()
	if !known || bytes >= data.Bytes+reserve {
		return nil
	}
	return &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf(
		"to install the packages takes %d MB of memory, and %d MB of the sandbox's %d MB are left: nothing of them was kept. Ask for fewer. The user can raise limits.memory, or make an environment, whose packages are not in memory",
		(data.Bytes+reserve)>>20, max(0, bytes)>>20, limit>>20)}
}

// memoryLeft returns how much more memory the sandbox may use, if that is known.
func (b *instance) memoryLeft() (bytes, limit int64, known bool) {
	limit = b.limits.MemoryBytes
	u, ok := b.usage()
	return limit - u.MemoryBytes, limit, ok && u.MemoryBytes > 0
}

func (p *packages) installed(params json.RawMessage) ([]byte, error) {
	var added wire.PackagesInstalled
	if err := json.Unmarshal(params, &added); err != nil {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "packages_installed: the arguments cannot be read"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case slices.Contains(p.archives, added.Archive):
	case !slices.Contains(p.offered, added.Archive):
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "packages_installed: there is no such archive"}
	case len(p.archives) >= maxArchives:
		return nil, &wire.CallError{Kind: wire.KindLimit, Message: "packages were added to this session too often to be kept for its next sandbox: the packages are installed, and gone when it loses its state"}
	default:
		p.archives = append(p.archives, added.Archive)
		if p.keep != nil { // at once: this program may be killed before the code ends
			p.keep(slices.Clone(p.archives))
		}
	}
	return []byte("null"), nil
}

// lostBut adds to the reason of a loss what was not lost.
func (s *Session) lostBut(reason string) string {
	if reason == "" || len(s.packages.list()) == 0 {
		return reason
	}
	return reason + "; packages that code added are kept"
}
