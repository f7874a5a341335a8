// Package python makes the program that runs Python code in a sandbox.
//
// # The guest
//
// The directory sallyport_guest is that program, the guest. The sandbox's first
// process, init, forks once. The child is the interpreter: it reads and writes
// control frames itself, so that a tool call passes through no other process.
// The parent stays small: it owns the sandbox's standard error, drains what the
// interpreter and its children write to descriptors 1 and 2, reaps orphans,
// passes signals on, and reports the interpreter's death.
//
// The end of an execution arrives twice: the interpreter sends a done frame, and
// hands init a nonce that init sends after everything that was written before.
//
// On an engine without processes the guest is a single process: see
// [SingleProcess].
//
// # The interpreter
//
// On a host, [FindInterpreter] finds the interpreter that a name means, and what
// a sandbox has to show for it: its library, its packages, or those of a virtual
// environment.
//
// # Starting it
//
// The file loader.py starts the guest where an engine cannot show files to a
// sandbox, and selfinspect.py describes such a sandbox from
// inside.
package python

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/sallyport/sallyport/internal/sandbox"
)

//go:embed sallyport_guest/*.py
var sources embed.FS

// Files returns the guest's sources, as they lie in [sandbox.ProgramDir].
func Files() fs.FS { return sources }

//go:embed loader.py
var loader []byte

//go:embed selfinspect.py
var inspect []byte

// main is the guest's main module in a sandbox.
const main = sandbox.ProgramDir + "/sallyport_guest/__main__.py"

// opening is the program of the interpreter's command line: it reads the loader
// from standard input, as many bytes as its argument says. Its own names stay
// few, because they are those of the main module.
const opening = `import sys,posix
data=b""
while len(data)<int(sys.argv[1]):data+=posix.read(0,int(sys.argv[1])-len(data))or posix._exit(0)
exec(compile(data,"` + main + `","exec"),{"__name__":"sallyport"})`

// compiler makes a bundle of byte code: what __main__.py looks for. Nothing
// checks it against the sources when it is loaded, because the directory is ours
// and is read-only inside.
const compiler = `
import importlib.util, marshal, os, sys
source, shown = sys.argv[1] + "/sallyport_guest", "` + sandbox.ProgramDir + `/sallyport_guest"
codes = {}
for name in sorted(os.listdir(source)):
    module, extension = os.path.splitext(name)
    if extension != ".py" or module == "__main__":
        continue
    with open(os.path.join(source, name), encoding="utf-8") as f:
        code = compile(f.read(), shown + "/" + name, "exec", dont_inherit=True)
    codes["sallyport_guest" if module == "__init__" else "sallyport_guest." + module] = marshal.dumps(code)
data = importlib.util.MAGIC_NUMBER + marshal.dumps(codes)
sys.stdout.buffer.write(sys.implementation.cache_tag.encode() + b"\n" + data)
`

// SingleProcess returns the guest as a single process, for an engine that has no
// processes: the same files, with a command line that asks for it and without a
// loader. Such a guest needs no fork, pipe, dup2, poll or threads. User code's
// output is captured at Python's own streams, and descriptors 0 to 2 carry frames
// only.
func SingleProcess() *sandbox.Program {
	p := Program()
	return &sandbox.Program{
		Language: p.Language, Interpreter: p.Interpreter, Find: p.Find, Install: p.Install,
		Files: p.Files, Argv: append(slices.Clone(p.Argv), "single"), Env: p.Env,
		Compile: p.Compile, Compiled: p.Compiled,
	}
}

// Program returns the guest and how to start it, the same value each time.
var Program = sync.OnceValue(func() *sandbox.Program {
	return &sandbox.Program{
		Language:    "Python",
		Interpreter: "python3",
		Find:        find,
		Install:     fmt.Sprintf("install Python %s or newer (Debian, Ubuntu: apt-get install python3; Fedora: dnf install python3; Alpine: apk add python3), or name one with --python", MinPython),

		Files: sources,
		Argv:  []string{sandbox.InterpreterArg, "-I", "-S", "-X", "utf8", main},
		Env: []string{
			"PATH=/usr/local/bin:/usr/bin:/bin",
			"HOME=/workspace",
			"TMPDIR=/tmp",
			"LANG=C.UTF-8",
			"USER=sandbox",
			"PYTHONDONTWRITEBYTECODE=1",
			"MPLBACKEND=Agg",
			"MPLCONFIGDIR=/tmp/matplotlib",
			// Otherwise each thread reserves 64 MiB of the address space, which is
			// limited: see pressure.py.
			"MALLOC_ARENA_MAX=2",
			// Installers fail at once instead of trying for minutes. Files of the
			// sandbox can be installed.
			"PIP_NO_INDEX=1",
			"UV_OFFLINE=1",
			"CONDA_OFFLINE=true",
		},
		Online:   []string{"PIP_NO_INDEX=0", "UV_OFFLINE=0", "CONDA_OFFLINE=false"},
		Compile:  []string{sandbox.InterpreterArg, "-I", "-S", "-c", compiler, sandbox.ProgramDir},
		Compiled: "sallyport_guest/bundle.",
		Loader: &sandbox.Loader{
			Argv:    []string{sandbox.InterpreterArg, "-I", "-S", "-X", "utf8", "-c", opening},
			Script:  loader,
			Inspect: inspect,
		},
	}
})
