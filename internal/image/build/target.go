package build

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"strings"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// A Target is the Python that packages are for, as it describes itself.
type Target struct {
	Version [3]int            `json:"version"`
	Tag     string            `json:"tag"`  // cpython-313
	ABI     string            `json:"abi"`  // flags of the ABI: "" or "t"
	Libc    string            `json:"libc"` // glibc, musl or wasi
	LibcVer [2]int            `json:"libc_version"`
	Markers map[string]string `json:"markers"`
	// Where packages go.
	Purelib string `json:"purelib"`
	Platlib string `json:"platlib"`
	Scripts string `json:"scripts"`
	Data    string `json:"data"`
}

// describe runs in a sandbox of the base, whose program has that module.
const describe = `
import json, os
from sallyport_guest.target import target
os.write(1, json.dumps(target()).encode()) and None
`

var abiFlags = lazyregexp.New(`^[a-z]{0,3}$`)

// Inspect runs the base's Python to describe itself.
func (b *Builder) Inspect(ctx context.Context, base *image.Root) (*Target, error) {
	return b.inspect(ctx, sandbox.Root{Image: base.ID})
}

func (b *Builder) inspect(ctx context.Context, root sandbox.Root) (*Target, error) {
	var out limitedBuffer
	out.left = 1 << 20
	if err := b.run(ctx, root, describe, &out); err != nil {
		return nil, err
	}
	return ParseTarget(out.b.Bytes())
}

// maxMarkers bounds the markers of a target, in bytes.
const maxMarkers = 16 << 10

// ParseTarget reads how a Python describes itself. It comes from an image or a
// sandbox, and may be anything.
func ParseTarget(raw []byte) (*Target, error) {
	var t Target
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, fmt.Errorf("the base's Python did not describe itself: %w", err)
	}
	for _, dir := range []string{t.Purelib, t.Platlib, t.Scripts, t.Data} {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || len(dir) > 1000 || strings.ContainsRune(dir, 0) {
			return nil, fmt.Errorf("the base's Python has its packages in %q, which is not a usable directory", dir)
		}
	}
	size := 0
	for name, value := range t.Markers {
		size += len(name) + len(value)
	}
	if t.Version[0] != 3 || t.Version[1] < 9 || t.Version[1] > 99 || !abiFlags().MatchString(t.ABI) || len(t.Markers) > 30 || size > maxMarkers {
		return nil, fmt.Errorf("the base's Python has the unsupported version %v", t.Version)
	}
	return &t, nil
}

// wasi is the C library of a Python in WebAssembly.
const wasi = "wasi"

// abis returns the tags of the ABIs that the interpreter supports.
func (t *Target) abis() []string {
	own := fmt.Sprintf("cp%d%d%s", t.Version[0], t.Version[1], t.ABI)
	if strings.Contains(t.ABI, "t") {
		return []string{own, "none"} // without the GIL there is no stable ABI
	}
	return []string{own, "abi3", "none"}
}

// platforms returns the tags of the platforms that the base supports, newest
// first.
func (t *Target) platforms() ([]string, error) {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	var out []string
	switch {
	case t.Libc == wasi:
		return []string{"any"}, nil // machine code cannot be loaded there
	case t.Libc == "glibc" && t.LibcVer[0] == 2 && t.LibcVer[1] < 200:
		oldest := map[string]int{"x86_64": 5, "aarch64": 17}[machine]
		for minor := t.LibcVer[1]; minor >= oldest; minor-- {
			out = append(out, fmt.Sprintf("manylinux_2_%d_%s", minor, machine))
			for year, at := range map[string]int{"2014": 17, "2010": 12, "1": 5} {
				if at == minor {
					out = append(out, "manylinux"+year+"_"+machine)
				}
			}
		}
	case t.Libc == "musl" && t.LibcVer[0] == 1 && t.LibcVer[1] < 50:
		for minor := t.LibcVer[1]; minor >= 0; minor-- {
			out = append(out, fmt.Sprintf("musllinux_1_%d_%s", minor, machine))
		}
	default:
		return nil, fmt.Errorf("no wheels are made for the base's C library (%q %v)", t.Libc, t.LibcVer)
	}
	return append(out, "linux_"+machine), nil
}

// Supported returns why no wheels are made for the target, or nil.
func (t *Target) Supported() error {
	_, err := t.platforms()
	return err
}

func (t *Target) python() string { return fmt.Sprintf("%d.%d", t.Version[0], t.Version[1]) }

// Platform identifies what wheels are for, without versions: linux_x86_64 glibc.
func (t *Target) Platform() string {
	if t.Libc == wasi {
		return "wasm32 wasi"
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return strings.TrimSpace("linux_" + machine + " " + t.Libc + " " + t.ABI)
}
