package build

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// An Addition is what a running Python lacks. Everything in it but Allowed comes from
// the sandbox.
type Addition struct {
	Target       *Target
	Requirements []Requirement
	// Present are the packages that are there, by normalized name, with their
	// versions. They are kept, and what they need is taken to be there.
	Present map[string]string
	// Allowed are names with versions that the user restricts, whoever needs them.
	Allowed []string
}

var (
	versionForm = lazyregexp.New(`^([0-9]+!)?[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?$`)
	constraint  = lazyregexp.New(`The user requested \(constraint\) ([A-Za-z0-9._-]*[A-Za-z0-9])`)
	nameForm    = lazyregexp.New(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
)

// Add chooses the wheels that an addition needs. dir is an empty folder.
func (p Pip) Add(ctx context.Context, a *Addition, dir string) ([]Wheel, error) {
	platforms, err := a.Target.platforms()
	if err != nil {
		return nil, err
	}
	present := filepath.Join(dir, "present")
	if err := os.Mkdir(present, 0o700); err != nil {
		return nil, err
	}
	extended := map[string]bool{} // whose extras an index has to name
	for _, r := range a.Requirements {
		extended[r.Name()] = strings.Contains(string(r), "[")
	}
	constraints := slices.Clone(a.Allowed)
	known := map[string]bool{}
	for name, version := range a.Present {
		if !nameForm().MatchString(name) || !versionForm().MatchString(version) || len(name)+len(version) > 100 {
			continue
		}
		known[name] = true
		constraints = append(constraints, name+"=="+version)
		if !extended[name] {
			tag := a.Target.abis()[0] + "-" + a.Target.abis()[0] + "-" + platforms[0]
			if err := standIn(present, name, version, tag); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(constraints)
	file := filepath.Join(dir, "constraints.txt")
	if err := os.WriteFile(file, []byte(strings.Join(constraints, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	p.extra = []string{"--constraint", file, "--find-links", present}
	found, err := p.Resolve(ctx, a.Target, a.Requirements, dir)
	return slices.DeleteFunc(found, func(w Wheel) bool { return known[w.Package] }), err
}

// Conflicts says which of the addition's constraints made pip fail.
func (a *Addition) Conflicts(err error) string {
	var pip *PipError
	if !errors.As(err, &pip) {
		return ""
	}
	text := ""
	for _, m := range constraint().FindAllStringSubmatch(pip.said, -1) {
		name := Normalized(m[1])
		if version := a.Present[name]; version != "" {
			text += fmt.Sprintf(". %s %s is there and is kept: ask for a version that fits it, or use an environment, or a new session if code added it", name, version)
		}
		for _, allowed := range a.Allowed {
			if Requirement(allowed).Name() == name {
				text += ". policy.packages allows " + allowed
			}
		}
	}
	return text
}

// standIn writes a wheel that stands for a package that is there. Its tags are the
// best for the target and its build number is high, so that pip prefers it to that of
// an index, which may not have the package at all.
func standIn(dir, name, version, tag string) error {
	base := strings.ReplaceAll(name, "-", "_") + "-" + version
	f, err := os.OpenFile(filepath.Join(dir, base+"-999999999-"+tag+".whl"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	z := zip.NewWriter(f)
	info := base + ".dist-info/"
	for _, m := range [][2]string{
		{"METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{"WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: " + tag + "\n"}, {"RECORD", ""},
	} {
		to, failed := z.Create(info + m[0])
		if failed == nil {
			_, failed = io.WriteString(to, m[1])
		}
		err = errors.Join(err, failed)
	}
	return errors.Join(err, z.Close(), f.Close())
}

// Pins returns requirements that only these wheels fulfil.
func Pins(wheels []Wheel) ([]Requirement, error) {
	var out []Requirement
	for _, w := range wheels {
		r, err := ParseRequirement(w.Package + "==" + w.Version + " --hash=sha256:" + w.SHA256)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// Archive writes the wheels in dir as one archive of a folder from which Python can
// import. Scripts are in its folder bin, and start the interpreter python.
func Archive(ctx context.Context, w io.Writer, dir, python string) error {
	files, err := wheelsIn(dir)
	if err != nil {
		return err
	}
	in := &installation{
		target: &Target{Purelib: "/", Platlib: "/", Scripts: "/bin", Data: "/"},
		python: python, written: map[string]bool{},
	}
	return in.write(ctx, w, dir, files)
}

// An OversizeError reports packages that take more than they may.
type OversizeError struct{ Limit int64 }

func (e *OversizeError) Error() string {
	return fmt.Sprintf("the packages take more than %d MB (setting limits.packages)", e.Limit/1e6)
}

// within ends the context when the files in dir take more than MaxBytes.
func (p Pip) within(ctx context.Context, dir string) (context.Context, func()) {
	if p.MaxBytes == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for ctx.Err() == nil {
			if sizeOf(dir) > p.MaxBytes {
				cancel(&OversizeError{p.MaxBytes})
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

func sizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}
