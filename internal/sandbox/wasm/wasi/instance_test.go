//go:build linux

package wasi

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// patience bounds what only a hang would exceed.
const patience = time.Minute

// waiter waits with poll(2).
type waiter struct {
	calls   []wait
	answers []Outcome // of the next calls, without waiting
	panics  any
}

type wait struct {
	fd      int
	write   bool
	timeout time.Duration
}

func (w wait) String() string { return fmt.Sprintf("{%d %t %s}", w.fd, w.write, w.timeout) }

func (w *waiter) Wait(_ context.Context, fd int, write bool, timeout time.Duration) Outcome {
	w.calls = append(w.calls, wait{fd, write, timeout})
	if w.panics != nil {
		panic(w.panics)
	}
	if len(w.answers) > 0 {
		answer := w.answers[0]
		w.answers = w.answers[1:]
		return answer
	}
	if timeout < 0 || timeout > patience {
		timeout = patience
	}
	var fds []unix.PollFd
	if fd >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		if write {
			fds[0].Events = unix.POLLOUT
		}
	}
	for end := time.Now().Add(timeout); ; {
		left := max(time.Until(end), 0)
		n, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
		switch {
		case err == nil && n > 0:
			return Ready
		case err == nil && left == 0:
			return TimedOut
		}
	}
}

// leb appends a number as WebAssembly has it.
func leb(b []byte, n uint32) []byte { return binary.AppendUvarint(b, uint64(n)) }

func section(id byte, body []byte) []byte {
	return append(leb([]byte{id}, uint32(len(body))), body...)
}

func wasmName(b []byte, s string) []byte { return append(leb(b, uint32(len(s))), s...) }

// wrapper is a module with two pages of memory that exports a function for each host
// function, which calls that one.
func wrapper() []byte {
	list := append(functions(), function{name: "proc_exit", params: "i"})
	n := uint32(len(list))
	types, imports, funcs := leb(nil, n), leb(nil, n), leb(nil, n)
	exports, code := leb(nil, n+1), leb(nil, n)
	for i, f := range list {
		types = leb(append(types, 0x60), uint32(len(f.params)))
		body := []byte{0} // no locals
		for j, p := range f.params {
			types = append(types, map[rune]byte{'i': api.ValueTypeI32, 'I': api.ValueTypeI64}[p])
			body = leb(append(body, 0x20), uint32(j)) // local.get
		}
		if f.name == "proc_exit" {
			types = append(types, 0)
		} else {
			types = append(types, 1, api.ValueTypeI32)
		}
		imports = wasmName(wasmName(imports, moduleName), f.name)
		imports = leb(append(imports, 0), uint32(i))
		funcs = leb(funcs, uint32(i))
		exports = leb(append(wasmName(exports, f.name), 0), n+uint32(i))
		body = append(leb(append(body, 0x10), uint32(i)), 0x0b) // call, end
		code = append(leb(code, uint32(len(body))), body...)
	}
	exports = append(wasmName(exports, "memory"), 2, 0)
	module := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range [][]byte{section(1, types), section(2, imports), section(3, funcs), section(5, []byte{1, 1, 2, 4}), section(7, exports), section(10, code)} {
		module = append(module, s...)
	}
	return module
}

// An instance calls the functions of a host from WebAssembly.
type instance struct {
	t      testing.TB
	ctx    context.Context
	host   *Host
	waiter *waiter
	mod    api.Module
}

// instantiate returns instances of the wrapper that share a runtime.
func instantiate(t testing.TB) func(t testing.TB, cfg Config) *instance {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() { r.Close(ctx) })
	if err := Instantiate(ctx, r); err != nil {
		t.Fatal(err)
	}
	compiled, err := r.CompileModule(ctx, wrapper())
	if err != nil {
		t.Fatal(err)
	}
	return func(t testing.TB, cfg Config) *instance {
		t.Helper()
		i := &instance{t: t, waiter: &waiter{}}
		if cfg.FS == nil {
			cfg.FS = newFS(t)
		}
		if cfg.Waiter == nil {
			cfg.Waiter = i.waiter
		}
		i.host = New(cfg)
		i.ctx = WithHost(ctx, i.host)
		i.mod, err = r.InstantiateModule(i.ctx, compiled, wazero.NewModuleConfig().WithName(""))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { i.mod.Close(ctx) })
		return i
	}
}

func newInstance(t testing.TB, cfg Config) *instance {
	t.Helper()
	return instantiate(t)(t, cfg)
}

func newBase(t testing.TB) *memfs.Base {
	t.Helper()
	b := memfs.NewBase()
	if err := b.AddFS("/opt/program", fstest.MapFS{"main.py": {Data: []byte("print()")}, "pkg/x": {Data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	return b
}

// quotas are those of the tests.
var quotas = memfs.Config{Workspace: 1 << 20, Tmp: 1 << 20}

func newFS(t testing.TB) *memfs.FS {
	t.Helper()
	f, err := memfs.New(newBase(t), quotas)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// streams returns a configuration with pipes for descriptors 0 and 1, and their other
// ends.
func streams(t testing.TB) (cfg Config, stdin, stdout *os.File) {
	t.Helper()
	cfg = Config{Stdin: -1, Stdout: -1, Stderr: -1}
	pipe := func(fd *int, inner int) *os.File {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		*fd = p[inner]
		outer := os.NewFile(uintptr(p[1-inner]), "the other end")
		t.Cleanup(func() {
			unix.Close(p[inner])
			outer.Close()
		})
		return outer
	}
	return cfg, pipe(&cfg.Stdin, 0), pipe(&cfg.Stdout, 1)
}

// call calls a host function.
func (i *instance) call(name string, args ...uint64) Errno {
	i.t.Helper()
	result, err := i.mod.ExportedFunction(name).Call(i.ctx, args...)
	if err != nil {
		i.t.Fatalf("%s%v: %v", name, args, err)
	}
	return Errno(result[0])
}

// must calls a host function that succeeds.
func (i *instance) must(name string, args ...uint64) {
	i.t.Helper()
	if errno := i.call(name, args...); errno != success {
		i.t.Fatalf("%s%v: %v", name, args, errno)
	}
}

// Where tests keep things in an instance's memory.
const (
	atResult = 64
	atVector = 128
	atPath   = 4096
	atPath2  = 12288
	atBuffer = 65536 // the second page
)

// put stores bytes in the memory and returns their place and length.
func (i *instance) put(at uint32, s string) (ptr, n uint64) {
	i.t.Helper()
	if !i.mod.Memory().WriteString(at, s) {
		i.t.Fatalf("%d bytes at %d do not fit", len(s), at)
	}
	return uint64(at), uint64(len(s))
}

func (i *instance) bytes(at, n uint32) []byte {
	i.t.Helper()
	p, ok := i.mod.Memory().Read(at, n)
	if !ok {
		i.t.Fatalf("no %d bytes at %d", n, at)
	}
	return p
}

func (i *instance) u32(at uint32) uint32 { return binary.LittleEndian.Uint32(i.bytes(at, 4)) }
func (i *instance) u64(at uint32) uint64 { return binary.LittleEndian.Uint64(i.bytes(at, 8)) }

// vector stores vectors of pairs of place and length.
func (i *instance) vector(pairs ...uint32) (ptr, n uint64) {
	var p []byte
	for _, v := range pairs {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	i.put(atVector, string(p))
	return atVector, uint64(len(pairs) / 2)
}

const readWrite = rightRead | rightWrite

// open opens a path below the root.
func (i *instance) open(name string, oflags, rights uint64) (uint64, Errno) {
	i.t.Helper()
	ptr, n := i.put(atPath, name)
	errno := i.call("path_open", rootFD, lookupFollow, ptr, n, oflags, rights, 0, 0, atResult)
	return uint64(i.u32(atResult)), errno
}

func (i *instance) mustOpen(name string, oflags, rights uint64) uint64 {
	i.t.Helper()
	fd, errno := i.open(name, oflags, rights)
	if errno != success {
		i.t.Fatalf("open %s: %v", name, errno)
	}
	return fd
}

// write writes to a descriptor and returns how much was written.
func (i *instance) write(fd uint64, s string) (int, Errno) {
	i.t.Helper()
	i.put(atBuffer, s)
	ptr, n := i.vector(atBuffer, uint32(len(s)))
	errno := i.call("fd_write", fd, ptr, n, atResult)
	return int(i.u32(atResult)), errno
}

// read reads at most n bytes from a descriptor.
func (i *instance) read(fd uint64, n uint32) (string, Errno) {
	i.t.Helper()
	ptr, count := i.vector(atBuffer, n)
	if errno := i.call("fd_read", fd, ptr, count, atResult); errno != success {
		return "", errno
	}
	return string(i.bytes(atBuffer, i.u32(atResult))), success
}

// names lists a directory with a buffer of n bytes.
func (i *instance) names(fd uint64, n uint32) []string {
	i.t.Helper()
	var names []string
	for cookie := uint64(0); ; {
		i.must("fd_readdir", fd, atBuffer, uint64(n), cookie, atResult)
		p := i.bytes(atBuffer, i.u32(atResult))
		full := len(p) == int(n)
		for len(p) >= direntSize {
			size := int(binary.LittleEndian.Uint32(p[16:]))
			if len(p) < direntSize+size {
				break
			}
			names = append(names, string(p[direntSize:][:size]))
			cookie = binary.LittleEndian.Uint64(p)
			p = p[direntSize+size:]
		}
		if !full {
			return names
		}
	}
}

func join(names []string) string { return strings.Join(names, " ") }
