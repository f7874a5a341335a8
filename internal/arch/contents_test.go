package arch

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"
)

// binaries are the files in the executable that nobody can read: ours are
// explained in NOTICE, the others are parts of modules that NOTICE lists. A
// program that a module embeds carries work of others that no list of modules
// shows, so each new file needs a look.
var binaries = []string{
	"google.golang.org/protobuf/internal/editiondefaults/editions_defaults.binpb",
	// gVisor's own code inside a sandbox's processes.
	"gvisor.dev/gvisor/pkg/sentry/loader/vdsodata/vdso_amd64.so",
	"gvisor.dev/gvisor/pkg/sentry/loader/vdsodata/vdso_arm64.so",
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg/sighandler.built-in.amd64.bin",
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg/sighandler.built-in.arm64.bin",
	"github.com/sallyport/sallyport/internal/connect/o200k/vocabulary.zst",
	"github.com/sallyport/sallyport/internal/sandbox/wasm/interpreter/python.wasm.zst",
	"github.com/sallyport/sallyport/internal/sandbox/wasm/interpreter/python313.zip",
	"github.com/sallyport/sallyport/internal/toolbox/search/neighbours.bin",
	"github.com/sallyport/sallyport/internal/toolbox/search/vectors/table.bin",
}

func TestEmbeddedBinaries(t *testing.T) {
	found := map[string]bool{}
	for _, target := range [][2]string{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"windows", "amd64"}} {
		cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,EmbedFiles", "../../cmd/sallyport")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+target[0], "GOARCH="+target[1])
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s/%s: go list: %v\n%s", target[0], target[1], err, stderr.Bytes())
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath, Dir string
				EmbedFiles      []string
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			for _, file := range p.EmbedFiles {
				raw, err := os.ReadFile(filepath.Join(p.Dir, file))
				if err != nil {
					t.Fatal(err)
				}
				if !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
					found[path.Join(p.ImportPath, file)] = true
				}
			}
		}
	}
	for file := range found {
		if !slices.Contains(binaries, file) {
			t.Errorf("the executable embeds %s, which is not in the list: find out what it carries and under which licences", file)
		}
	}
	for _, file := range binaries {
		if !found[file] {
			t.Errorf("the list has %s, which no build embeds", file)
		}
	}
}

// TestExecutableSize holds the executable of a release, without symbols and
// debugging information, to a limit. SALLYPORT_BIN may have both: their
// sections do not count.
func TestExecutableSize(t *testing.T) {
	const limit = 85_000_000
	file := os.Getenv("SALLYPORT_BIN")
	if file == "" {
		t.Skip("SALLYPORT_BIN names no executable")
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	size := info.Size()
	for _, s := range exe.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 && s.Type != elf.SHT_NOBITS {
			size -= int64(s.FileSize)
		}
	}
	if size > limit {
		t.Errorf("%s has %d bytes without symbols and debugging information, want at most %d", file, size, limit)
	}
	t.Logf("%s: %d bytes without symbols and debugging information", file, size)
}
