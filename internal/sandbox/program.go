package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

// Paths at which a sandbox with a root of its own finds the engine's files,
// read-only except for PackagesDir.
const (
	// ProgramDir holds the files of the program.
	ProgramDir = "/opt/sallyport"
	// FilesDir holds the files of the spec, which the program copies into
	// /workspace before it is ready. It need not exist.
	FilesDir = "/opt/sallyport-files"
	// ModesFile holds the permission bits of those files that are not 0644: see
	// [Modes]. It need not exist.
	ModesFile = FilesDir + ".modes"
	// PackagesDir is for packages that code adds while it runs. It is empty at first,
	// in memory, and the only place that code can write to and execute from.
	PackagesDir = "/packages"
)

// Environment variables with the paths of directories in a sandbox that has no
// root of its own. The program removes them.
const (
	WorkspaceEnv = "SALLYPORT_WORKSPACE" // instead of /workspace
	FilesEnv     = "SALLYPORT_FILES"     // instead of FilesDir
	PackagesEnv  = "SALLYPORT_PACKAGES"  // instead of PackagesDir
)

// InterpreterArg stands for the path of the interpreter in a program's commands.
// Only the engine knows it: it depends on the root.
const InterpreterArg = "{interpreter}"

// A Program is what a sandbox runs: the first process, which speaks frames
// (package wire) on its standard streams. The package of a language creates it;
// engines do not know the language. It is immutable once it is in use.
type Program struct {
	// Language is the name of the language, for messages.
	Language string
	// Interpreter is the usual name of the interpreter's executable.
	Interpreter string
	// Find finds an interpreter on the host: name is an absolute path, or a
	// name to look up in path. It is used by engines whose default root shows
	// the host's files.
	Find func(ctx context.Context, name, path string) (*Runtime, error)
	// Install tells the user how to install an interpreter that Find finds.
	Install string

	// Files are visible in the sandbox, read-only.
	Files fs.FS
	// Argv is the command. In it and in Compile, [InterpreterArg] stands for
	// the interpreter, and paths below [ProgramDir] for Files: see [Command].
	Argv []string
	// Env is its environment, NAME=VALUE each. Variables of the root and of the
	// spec replace those of the same name.
	Env []string
	// Online are variables that replace some of Env in a sandbox with a network.
	Online []string
	// Compile is a command that makes later starts faster, run once for each
	// interpreter: it writes the end of a file's name, a newline and the file's
	// content to its standard output. The file becomes one of Files; Compiled
	// is the beginning of its path. If Compile is nil or fails, the program
	// starts without the file.
	Compile  []string
	Compiled string
	// Loader starts the program where no files can be made visible. Nil: it
	// cannot be started there.
	Loader *Loader

	once   sync.Once
	digest string
	err    error
}

// A Runtime is an interpreter of the host, and what a sandbox needs to run it
// besides the host's programs and libraries.
type Runtime struct {
	Executable string // absolute, with symbolic links resolved
	Prefix     string // the directory that holds its bin and lib
	Version    string // for the user
	// Private is the path of Prefix in the sandbox if Prefix lies among a
	// user's own files, whose names the sandbox must not learn.
	Private string
	// Show lists further paths of the host that are visible in a sandbox at the
	// same place.
	Show []string
	// Replace maps paths in the sandbox to directories of the host that are
	// mounted there. Paths below Prefix move with it.
	Replace map[string]string
	// Depends lists paths of which at least one changes when something is
	// installed for the interpreter. They need not exist.
	Depends []string
}

// A Loader starts a program in a root in which nothing but the interpreter is
// known to exist. It reads itself, then records, from its standard input, which
// carries frames afterwards. A record is a letter, two numbers of eight
// hexadecimal digits, and as many bytes of name and of data:
//
//	m  a file of the program, by its path
//	b  what Compile made
//	f  a file for /workspace, or for a copy of a folder if its path is absolute; the
//	   name is its permission bits in octal digits, with those of its type for a
//	   directory or a link,
//	   a space and its path
//	e  a variable of the environment
//	t  run Inspect in place of the program
//	.  the end; the data is written to standard error as a receipt
type Loader struct {
	// Argv is the command. The engine adds a last argument, the number of bytes
	// of the script that the command reads.
	Argv []string
	// Script is the script that the command reads.
	Script []byte
	// Inspect describes the sandbox from inside: it writes one JSON object on a
	// line, then the bytes that Compile would make without the name, and ends
	// with its standard input. Package container knows the object's members.
	Inspect []byte
}

// Command returns a program's command for the interpreter at a path, where the
// program's files lie in dir.
func Command(argv []string, interpreter, dir string) []string {
	out := make([]string, len(argv))
	for i, a := range argv {
		rest, below := strings.CutPrefix(a, ProgramDir)
		switch {
		case a == InterpreterArg:
			out[i] = interpreter
		case below && (rest == "" || rest[0] == '/'):
			out[i] = dir + rest
		default:
			out[i] = a
		}
	}
	return out
}

// Digest identifies the whole content of the program.
func (p *Program) Digest() (string, error) {
	p.once.Do(func() {
		h := sha256.New()
		add := func(name string, data []byte) { fmt.Fprintf(h, "%q %d\n%s", name, len(data), data) }
		p.err = fs.WalkDir(p.Files, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(p.Files, name)
			add(name, data)
			return err
		})
		fmt.Fprintf(h, "%q\n%q\n%q\n%q\n", p.Argv, p.Env, p.Compile, p.Compiled)
		if p.Loader != nil {
			fmt.Fprintf(h, "%q\n", p.Loader.Argv)
			add("script", p.Loader.Script)
			add("inspect", p.Loader.Inspect)
		}
		p.digest = hex.EncodeToString(h.Sum(nil))
	})
	return p.digest, p.err
}

// check returns an error if a program is malformed.
func (p *Program) check() error {
	switch {
	case p.Files == nil:
		return errors.New("a program without files")
	case len(p.Argv) == 0:
		return errors.New("a program without a command")
	}
	for _, kv := range p.Env {
		if name, value, ok := strings.Cut(kv, "="); !ok || !validEnv().MatchString(name) || strings.ContainsRune(value, 0) {
			return fmt.Errorf("environment variable %q of the program", name)
		}
	}
	return nil
}

// Modes returns the content of [ModesFile] for files, or nil where all have the
// usual mode: for each other an octal number, a space, its path and a zero byte.
func Modes(files []File) []byte {
	var modes []byte
	for _, f := range files {
		if mode := f.Mode & 0o777; mode != 0 {
			modes = fmt.Appendf(modes, "%o %s\x00", mode, f.Path)
		}
	}
	return modes
}
