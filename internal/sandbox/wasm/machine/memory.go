//go:build linux

package machine

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// A budget is the memory that a session may have: its linear memory and its files. It
// is safe for concurrent use.
type budget struct {
	limit int64
	used  atomic.Int64
	// refused is set when something was refused.
	refused atomic.Bool
}

// Take takes n bytes, or nothing if there are not so many left.
func (b *budget) Take(n int64) bool {
	for {
		used := b.used.Load()
		if n < 0 || n > b.limit-used {
			b.refused.Store(true)
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Give returns n bytes.
func (b *budget) Give(n int64) { b.used.Add(-n) }

// A memory is the linear memory of one session: address space for its limit, of which
// the beginning is a private copy of an image. It implements experimental.LinearMemory
// and never moves.
type memory struct {
	budget *budget
	taken  int64

	mu   sync.Mutex // guards the fields below against readers of other goroutines
	all  []byte     // the address space; nil after Free
	size int64      // how much of it can be used
}

// maxMemory bounds linear memory: one page less than WebAssembly has, because wazero says
// of a memory of 1<<32 bytes that it is empty.
const maxMemory = 1<<32 - wasmPage

// newMemory returns a memory with room for limit bytes. The first size bytes are those
// of image from an offset, which no change of the memory changes; without an image
// there is nothing yet.
func newMemory(b *budget, limit int64, image *os.File, offset, size int64) (*memory, error) {
	limit = min(roundUp(limit, wasmPage), maxMemory)
	if size > limit {
		return nil, fmt.Errorf("the memory limit of %d bytes is less than the %d bytes that the interpreter begins with", limit, size)
	}
	start, err := unix.MmapPtr(-1, 0, nil, uintptr(limit), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	m := &memory{budget: b, all: unsafe.Slice((*byte)(start), limit)}
	// Large pages would make sessions larger that touch a little here and there.
	_ = unix.Madvise(m.all, unix.MADV_NOHUGEPAGE)
	if image == nil {
		return m, nil
	}
	_, err = unix.MmapPtr(int(image.Fd()), offset, start, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		m.Free()
		return nil, os.NewSyscallError("mmap", err)
	}
	m.size = size
	return m, nil
}

// Allocate implements experimental.MemoryAllocator, for one module with one memory.
func (m *memory) Allocate(uint64, uint64) experimental.LinearMemory { return m }

// Reallocate returns the first size bytes, or nil if there are not so many.
func (m *memory) Reallocate(size uint64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > uint64(len(m.all)) {
		m.budget.refused.Store(true)
		return nil
	}
	if more := int64(size) - m.taken; more > 0 {
		if !m.budget.Take(more) {
			return nil
		}
		m.taken += more
	}
	if n := int64(size); n > m.size {
		from := m.size
		if err := unix.Mprotect(m.all[from:n], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			m.budget.refused.Store(true)
			return nil
		}
		m.size = n
	}
	return m.all[:size:size]
}

// Free releases the address space.
func (m *memory) Free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		return
	}
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(m.all)), uintptr(len(m.all)))
	m.all, m.size = nil, 0
	m.budget.Give(m.taken)
	m.taken = 0
}

// private returns how many bytes are not shared with the image, or all that can be used
// where that cannot be seen.
func (m *memory) private(pages *pagemap) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		return 0
	}
	if n, ok := pages.private(uintptr(unsafe.Pointer(unsafe.SliceData(m.all))), m.size); ok {
		return n
	}
	return m.size
}
