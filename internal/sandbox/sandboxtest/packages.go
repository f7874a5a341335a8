//go:build linux

package sandboxtest

import (
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// tryPlaces copies a library and a program to each writable place, and uses them.
const tryPlaces = `
import ctypes, os, shutil, subprocess
def works(d):
    try:
        program = shutil.copy(shutil.which("true"), d + "/prog")
        subprocess.check_call([program])
        with open("/proc/self/maps") as f:
            libc = next(l.split()[5] for l in f if "/libc.so" in l or "/libc-" in l or "/ld-musl" in l)
        return ctypes.CDLL(shutil.copy(libc, d + "/lib.so")).abs(-7)
    except OSError as e:
        return "no"
`

// packages tests the one place that code can write to and execute from.
func (s *suite) packages(t *testing.T) {
	s.needProcesses(t)
	b := s.backend(t)
	spec := s.spec()
	sess := s.start(t, b, spec)
	sess.must(t, tryPlaces)
	const read = `print(os.listdir("/packages"), [works(d) for d in ("/packages", "/workspace", "/tmp")])`
	if got, want := sess.must(t, read), "[] [7, 'no', 'no']\n"; got != want {
		t.Errorf("a new sandbox: got %s want %s", got, want)
	}
	if !s.report.Snapshots {
		return
	}
	if _, ok := sandbox.As[sandbox.Restorer](b); !ok {
		return
	}
	sess.must(t, `lib = ctypes.CDLL("/packages/lib.so")`)
	sess = s.restore(t, b, s.take(t, sess, spec, false))
	got := sess.must(t, `print(lib.abs(-8), sorted(os.listdir("/packages")), subprocess.call(["/packages/prog"]), [works(d) for d in ("/workspace", "/tmp")])`)
	if want := "8 ['lib.so', 'prog'] 0 ['no', 'no']\n"; got != want {
		t.Errorf("a restored sandbox: got %s want %s", got, want)
	}
}
