package app

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/wire"
)

// packageFacts returns which of the user's environments have a module. Of those that
// are not built yet only the requested packages are known. The environments are those
// of the engine that code runs in.
func (e *environments) packageFacts(module, pkg string) wire.PackageFacts {
	var f wire.PackageFacts
	a, s := e.app, e.store
	for _, e := range a.Settings.Environments {
		d, err := a.Definition(e.Name)
		if err != nil {
			continue
		}
		b, err := s.Find(d)
		if errors.Is(err, environment.ErrUnfit) {
			continue
		}
		if err != nil {
			b = nil
		}
		if provides(d, b, module, build.Requirement(pkg).Name()) {
			f.Environments = append(f.Environments, e.Name)
		}
	}
	return f
}

// provides reports whether an environment has a module or its package. b is nil while
// it is not built.
func provides(d *environment.Definition, b *environment.Built, module, pkg string) bool {
	if b != nil {
		return module != "" && slices.Contains(b.Modules, module) ||
			pkg != "" && slices.ContainsFunc(b.Packages, func(p environment.Package) bool { return build.Normalized(p.Name) == pkg })
	}
	for _, r := range d.Packages {
		name := r.Name()
		if name == pkg || pkg == "" && module != "" && name == build.Normalized(module) {
			return true
		}
	}
	return false
}

// scriptHeader returns what the header of code asks for, unless that is for another
// Python.
func scriptHeader(code string, major, minor int) ([]string, error) {
	d, err := environment.Inline(code)
	if d == nil || err != nil {
		return nil, err
	}
	if ok, err := environment.Accepts(d.RequiresPython, major, minor); err != nil || !ok {
		return nil, cmp.Or(err, fmt.Errorf("its header requires Python %s, and this is %d.%d", d.RequiresPython, major, minor))
	}
	var out []string
	for _, r := range d.Packages {
		out = append(out, string(r))
	}
	return out, nil
}
