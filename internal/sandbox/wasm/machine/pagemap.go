//go:build linux

package machine

import (
	"encoding/binary"
	"os"
	"sync"
)

// A pagemap is the kernel's account of this process's pages. A nil one knows nothing.
type pagemap struct {
	file *os.File
	unit int64

	mu     sync.Mutex
	buffer [32 << 10]byte
}

// Bits of an entry, as the kernel documents them.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageShared  = 1 << 61 // of a file, or anonymous and shared
)

// openPagemap returns the account, or nil where the kernel does not show it.
func openPagemap() *pagemap {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	return &pagemap{file: f, unit: int64(os.Getpagesize())}
}

func (p *pagemap) close() {
	if p != nil {
		p.file.Close()
	}
}

// private returns how many bytes of a range are in memory or swap and belong to this
// process alone.
func (p *pagemap) private(address uintptr, size int64) (total int64, ok bool) {
	if p == nil {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	const entry = 8
	at := int64(address) / p.unit * entry
	for left := roundUp(size, p.unit) / p.unit * entry; left > 0; {
		n, err := p.file.ReadAt(p.buffer[:min(left, int64(len(p.buffer)))], at)
		if n < entry || err != nil {
			return 0, false
		}
		n -= n % entry
		for i := 0; i < n; i += entry {
			e := binary.NativeEndian.Uint64(p.buffer[i:])
			if e&(pagePresent|pageSwapped) != 0 && e&pageShared == 0 {
				total += p.unit
			}
		}
		at += int64(n)
		left -= int64(n)
	}
	return total, true
}
