//go:build linux

package wasi

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// hasty is a waiter that waits for nothing.
type hasty struct{ turn int }

func (h *hasty) Wait(context.Context, int, bool, time.Duration) Outcome {
	h.turn++
	return [...]Outcome{TimedOut, Interrupted}[h.turn%2]
}

// budget bounds the memory of a file system.
type budget struct{ left int64 }

func (b *budget) Take(n int64) bool {
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) Give(n int64) { b.left += n }

// wild are values that go wrong most easily.
var wild = []uint64{
	0, 1, 2, 3, 4, 5, 6, 8, 63, 64, 128, 1024, 4096, 65532, 65536, 131068, 131071, 131072, 1 << 18,
	1<<31 - 1, 1 << 31, 1<<32 - 8, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1,
}

// words are what paths are made of.
var words = []string{"workspace", "tmp", "dev", "null", "zero", "urandom", "opt", "program", "main.py", "a", "b", "..", ".", "", "\xff", strings.Repeat("n", 256)}

// A program makes host calls from bytes.
type program struct {
	data []byte
}

func (p *program) byte() int {
	if len(p.data) == 0 {
		return 0
	}
	b := p.data[0]
	p.data = p.data[1:]
	return int(b)
}

func (p *program) path() string {
	var parts []string
	for range 1 + p.byte()%5 {
		parts = append(parts, words[p.byte()%len(words)])
	}
	return strings.Join(parts, "/")
}

// arg returns something for an argument: most often what makes sense.
func (p *program) arg() uint64 {
	switch b := p.byte(); {
	case b < 80:
		return uint64(b % 12) // descriptors, flags, counts
	case b < 120:
		return atPath + uint64(b%2)*(atPath2-atPath)
	case b < 140:
		return atVector
	case b < 170:
		return atBuffer
	case b < 200:
		return uint64(p.byte())
	case b < 250:
		return wild[p.byte()%len(wild)]
	}
	var b [8]byte
	for i := range b {
		b[i] = byte(p.byte())
	}
	return binary.LittleEndian.Uint64(b[:])
}

// run makes calls until the bytes are used up, and checks what they may not do.
func (p *program) run(i *instance) {
	list := functions()
	mem := i.mod.Memory()
	for len(p.data) > 0 {
		for _, at := range []uint32{atPath, atPath2} {
			mem.WriteString(at, p.path())
		}
		var vectors []byte
		for range 4 {
			vectors = binary.LittleEndian.AppendUint32(vectors, uint32(p.arg()))
		}
		mem.Write(atVector, vectors)
		f := list[p.byte()%len(list)]
		args := make([]uint64, len(f.params))
		for n := range args {
			if args[n] = p.arg(); f.params[n] == 'i' {
				args[n] = uint64(uint32(args[n]))
			}
		}
		result, err := i.mod.ExportedFunction(f.name).Call(i.ctx, args...)
		if err != nil {
			i.t.Fatalf("%s%v: %v", f.name, args, err)
		}
		if result[0] > 76 {
			i.t.Fatalf("%s%v: error number %d", f.name, args, result[0])
		}
		if mem.Size() != 2<<16 {
			i.t.Fatalf("%s%v: the memory has %d bytes", f.name, args, mem.Size())
		}
		if len(i.host.table) > 16 {
			i.t.Fatalf("%s%v: %d descriptors", f.name, args, len(i.host.table))
		}
	}
}

// runProgram runs a program with a host of its own. What it leaves can be saved.
func runProgram(t testing.TB, start func(testing.TB, Config) *instance, base *memfs.Base, data []byte) {
	limits := memfs.Config{Workspace: 1 << 18, Tmp: 1 << 18, Packages: 1 << 18, Entries: 100, Budget: &budget{1 << 19}}
	files, err := memfs.New(base, limits)
	if err != nil {
		t.Fatal(err)
	}
	i := start(t, Config{FS: files, Waiter: &hasty{}, OpenFiles: 16, Args: []string{"python"}, Env: []string{"A=b"}, Stdin: -1, Stdout: -1, Stderr: -1})
	defer i.mod.Close(i.ctx)
	(&program{data}).run(i)
	var saved strings.Builder
	if err := i.host.Save(&saved); err != nil {
		t.Fatal(err)
	}
	limits.Budget = &budget{1 << 19}
	if _, err := Restore(Config{Waiter: &hasty{}, OpenFiles: 16}, base, limits, strings.NewReader(saved.String())); err != nil {
		t.Fatalf("what a program left cannot be restored: %v", err)
	}
}

func FuzzCalls(f *testing.F) {
	start, base := instantiate(f), newBase(f)
	random := rand.New(rand.NewSource(1))
	for range 20 {
		data := make([]byte, 300)
		random.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runProgram(t, start, base, data[:min(len(data), 10000)])
	})
}

// TestCalls makes many calls that no C library would make.
func TestCalls(t *testing.T) {
	start, base := instantiate(t), newBase(t)
	random := rand.New(rand.NewSource(2))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const turns, size = 300, 5000
	for range turns {
		data := make([]byte, size)
		random.Read(data)
		runProgram(t, start, base, data)
	}
	runtime.ReadMemStats(&after)
	// About 150 calls each; a megabyte for each of them would show.
	if each := (after.TotalAlloc - before.TotalAlloc) / turns; each > 50<<20 {
		t.Errorf("a program allocates %d bytes on average, want at most 50 MiB", each)
	}
}

// TestWildArguments calls each function with every pair of wild values.
func TestWildArguments(t *testing.T) {
	i := newInstance(t, Config{Waiter: &hasty{}, OpenFiles: 16, Stdin: -1, Stdout: -1, Stderr: -1})
	for _, f := range functions() {
		call := i.mod.ExportedFunction(f.name)
		args := make([]uint64, len(f.params))
		for fill := range 7 {
			for a := range args {
				for b := range a + 1 {
					for _, v := range wild {
						for _, w := range wild {
							for n := range args {
								args[n] = uint64(fill)
							}
							args[a], args[b] = v, w
							for n, p := range f.params {
								if p == 'i' {
									args[n] = uint64(uint32(args[n]))
								}
							}
							if _, err := call.Call(i.ctx, args...); err != nil {
								t.Fatalf("%s%v: %v", f.name, args, err)
							}
						}
					}
				}
			}
		}
		i.host.Close()
		i.host = New(i.host.cfg)
		i.ctx = WithHost(t.Context(), i.host)
	}
}

// FuzzRestore restores what may be anything.
func FuzzRestore(f *testing.F) {
	i := newInstance(f, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	i.mustOpen("workspace/f", openCreate, readWrite)
	var saved strings.Builder
	if err := i.host.Save(&saved); err != nil {
		f.Fatal(err)
	}
	f.Add(saved.String())
	base := newBase(f)
	f.Fuzz(func(t *testing.T, data string) {
		limits := memfs.Config{Workspace: 1 << 18, Entries: 100, Budget: &budget{1 << 19}}
		h, err := Restore(Config{OpenFiles: 16}, base, limits, strings.NewReader(data))
		if err != nil {
			return
		}
		if err := h.Save(io.Discard); err != nil || len(h.table) > 16 {
			t.Errorf("%d descriptors were restored, want at most 16; saving them: %v", len(h.table), err)
		}
	})
}
