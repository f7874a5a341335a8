package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"sallyport/internal/private"
)

// compiler makes a bundle of byte code: what __main__.py looks for. Nothing
// checks it against the sources when it is loaded, because the directory is ours
// and is read-only inside.
const compiler = `
import importlib.util, marshal, os, sys
source, shown = sys.argv[1] + "/sallyport_guest", sys.argv[2] + "/sallyport_guest"
codes = {}
for name in sorted(os.listdir(source)):
    module, extension = os.path.splitext(name)
    if extension != ".py" or module == "__main__":
        continue
    with open(os.path.join(source, name), encoding="utf-8") as f:
        code = compile(f.read(), shown + "/" + name, "exec", dont_inherit=True)
    codes["sallyport_guest" if module == "__init__" else "sallyport_guest." + module] = marshal.dumps(code)
data, tag = importlib.util.MAGIC_NUMBER + marshal.dumps(codes), sys.implementation.cache_tag
if sys.argv[3:] == ["-"]:
    sys.stdout.buffer.write(tag.encode() + b"\n" + data)
else:
    with open(source + "/bundle." + tag, "wb") as f:
        f.write(data)
`

// Compile has the interpreter python write byte code into dir, beside the
// sources. Another interpreter than the one that runs in the sandbox is of no
// use, and does no harm.
func Compile(ctx context.Context, python, dir string) error {
	cmd := exec.CommandContext(ctx, python, "-I", "-S", "-c", compiler, dir, Dir)
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("byte-compile the guest with %s: %w: %.500s", python, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Write writes the sources into dir, which exists.
func Write(dir string) error {
	return fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		b, err := sources.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o644)
	})
}

// Install returns a directory below cacheDir with the sources, and byte code
// that the host's interpreter python made if it could. The directory is what a
// sandbox has at [Dir]. It is made once for each pair of guest and interpreter,
// by whoever comes first of any number of processes.
func Install(ctx context.Context, cacheDir, python string) (string, error) {
	fi, err := os.Stat(python)
	if err != nil {
		return "", err
	}
	// What changes when a distribution replaces it.
	interpreter := fmt.Sprintf("%s\n%d\n%d", python, fi.Size(), fi.ModTime().UnixNano())
	return install(ctx, cacheDir, interpreter, func(dir string) error { return Compile(ctx, python, dir) })
}

// InstallFor is Install for an interpreter that the host cannot run. compile is
// given the directory with the sources, and answers what the program of
// CompileArgv wrote there to its standard output. That is the interpreter's own
// affair: nobody else loads it.
func InstallFor(ctx context.Context, cacheDir, interpreter string, compile func(dir string) ([]byte, error)) (string, error) {
	return install(ctx, cacheDir, interpreter, func(dir string) error {
		out, err := compile(dir)
		if err != nil {
			return err
		}
		tag, data, ok := bytes.Cut(out, []byte("\n"))
		if !ok || !cacheTag.Match(tag) {
			return errors.New("byte-compile the guest: no answer")
		}
		return os.WriteFile(filepath.Join(dir, "sallyport_guest", "bundle."+string(tag)), data, 0o644)
	})
}

var cacheTag = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)

// CompileArgv is the command line that writes the guest's byte code to its
// standard output, where the sources are at Dir.
func CompileArgv(python string) []string {
	return []string{python, "-I", "-S", "-c", compiler, Dir, Dir, "-"}
}

// install makes the directory for an interpreter, which the text tells from
// every other.
func install(ctx context.Context, cacheDir, interpreter string, compile func(dir string) error) (string, error) {
	key, err := installKey(interpreter)
	if err != nil {
		return "", err
	}
	// Others may read what is there. They must not have put it there.
	cache, err := private.Passable(cacheDir)
	if errors.Is(err, fs.ErrNotExist) {
		cache, err = private.Open(cacheDir)
	}
	if err != nil {
		return "", err
	}
	defer cache.Close()
	name := "guest-" + key
	dir := filepath.Join(cacheDir, name)
	if info, err := cache.Lstat(name); err == nil && info.IsDir() {
		return dir, nil
	}
	temporary := "new-guest-" + strings.ToLower(rand.Text()[:10])
	if err := cache.Mkdir(temporary, 0o700); err != nil {
		return "", err
	}
	defer cache.RemoveAll(temporary)
	tmp := filepath.Join(cacheDir, temporary)
	if err := cache.Chmod(temporary, 0o755); err != nil {
		return "", err
	}
	if err := Write(tmp); err != nil {
		return "", err
	}
	if err := compile(tmp); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		// Sources alone do as well, only slower.
		if err := dropBundles(tmp); err != nil {
			return "", err
		}
	}
	if err := cache.Rename(temporary, name); err != nil {
		if info, statErr := cache.Lstat(name); statErr == nil && info.IsDir() {
			return dir, nil // another process was first
		}
		return "", err
	}
	return dir, nil
}

// dropBundles removes what a compiler that failed may have left.
func dropBundles(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*", "bundle.*"))
	for _, f := range found {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}

// installKey identifies the guest's sources and the interpreter.
func installKey(interpreter string) (string, error) {
	sum, err := sourcesDigest()
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(fmt.Appendf(bytes.Clone(sum), "%s\n%s\n", interpreter, compiler))
	return hex.EncodeToString(h[:])[:24], nil
}

// sourcesDigest is of what is in the program, and so is the same each time.
// Every start of a sandbox asks for it.
var sourcesDigest = sync.OnceValues(func() ([]byte, error) {
	h := sha256.New()
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
		return err
	})
	return h.Sum(nil), err
})
