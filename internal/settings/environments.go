package settings

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

const (
	// EnvironmentsKey is the key of the section with the environments.
	EnvironmentsKey = "environments"
	// EnvironmentHost names the sandboxes without an environment.
	EnvironmentHost = "host"
)

// maxEnvironments bounds the environments of a configuration file.
const maxEnvironments = 64

var (
	environmentForm = lazyregexp.New(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	versionForm     = lazyregexp.New(`^3\.[0-9]{1,3}(\.[0-9]{1,3})?$`)
	packageForm     = lazyregexp.New(`^[A-Za-z0-9][^@/\\$]*$`)
)

// CheckEnvironmentName returns what is wrong with the name of an environment.
func CheckEnvironmentName(name string) error {
	switch {
	case name == EnvironmentHost:
		return errors.New("host means no environment: choose another name")
	case !environmentForm().MatchString(name):
		return fmt.Errorf("%s is not a name for an environment: use up to 32 lower-case letters, digits, - and _", quote(name))
	}
	return nil
}

// declareEnvironment lists the settings of one environment.
func declareEnvironment(e *Environment) []*setting {
	out := []*setting{
		{key: "python", value: pythonOf(&e.Python),
			help: "The Python that the packages are for: `host` for the one of the setting `python`, a version, or an absolute path."},
		{key: "image", value: text(&e.Image),
			help: "OCI image to add the packages to, in place of a Python of this machine."},
		{key: "packages", value: list(&e.Packages, isPackage, "requirements such as numpy or pandas>=2"),
			help: "Packages, with versions where they matter."},
		{key: "file", value: packagesFile(&e.File),
			help: "A requirements file, a pyproject.toml or a pylock.toml with further packages."},
		{key: "preload", value: list(&e.Preload, isModule, "names of modules"),
			help: "Modules that new sessions have imported already."},
	}
	for _, s := range declareLimits(&e.Limits) {
		if n, ok := s.value.(*scalar[float64]); ok {
			n.word, n.forms = "", asNumber // 0 is the limit of all sandboxes
		}
		out = append(out, s)
	}
	for _, s := range out {
		s.key = EnvironmentsKey + "." + e.Name + "." + s.key
		s.initial, s.legacy, s.fileOnly = "", "", true
		s.origin = Origin{Layer: LayerDefault}
	}
	return out
}

// pythonOf reads what selects the Python of an environment.
func pythonOf(field *string) value {
	v := path(field, func(s string, at place) (string, error) {
		switch {
		case s == EnvironmentHost, versionForm().MatchString(s):
			return s, nil
		case !strings.HasPrefix(s, "~") && !filepath.IsAbs(s):
			return "", errors.New("neither host, nor a version such as 3.12, nor an absolute path")
		}
		return at.absolute(s)
	}, "host, version or absolute path")
	v.forms |= asNumber // 3.12
	return v
}

// packagesFile reads the path of a file of packages. The file need not exist: only
// the environment's build needs it.
func packagesFile(field *string) value {
	return path(field, func(s string, at place) (string, error) {
		if ext := filepath.Ext(s); ext != ".txt" && ext != ".in" && ext != ".toml" {
			return "", errors.New("neither a requirements file (.txt) nor a pyproject.toml or pylock.toml")
		}
		return at.absolute(s)
	}, "path of a file")
}

// isPackage reports whether s may be a requirement. What builds the environment
// reads it in full.
func isPackage(s string) bool {
	return len(s) <= 8<<10 && isPrintable(s) == nil && packageForm().MatchString(s)
}

// environments reads the section of the environments.
func (r *reader) environments(n ast.Node) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	case *ast.NullNode:
		return
	default:
		r.private(LineOf(n), "environments is a section: write names under it", "environments is a section, and %s stands there: write names under it, each with packages: [numpy]", DescribeNode(n))
		return
	}
	lines := map[string]int{}
	for _, pair := range PairsOf(n) {
		name, wrong := KeyOf(pair.Key)
		at := LineOf(pair.Key)
		if wrong == "" {
			if err := CheckEnvironmentName(name); err != nil {
				wrong = err.Error()
			}
		}
		switch before := lines[name]; {
		case wrong != "":
			r.problem(at, "environments: %s", wrong)
		case before > 0:
			r.problem(at, "environments.%s is already set, in line %d", name, before)
		case len(lines) >= maxEnvironments:
			r.problem(at, "there are more than %d environments", maxEnvironments)
			return
		default:
			lines[name] = at
			r.environment(name, at, pair.Value)
		}
	}
	slices.SortFunc(r.target.Environments, func(a, b Environment) int { return cmp.Compare(a.Name, b.Name) })
}

// environment reads one environment. Its settings become settings like others, but
// only the file has them.
func (r *reader) environment(name string, at int, n ast.Node) {
	e := &Environment{Name: name}
	declared := r.declareNamed(e)
	before := len(r.problems.Problems)
	r.mapping(EnvironmentsKey+"."+name, n)
	var given []*setting
	for _, s := range declared {
		if s.origin.Layer == LayerFile {
			given = append(given, s)
		}
	}
	switch failed := len(r.problems.Problems) > before || r.full(); {
	case failed:
	case len(given) == 0:
		r.problem(at, "environments.%s has nothing in it: write packages: [numpy] under it, or remove it", name)
	case e.Python != "" && e.Image != "":
		r.problem(at, "environments.%s has both python and image: remove one of them", name)
	}
	r.target.entries = append(r.target.entries, given...)
	r.target.Environments = append(r.target.Environments, *e)
}

// declareNamed makes the keys of an environment known.
func (l *loader) declareNamed(e *Environment) []*setting {
	declared := declareEnvironment(e)
	for _, s := range declared {
		l.settings[s.key] = s
		l.keys = append(l.keys, s.key)
	}
	return declared
}

// declareFor makes a key known if it is one of an environment.
func (l *loader) declareFor(key string) {
	parts := strings.SplitN(key, ".", 3)
	if len(parts) == 3 && parts[0] == EnvironmentsKey && CheckEnvironmentName(parts[1]) == nil {
		l.declareNamed(&Environment{Name: parts[1]})
	}
}

// environmentNames lists the environments, and the name that means none.
func (s *Settings) environmentNames() []string {
	names := []string{EnvironmentHost}
	for _, e := range s.Environments {
		names = append(names, e.Name)
	}
	return names
}

// CheckEnvironment returns what is wrong with the choice of an environment.
func (s *Settings) CheckEnvironment(name string) error {
	names := s.environmentNames()
	if slices.Contains(names, name) {
		return nil
	}
	if len(names) == 1 {
		return fmt.Errorf("there is no environment %s: 'sallyport env add %s -p PACKAGE' adds one", quote(name), clip(cmp.Or(name, "NAME")))
	}
	if best, near := nearest(name, names, "\x00"); near {
		return fmt.Errorf("there is no environment %s; did you mean %s?", quote(name), best)
	}
	return fmt.Errorf("there is no environment %s; there are %s", quote(name), strings.Join(names[1:], ", "))
}
