package executable

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mapped returns a function that unmaps the pages of this file. A start needs most of
// them, and the process few afterwards. A page that is used again comes from the page
// cache.
func mapped() (unmap func()) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return func() {}
	}
	ranges := ownRanges(string(maps))
	return func() {
		for _, r := range ranges {
			_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, r.start, r.end-r.start, unix.MADV_DONTNEED)
		}
	}
}

// span is a range of addresses.
type span struct{ start, end uintptr }

// ownRanges returns the ranges of /proc/self/maps that map the program's file, which
// comes first, read-only: what was written elsewhere would be lost.
func ownRanges(maps string) []span {
	var out []span
	own := ""
	for line := range strings.Lines(maps) {
		// 00400000-04f3c000 r-xp 00000000 08:01 1234     /usr/bin/sallyport
		f := strings.Fields(line)
		if len(f) < 6 || f[4] == "0" {
			continue
		}
		if file := f[3] + " " + f[4]; own == "" {
			own = file
		} else if file != own {
			continue
		}
		var s span
		if _, err := fmt.Sscanf(f[0], "%x-%x", &s.start, &s.end); err == nil && f[1][1] != 'w' && s.start < s.end {
			out = append(out, s)
		}
	}
	return out
}
