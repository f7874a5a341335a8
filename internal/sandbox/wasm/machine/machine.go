//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/cpu"
)

// Config is what a machine is made of.
type Config struct {
	// Code is a file with the code that an Open of the same build has compiled, which is
	// trusted, or an empty one that gets it. Nil: nothing is kept. Open does not close it.
	Code *os.File
	// ScratchDir is a private directory that Open uses while it runs. Empty: one
	// below the system's directory for temporary files.
	ScratchDir string
	// Interpreter is compiled. The zero value is the embedded one.
	Interpreter Interpreter
	// Workers is how many processors a compilation uses. Zero: all.
	Workers int
	// Progress, if set, is called when a compilation begins and when it has ended.
	// It is not called where compiled code is found.
	Progress func(Progress)
}

// Interpreter is CPython with its library.
type Interpreter struct {
	Module  func() ([]byte, error) // the WebAssembly module
	Library string                 // the standard library, a zip file
	Digest  string                 // identifies both
	Scripts map[string]string      // further files of LibraryDir, by name
}

// Progress is how far a compilation is.
type Progress struct {
	Done    bool
	Elapsed time.Duration
	Unkept  error // why the code cannot be used by the next process, if it is done
}

// Places in a session's file system.
const (
	// LibraryDir holds the script that the interpreter starts with.
	LibraryDir = "/usr/lib/sallyport"
	// LibraryFile is the standard library.
	LibraryFile = "/usr/lib/python313.zip"
	// StartFile tells the program what belongs to its session: see [Start].
	StartFile = "/run/sallyport/start.json"
	// Executable is the interpreter's name for itself. There is no such file.
	Executable = "/usr/bin/python3"
)

// A Machine is a compiled interpreter. Its methods are safe for concurrent use.
type Machine struct {
	interpreter Interpreter
	identity    string
	runtime     wazero.Runtime
	code        wazero.CompiledModule
	cache       *codeCache
	pages       *pagemap
	packages    packages
}

// Open compiles the interpreter, or loads its code from the cache. Nothing of the
// machine needs files of the host afterwards.
func Open(ctx context.Context, c Config) (_ *Machine, err error) {
	interpreter, err := c.Interpreter.withDefaults()
	if err != nil {
		return nil, err
	}
	type read struct {
		module []byte
		err    error
	}
	modules := make(chan read, 1)
	go func() {
		module, err := interpreter.Module()
		modules <- read{module, err}
	}()
	cache, cacheErr := openCodeCache(c)
	module := <-modules
	if cacheErr != nil {
		return nil, fmt.Errorf("open the file of compiled code: %w", cacheErr)
	}
	defer func() { err = errors.Join(err, cache.close()) }()
	if module.err != nil {
		return nil, fmt.Errorf("read the interpreter: %w", module.err)
	}

	rc := wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithDebugInfoEnabled(false)
	if cache.wazero != nil {
		rc = rc.WithCompilationCache(cache.wazero)
	}
	m := &Machine{interpreter: interpreter, identity: interpreter.identity(), cache: cache, pages: openPagemap(), packages: packages{most: packagesMemory()}}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, rc)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := m.instantiateHost(ctx); err != nil {
		return nil, fmt.Errorf("prepare the interpreter's host: %w", err)
	}
	if err := m.compile(ctx, c, cache, module.module); err != nil {
		return nil, fmt.Errorf("compile the interpreter: %w", err)
	}
	return m, checkExports(m.code)
}

// compile sets the machine's code.
func (m *Machine) compile(ctx context.Context, c Config, cache *codeCache, module []byte) (err error) {
	begin := time.Now()
	report := func(done bool, unkept error) {
		if c.Progress != nil && !cache.found {
			c.Progress(Progress{Done: done, Elapsed: time.Since(begin), Unkept: unkept})
		}
	}
	workers := c.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	report(false, nil)
	// With more than one worker wazero stops when ctx is done.
	ctx = experimental.WithCompilationWorkers(ctx, max(workers, 2))
	m.code, err = m.runtime.CompileModule(ctx, module)
	if err != nil && cache.wazero != nil && ctx.Err() == nil {
		// What could not be written is in memory.
		cache.unkept = err
		m.code, err = m.runtime.CompileModule(ctx, module)
	}
	if err != nil {
		return err
	}
	if !cache.found {
		// The compiler leaves several hundred megabytes behind.
		debug.FreeOSMemory()
	}
	unkept, err := cache.keep()
	report(true, unkept)
	return err
}

// checkExports returns an error unless a module has what sessions call.
func checkExports(code wazero.CompiledModule) error {
	functions := code.ExportedFunctions()
	for name, results := range map[string]int{"load_data": 0, "_initialize": 0, "boot": 1, "run": 1, "interrupt": 0} {
		f := functions[name]
		if f == nil || len(f.ParamTypes()) != 0 || len(f.ResultTypes()) != results {
			return fmt.Errorf("the interpreter has no function %s of the right type", name)
		}
	}
	if len(code.ExportedMemories()) != 1 {
		return errors.New("the interpreter has no memory that is exported")
	}
	return nil
}

// Close releases the machine. No session of it may be left.
func (m *Machine) Close(ctx context.Context) error {
	m.pages.close()
	return errors.Join(m.runtime.Close(ctx), m.cache.release(ctx))
}

// withDefaults returns i, or the embedded interpreter if i is the zero value.
func (i Interpreter) withDefaults() (Interpreter, error) {
	if i.Module == nil {
		return embedded()
	}
	return i, nil
}

// Binding lists what compiled code and images depend on besides the interpreter: a
// line "what: value" each.
func Binding() string {
	return fmt.Sprintf("compiler: wazero %s, %s\nprocessor: %s %s\n", wazeroVersion(), runtime.Version(), runtime.GOARCH, processor())
}

// wazeroVersion returns the version of wazero in this executable.
func wazeroVersion() string {
	const path = "github.com/tetratelabs/wazero"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, d := range info.Deps {
		if d.Path == path {
			if d.Replace != nil {
				d = d.Replace
			}
			return strings.TrimSpace(d.Version + " " + d.Sum)
		}
	}
	return "unknown"
}

// processor describes the features of the processor that generated code may use.
func processor() string {
	if runtime.GOARCH == "arm64" {
		return fmt.Sprintf("%+v", cpu.ARM64)
	}
	return fmt.Sprintf("%+v", cpu.X86)
}

// pageSize is the unit in which snapshots keep memory. It divides the page size of
// every processor.
const pageSize = 4096

// wasmPage is the unit in which memory grows.
const wasmPage = 65536

// roundUp returns n rounded up to a multiple of unit, a power of two.
func roundUp(n, unit int64) int64 { return (n + unit - 1) &^ (unit - 1) }

// closeFiles closes what is not nil.
func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
