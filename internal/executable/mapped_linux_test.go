package executable

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestOwnRanges(t *testing.T) {
	const maps = `00400000-02253000 r-xp 00000000 fe:00 42                           /usr/bin/sallyport
02253000-05287000 r--p 01e53000 fe:00 42                           /usr/bin/sallyport
05287000-0548e000 rw-p 04e87000 fe:00 42                           /usr/bin/sallyport
0548e000-074e4000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 r--p 00000000 fe:00 43                   /usr/lib/a library (deleted)
7f0000002000-7f0000003000 r--p 00000000 fe:01 42                   /another/disk
7f0000004000-7f0000005000 r--s 00000000 fe:00 42                   /usr/bin/sallyport
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0                    [vdso]
`
	want := []span{{0x400000, 0x2253000}, {0x2253000, 0x5287000}, {0x7f0000004000, 0x7f0000005000}}
	if got := ownRanges(maps); !reflect.DeepEqual(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	for _, none := range []string{"", "\n", "xyz r-xp 0 fe:00 42 /x\n", "00400000 r-xp 0 fe:00 42 /x\n"} {
		if got := ownRanges(none); got != nil {
			t.Errorf("%q: got %x, want none", none, got)
		}
	}
}

// resident returns how many kB of this program's file are mapped read-only.
func resident(t *testing.T) (kb int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	counts := false
	for line := range strings.Lines(string(smaps)) {
		f := strings.Fields(line)
		if !strings.HasSuffix(f[0], ":") {
			counts = len(ownRanges(line)) > 0 && strings.HasSuffix(f[len(f)-1], ".test")
		} else if n, err := strconv.Atoi(f[1]); err == nil && counts && f[0] == "Rss:" {
			kb += n
		}
	}
	return kb
}

// A process works on without its pages, and finds those again that it uses.
func TestMapped(t *testing.T) {
	unmap := mapped()
	before := resident(t)
	unmap()
	if after := resident(t); after >= before {
		t.Errorf("got %d kB of the program mapped, want less than the %d before", after, before)
	}
}
