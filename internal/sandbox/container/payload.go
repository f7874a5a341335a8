package container

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
)

//go:embed bootstrap.py
var bootstrap string

//go:embed trial.py
var trialProgram string

// opening is the program of the interpreter's command line: it reads the
// bootstrap from standard input, as many bytes as its argument says. Its own
// names stay few, because they are those of the main module.
const opening = `import sys,posix
data=b""
while len(data)<int(sys.argv[1]):data+=posix.read(0,int(sys.argv[1])-len(data))or posix._exit(0)
exec(compile(data,"` + guest.Dir + `/sallyport_guest/__main__.py","exec"),{"__name__":"sallyport"})`

// command is what a container runs, after the interpreter's name.
func command() []string {
	return []string{"-I", "-S", "-X", "utf8", "-c", opening, strconv.Itoa(len(bootstrap))}
}

// A payload is what a container reads before frames.
type payload struct{ bytes.Buffer }

func (p *payload) add(kind byte, name string, data []byte) {
	fmt.Fprintf(p, "%c%08x%08x", kind, len(name), len(data))
	p.WriteString(name)
	p.Write(data)
}

// sources adds the guest's.
func (p *payload) sources() error {
	fsys := guest.Files()
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if module := moduleOf(name); module != "" {
			p.add('m', module, text)
		}
		return nil
	})
}

// moduleOf is the module's name, or "" for what is none.
func moduleOf(file string) string {
	dir, base := path.Split(file)
	name, isPython := strings.CutSuffix(base, ".py")
	pkg := strings.ReplaceAll(strings.Trim(dir, "/"), "/", ".")
	switch {
	case !isPython, name == "__main__":
		return ""
	case name == "__init__":
		return pkg
	}
	return pkg + "." + name
}

// environment is that of a sandbox. The search path is the image's own.
func environment(spec *sandbox.Spec) map[string]string {
	env := map[string]string{}
	for _, kv := range guest.Environ() {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "PATH" {
			env[k] = v
		}
	}
	maps.Copy(env, spec.Env)
	return env
}

// newPayload is what starts a guest: byte code where the image's interpreter
// has made some, else sources. marker is what the container answers on its
// standard error when it has read all.
func newPayload(spec *sandbox.Spec, bundle []byte, marker string) (*payload, error) {
	p := &payload{}
	p.WriteString(bootstrap)
	if len(bundle) > 0 {
		p.add('b', "", bundle)
	} else if err := p.sources(); err != nil {
		return nil, err
	}
	for _, f := range spec.Files {
		mode := f.Mode & 0o777
		if mode == 0 {
			mode = 0o644
		}
		p.add('f', fmt.Sprintf("%o %s", mode, f.Path), f.Data)
	}
	env := environment(spec)
	for _, k := range slices.Sorted(maps.Keys(env)) {
		p.add('e', k, []byte(env[k]))
	}
	p.add('.', "", []byte(marker))
	return p, nil
}

// newTrialPayload is what has a container describe itself.
func newTrialPayload(marker string) (*payload, error) {
	p := &payload{}
	p.WriteString(bootstrap)
	if err := p.sources(); err != nil {
		return nil, err
	}
	p.add('t', "", []byte(trialProgram))
	p.add('.', "", []byte(marker))
	return p, nil
}
