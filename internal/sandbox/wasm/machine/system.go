//go:build linux

package machine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/interpreter"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/wasi"
)

// A system is what a session has of the WASI host.
type system struct {
	host  *wasi.Host
	files fileBudget
}

// A fileBudget is the share of a session's budget that its files have taken.
type fileBudget struct {
	*budget
	now, most atomic.Int64
}

// Take implements memfs.Budget.
func (b *fileBudget) Take(n int64) bool {
	if !b.budget.Take(n) {
		return false
	}
	now := b.now.Add(n)
	for most := b.most.Load(); now > most && !b.most.CompareAndSwap(most, now); most = b.most.Load() {
	}
	return true
}

// Give implements memfs.Budget.
func (b *fileBudget) Give(n int64) {
	b.now.Add(-n)
	b.budget.Give(n)
}

// newBase returns the read-only files that all sessions of a program share: always the
// same tree, with the same numbers of files, because what was saved refers to these.
func newBase(i Interpreter, p Program) (*memfs.Base, error) {
	base := memfs.NewBase()
	if err := base.AddFile(LibraryFile, i.Library, 0o444); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(i.Scripts)) {
		if err := base.AddFile(path.Join(LibraryDir, name), i.Scripts[name], 0o444); err != nil {
			return nil, err
		}
	}
	if p.Files == nil {
		return base, nil
	}
	return base, base.AddFS(sandbox.ProgramDir, p.Files)
}

// instantiateSystem makes what the interpreter imports of WASI.
func instantiateSystem(ctx context.Context, r wazero.Runtime) error { return wasi.Instantiate(ctx, r) }

// bootSystem gives an interpreter that boots a system in which clocks and random
// numbers are always the same, so that the image is. The function that it returns tells
// what the interpreter has said.
func (s *Session) bootSystem() (said func() []byte, err error) {
	tree, err := memfs.New(s.image.base, memfs.Config{Budget: &s.system.files, Now: bootClock(), Rand: bootRandom()})
	if err != nil {
		return nil, err
	}
	in, out, err := os.Pipe() // no file: a process may be confined
	if err != nil {
		return nil, err
	}
	s.streams = []*os.File{out}
	heard := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(in, 1<<20))
		_, _ = io.Copy(struct{ io.Writer }{io.Discard}, in)
		in.Close()
		heard <- data
	}()
	said = func() []byte {
		out.Close()
		return <-heard
	}
	elapsed := bootClock()
	epoch := elapsed()
	var fd int
	if err := descriptor(out, &fd); err != nil {
		return nil, err
	}
	s.adoptHost(wasi.New(wasi.Config{
		FS: tree, Args: []string{"python3"}, Env: s.image.program.Env,
		Stdin: -1, Stdout: fd, Stderr: fd,
		Now:       bootClock(),
		Monotonic: func() time.Duration { return elapsed().Sub(epoch) },
		Rand:      bootRandom(),
		Waiter:    s,
	}))
	return said, nil
}

// bootClock returns a clock on which each look takes a microsecond. It shows a time
// that is past for every session.
func bootClock() func() time.Time {
	t := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		t = t.Add(time.Microsecond)
		return t
	}
}

// bootRandom returns the random numbers of a boot. Programs draw new ones when their
// session starts.
func bootRandom() io.Reader { return mathrand.NewChaCha8(sha256.Sum256([]byte("engine wasm boot"))) }

// startDocument is what StartFile holds.
type startDocument struct {
	Env  map[string]string `json:"env"`
	Argv []string          `json:"argv"`
	Seed string            `json:"seed"`
	// Recursion is the highest recursion limit that code may set.
	Recursion int64 `json:"recursion,omitempty"`
}

// frameMemory is the memory for each call of a recursion that ends with an exception:
// its frame, and the traceback's.
const frameMemory = 512

// startFile returns the content of StartFile.
func (s *Session) startFile(env []string, memory int64) (string, error) {
	d := startDocument{
		Env:       map[string]string{},
		Argv:      sandbox.Command(s.image.program.Argv, Executable, sandbox.ProgramDir),
		Recursion: max(memory/frameMemory, 1000),
	}
	for _, list := range [][]string{s.image.program.Env, env} {
		for _, kv := range list {
			name, value, ok := strings.Cut(kv, "=")
			if !ok || name == "" {
				return "", fmt.Errorf("%q is no variable of an environment", kv)
			}
			d.Env[name] = value
		}
	}
	seed := make([]byte, 32)
	rand.Read(seed)
	d.Seed = hex.EncodeToString(seed)
	data, err := json.Marshal(d)
	return string(data), err
}

// fileConfig describes the files of a session.
func (s *Session) fileConfig(c SessionConfig) (memfs.Config, error) {
	start, err := s.startFile(c.Env, c.Limits.WithDefaults().MemoryBytes)
	if err != nil {
		return memfs.Config{}, err
	}
	limits := c.Limits.WithDefaults()
	return memfs.Config{
		Workspace: limits.WorkspaceBytes, Tmp: limits.TmpBytes, Packages: limits.PackagesBytes,
		Budget: &s.system.files,
		Files:  map[string]string{StartFile: start},
	}, nil
}

// hostConfig describes the rest.
func (s *Session) hostConfig(c SessionConfig, tree *memfs.FS) (wasi.Config, error) {
	config := wasi.Config{FS: tree, Args: []string{"python3"}, Waiter: s, OpenFiles: c.Limits.WithDefaults().OpenFiles}
	for file, fd := range map[*os.File]*int{c.Stdin: &config.Stdin, c.Stdout: &config.Stdout, c.Stderr: &config.Stderr} {
		if err := descriptor(file, fd); err != nil {
			return config, err
		}
	}
	return config, nil
}

// descriptor sets fd to the descriptor of a file, which does not block. It is valid
// until the file is closed.
func descriptor(file *os.File, fd *int) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(n uintptr) {
		*fd = int(n)
		err = unix.SetNonblock(*fd, true)
	})
	return errors.Join(failed, err)
}

// startSystem gives a session a system with the spec's files.
func (s *Session) startSystem(ctx context.Context, c SessionConfig) error {
	files, err := s.fileConfig(c)
	if err != nil {
		return err
	}
	base, err := s.image.baseWith(ctx, c)
	if err != nil {
		return err
	}
	tree, err := memfs.New(base, files)
	if err != nil {
		return err
	}
	config, err := s.hostConfig(c, tree)
	if err != nil {
		return err
	}
	for _, f := range c.Files {
		mode := fs.FileMode(f.Mode & 0o777)
		if mode == 0 {
			mode = 0o644
		}
		if err := tree.Put(f.Path, strings.NewReader(string(f.Data)), int64(len(f.Data)), mode); err != nil {
			return fmt.Errorf("put %s into the workspace: %w", f.Path, err)
		}
	}
	s.adoptHost(wasi.New(config))
	return nil
}

// restoreSystem gives a session the system of a snapshot.
func (s *Session) restoreSystem(ctx context.Context, c SessionConfig, r io.Reader) error {
	files, err := s.fileConfig(c)
	if err != nil {
		return err
	}
	config, err := s.hostConfig(c, nil)
	if err != nil {
		return err
	}
	base, err := s.image.baseWith(ctx, c)
	if err != nil {
		return err
	}
	host, err := wasi.Restore(config, base, files, r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	s.adoptHost(host)
	return nil
}

// adoptHost lets calls of the module reach a host.
func (s *Session) adoptHost(host *wasi.Host) {
	s.system.host = host
	s.ctx = wasi.WithHost(s.ctx, host)
}

// save writes the files and the descriptors.
func (y *system) save(w io.Writer) error { return y.host.Save(w) }

// close releases what the host holds.
func (y *system) close() {
	if y.host != nil {
		y.host.Close()
	}
}

// Put writes a file of exactly size bytes below /workspace.
func (s *Session) Put(path string, r io.Reader, size int64) error {
	return s.system.host.FS().Put(path, r, size, 0o644)
}

// Get reads a file below /workspace.
func (s *Session) Get(path string) (io.ReadCloser, error) { return s.system.host.FS().Get(path) }

// embedded returns the interpreter that the executable carries.
func embedded() (Interpreter, error) {
	files, err := scripts()
	return Interpreter{
		Module:  interpreter.Module,
		Library: interpreter.Library(),
		Digest:  interpreter.Digest(),
		Scripts: files,
	}, err
}
