package app

import (
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/wire"
)

// packageFacts returns which of the user's environments have a module. Of those that
// are not built yet only the requested packages are known.
func (a *App) packageFacts(module, pkg string) wire.PackageFacts {
	var f wire.PackageFacts
	if len(a.Settings.Environments) == 0 {
		return f
	}
	s, err := a.Environments()
	if err != nil {
		return f
	}
	for _, e := range a.Settings.Environments {
		d, err := a.Definition(e.Name)
		if err != nil {
			continue
		}
		b, err := s.Find(d)
		if err != nil {
			b = nil
		}
		if provides(d, b, module, distributionName(pkg)) {
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
			pkg != "" && slices.ContainsFunc(b.Packages, func(p environment.Package) bool { return distributionName(p.Name) == pkg })
	}
	for _, r := range d.Packages {
		name := distributionName(string(r))
		if name == pkg || pkg == "" && module != "" && name == distributionName(module) {
			return true
		}
	}
	return false
}

// distributionName returns the normalised form of the name that a requirement begins
// with.
func distributionName(name string) string {
	if end := strings.IndexAny(name, " [<>=!~;@("); end >= 0 {
		name = name[:end]
	}
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return strings.Join(parts, "-")
}
