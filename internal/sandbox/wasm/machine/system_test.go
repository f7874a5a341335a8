//go:build linux

package machine

import (
	"fmt"
	"path"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// TestBase: the files that sessions share have the same numbers in every process, or
// what one saved could not be loaded by another.
func TestBase(t *testing.T) {
	i := Interpreter{Scripts: map[string]string{}}
	for n := range 8 {
		i.Scripts[fmt.Sprintf("script%d.py", n)] = ""
	}
	numbers := func() map[string]uint64 {
		base, err := newBase(i, Program{})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := memfs.New(base, memfs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]uint64{}
		for name := range i.Scripts {
			info, err := tree.Stat(tree.Root(), path.Join(LibraryDir, name), true)
			if err != nil {
				t.Fatal(err)
			}
			found[name] = info.Ino
		}
		return found
	}
	want := numbers()
	for range 10 {
		if got := numbers(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got files with the numbers %v, want %v", got, want)
		}
	}
}
