//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bytes"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// cheapenForks makes the small private mappings of a process stacks to gVisor's
// kernel. After a fork, that kernel copies 2 MiB of an ordinary mapping at the first
// write to it, in parent and child, and so soon all of an interpreter's memory; of a
// stack it copies the page that is written and its neighbours. Mappings of 2 MiB and
// more stay ordinary, because those can have huge pages, which stacks cannot. Like
// narrowSyscalls, it must be called before the kernel starts.
func cheapenForks() {
	for _, table := range []*kernel.SyscallTable{syscalls.AMD64, syscalls.ARM64} {
		for number, call := range table.Table {
			switch call.Name {
			case "mmap":
				call.Fn = mmapOfPages(call.Fn)
			case "brk":
				call.Fn = brkOfPages(call.Fn)
			}
			table.Table[number] = call
		}
		table.Init()
	}
}

func mmapOfPages(mmap kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		length, access, flags := args[1].Uint64(), args[2].Int(), args[3].Int()
		if flags&linux.MAP_ANONYMOUS == 0 || access == linux.PROT_NONE && flags&linux.MAP_STACK != 0 {
			letReserve(t, flags, length)
		}
		if flags&linux.MAP_PRIVATE == 0 || length >= hostarch.HugePageSize {
			return mmap(t, sysno, args)
		}
		args[3].Value |= linux.MAP_STACK
		addr, control, err := mmap(t, sysno, args)
		// The dynamic linker, which denies writes, is going to write to all of a
		// library's data: copy it at once, and not page by page.
		if err == nil && flags&linux.MAP_DENYWRITE != 0 && access&linux.PROT_WRITE != 0 {
			copyNow(t, hostarch.Addr(addr), length)
		}
		return addr, control, err
	}
}

// ownLimit is the number of bytes in the last page of a limit that the guest has set
// (pressure.py). Limits of the code's own have another.
const ownLimit = 1907

// letReserve makes room for the mapping of a file, however large, or of a thread's
// stack, of which little is used. gVisor has no limit but RLIMIT_AS, which counts both.
// The guest soon sets the limit anew.
func letReserve(t *kernel.Task, flags int32, length uint64) {
	most := t.Limits().Get(limits.AS)
	length, ok := hostarch.PageRoundUp(length)
	if !ok || flags&linux.MAP_FIXED != 0 || most.Cur%hostarch.PageSize != ownLimit || length > most.Max-most.Cur {
		return
	}
	most.Cur += length
	t.Limits().SetUnchecked(limits.AS, most)
}

// copyNow makes a private copy of a mapping. Where it fails, pages are copied as they
// are written to.
func copyNow(t *kernel.Task, addr hostarch.Addr, length uint64) {
	var buffer [32 << 10]byte
	for length > 0 {
		chunk := buffer[:min(length, uint64(len(buffer)))]
		if _, err := t.CopyInBytes(addr, chunk); err != nil {
			return
		}
		if _, err := t.CopyOutBytes(addr, chunk); err != nil {
			return
		}
		addr, length = addr+hostarch.Addr(len(chunk)), length-uint64(len(chunk))
	}
}

func brkOfPages(brk kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		before, _ := t.MemoryManager().Brk(t, 0) // the end; it is an error, too
		end, control, err := brk(t, sysno, args)
		if args[0].Pointer() == 0 {
			dataOfPages(t) // a program asks for the end before it does anything else
		}
		from, _ := before.RoundUp()
		to, _ := hostarch.Addr(end).RoundUp()
		if err == nil && from < to && to-from < hostarch.HugePageSize {
			// In the place of what was made now and has not been used. Without
			// it, that is used.
			heap := pages(uint64(to - from))
			heap.Addr, heap.Fixed, heap.Unmap, heap.Name = from, true, true, "[heap]"
			_, _ = t.MemoryManager().MMap(t, heap)
		}
		return end, control, err
	}
}

// pages is an anonymous mapping of which single pages are copied.
func pages(length uint64) memmap.MMapOpts {
	return memmap.MMapOpts{
		Length: length, Private: true, Perms: hostarch.ReadWrite, MaxPerms: hostarch.AnyAccess,
		Stack: true, NameMut: memmap.NameMutAnon,
	}
}

// dataOfPages does the same for the data of a program that begins, which the kernel
// itself has mapped: Debian's interpreter has 1.5 MB of it.
func dataOfPages(t *kernel.Task) {
	executable := t.MemoryManager().Executable()
	if executable == nil {
		return
	}
	name := executable.MappedName(t)
	executable.DecRef(t)
	if t.ThreadGroup().Count() != 1 {
		return // another thread may write to it
	}
	var data []hostarch.AddrRange
	t.MemoryManager().ReadMapsDataInto(t, func(start, end hostarch.Addr, access hostarch.AccessType, private string, _ uint64, _, _ uint32, inode uint64, path string) {
		// What is in the file, and the zeros that follow it.
		follows := len(data) > 0 && data[len(data)-1].End == start && inode == 0 && path == ""
		if private == "p" && access == hostarch.ReadWrite && end-start < hostarch.HugePageSize && (path == name || follows) {
			data = append(data, hostarch.AddrRange{Start: start, End: end})
		}
	})
	for _, from := range data {
		moveToPages(t, from)
	}
}

// moveToPages moves the content of a mapping to one of ours, which then takes its
// place. If that fails, the mapping stays.
func moveToPages(t *kernel.Task, from hostarch.AddrRange) {
	length := uint64(from.Length())
	to, err := t.MemoryManager().MMap(t, pages(length))
	if err != nil {
		return
	}
	var page, zeros [hostarch.PageSize]byte
	for at := from.Start; at < from.End && err == nil; at += hostarch.PageSize {
		if _, err = t.CopyInBytes(at, page[:]); err == nil && !bytes.Equal(page[:], zeros[:]) {
			_, err = t.CopyOutBytes(to+(at-from.Start), page[:])
		}
	}
	if err == nil {
		_, err = t.MemoryManager().MRemap(t, to, length, length, mm.MRemapOpts{Move: mm.MRemapMustMove, NewAddr: from.Start})
	}
	if err != nil {
		_ = t.MemoryManager().MUnmap(t, to, length)
	}
}
