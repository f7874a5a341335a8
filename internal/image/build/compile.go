package build

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// compiler compiles modules and writes an archive of the byte code.
const compiler = `
def compile_all(names):
    import importlib.util, io, json, marshal, os, tarfile
    from importlib._bootstrap_external import _code_to_timestamp_pyc
    class Out:
        def write(self, data):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view[:1 << 16]):]
            return len(data)
    failed = 0
    with tarfile.open(fileobj=Out(), mode="w|", format=tarfile.PAX_FORMAT) as out:
        for name in names:
            try:
                with open(name, "rb") as f:
                    source = f.read()
                status = os.stat(name)
                code = compile(source, name, "exec", dont_inherit=True)
                data = bytes(_code_to_timestamp_pyc(code, int(status.st_mtime), len(source)))
            except Exception:
                failed += 1
                continue
            entry = tarfile.TarInfo(importlib.util.cache_from_source(name).lstrip("/"))
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
        entry = tarfile.TarInfo("failed")
        entry.size = len(str(failed))
        out.addfile(entry, io.BytesIO(str(failed).encode()))
`

// maxCode bounds the byte code of an image.
const maxCode = 4 << 30

// byteCode compiles the installed modules in a sandbox that has them, and writes a
// layer with the result.
func (b *Builder) byteCode(ctx context.Context, root sandbox.Root, in *installation, dir string, w io.Writer, out *Image) error {
	names, err := json.Marshal(in.modules)
	if err != nil {
		return err
	}
	// Into a file first, because nothing from the sandbox is trusted unchecked.
	raw := filepath.Join(dir, "code.raw")
	f, err := os.OpenFile(raw, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	b.tell("compiling", 0, 0)
	sink := &capped{w: f, left: maxCode, tell: func(n int64) {
		b.tell(fmt.Sprintf("compiling %d modules, %d MB of byte code", len(in.modules), n>>20), 0, 0)
	}}
	if err := b.run(ctx, root, compiler+"compile_all(__import__('json').loads("+quote(string(names))+"))\n", sink); err != nil {
		return fmt.Errorf("compiling: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return filterCode(f, in, w, out)
}

// quote returns a Python string literal.
func quote(text string) string {
	raw, _ := json.Marshal(text) // cannot fail
	return string(raw)
}

// filterCode copies the byte code of the modules and nothing else.
func filterCode(from io.Reader, in *installation, to io.Writer, out *Image) error {
	wanted := map[string]bool{}
	for _, m := range in.modules {
		dir, base := path.Split(strings.TrimPrefix(m, "/"))
		wanted[dir+"__pycache__/"+strings.TrimSuffix(base, ".py")] = true
	}
	tags := regexp.MustCompile(`\.[a-z0-9_-]{1,40}\.pyc$`)
	r, w := tar.NewReader(from), tar.NewWriter(to)
	finished := false
	left := int64(maxCode) // a sparse file is larger than its data
	for n := 0; n < maxWheelFiles; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the byte code: %w", err)
		}
		if h.Name == "failed" {
			_, err := fmt.Fscan(io.LimitReader(r, 20), &out.Uncompiled)
			if err != nil {
				return fmt.Errorf("the byte code: %w", err)
			}
			finished = true
			continue
		}
		if stem := tags.ReplaceAllString(h.Name, ""); h.Typeflag != tar.TypeReg || stem == h.Name || !wanted[stem] {
			return fmt.Errorf("the byte code has a file %q", h.Name)
		} else {
			delete(wanted, stem)
		}
		if left -= h.Size; h.Size < 0 || left < 0 {
			return errors.New("the byte code is too large")
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: in.entry(h.Name), Mode: 0o644, Size: h.Size, ModTime: built, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := io.CopyN(w, r, h.Size); err != nil {
			return fmt.Errorf("the byte code: %w", err)
		}
	}
	if !finished {
		return errors.New("the byte code ends too early")
	}
	return w.Close()
}

// capped is a writer with a limit.
type capped struct {
	w       io.Writer
	left, n int64
	tell    func(n int64)
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, errors.New("the byte code is too large")
	}
	c.n += int64(len(p))
	c.tell(c.n)
	return c.w.Write(p)
}
