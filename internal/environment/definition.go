package environment

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/sallyport/sallyport/internal/image/build"
)

// maxFile bounds the files of definitions, and locks.
const maxFile = 8 << 20

// request is a definition with the content of its file.
type request struct {
	*Definition
	digest       string // of what is asked for
	requirements []build.Requirement
	given        *lock // File is one
	pure         bool  // it is for an engine whose environments are archives
}

// key names the files of the environment. A user's name has at most 32 characters,
// so that it never equals the ID of a script's.
func (r *request) key() string {
	switch {
	case r.Name != "" && r.pure:
		return r.Name + pureSuffix
	case r.Name != "":
		return r.Name
	}
	return r.digest[:40]
}

// read reads the definition's file.
func (s *Store) read(d *Definition) (*request, error) {
	own := *d
	pure := s.Pure()
	if pure {
		if err := s.config.Pure.fit(&own); err != nil {
			return nil, err
		}
	}
	r := &request{Definition: &own, requirements: slices.Clone(d.Packages)}
	about := ""
	if d.File != "" {
		raw, err := readFile(d.File)
		if err == nil {
			about, err = r.add(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.File, err)
		}
	}
	sorted := slices.Clone(r.requirements)
	slices.Sort(sorted)
	asked := []any{own.Python, d.Image, slices.Compact(sorted), own.RequiresPython, about}
	if r.pure = pure; pure {
		asked = append(asked, pureEngine)
	}
	raw, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	r.digest = hex.EncodeToString(sum[:])
	return r, nil
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name) // opening a pipe would wait
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a file")
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	return raw, err
}

// add adds what the file asks for, and returns the digest of a lock.
func (r *request) add(raw []byte) (digest string, err error) {
	base := filepath.Base(r.File)
	switch {
	case base == "pylock.toml" || strings.HasPrefix(base, "pylock.") && strings.HasSuffix(base, ".toml"):
		if len(r.Packages) > 0 {
			return "", errors.New("packages cannot be added to a lock: remove them, or lock them too")
		}
		if r.given, err = parseLock(raw); err != nil {
			return "", err
		}
		r.RequiresPython = both(r.RequiresPython, r.given.RequiresPython)
		sum := sha256.Sum256(raw)
		return hex.EncodeToString(sum[:]), nil
	case strings.HasSuffix(base, ".toml"):
		more, requires, err := parseProject(raw)
		r.requirements = append(r.requirements, more...)
		r.RequiresPython = both(r.RequiresPython, requires)
		return "", err
	case len(raw) > 1<<20:
		return "", errors.New("it is larger than 1 MiB")
	}
	more, err := build.ReadRequirements(strings.NewReader(string(raw)))
	r.requirements = append(r.requirements, more...)
	return "", err
}

// both joins two specifiers.
func both(a, b string) string {
	return strings.Trim(a+","+b, ",")
}

// parseProject returns the dependencies of a pyproject.toml, and the versions of
// Python that it requires. Its optional dependencies and groups are not taken, and
// the project itself is not installed.
func parseProject(raw []byte) ([]build.Requirement, string, error) {
	var file struct {
		Project *struct {
			Dependencies   []string `toml:"dependencies"`
			RequiresPython string   `toml:"requires-python"`
			Dynamic        []string `toml:"dynamic"`
		} `toml:"project"`
	}
	if err := decode(raw, &file); err != nil {
		return nil, "", err
	}
	p := file.Project
	if p == nil {
		return nil, "", errors.New("it has no table [project], whose dependencies are installed: add one, or export the packages as requirements.txt")
	}
	if slices.Contains(p.Dynamic, "dependencies") {
		return nil, "", errors.New("its dependencies are dynamic, and only running its build would show them: export them as requirements.txt")
	}
	var out []build.Requirement
	for _, text := range p.Dependencies {
		r, err := build.ParseRequirement(text)
		if err != nil {
			return nil, "", fmt.Errorf("project.dependencies: %w", err)
		}
		out = append(out, r)
	}
	return out, strings.TrimSpace(p.RequiresPython), nil
}

// decode decodes TOML of a bounded size and depth.
func decode(raw []byte, into any) error {
	if len(raw) > maxFile {
		return fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	depth := 0
	for _, c := range raw {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '\n':
		}
		if depth > 1000 { // the decoder recurses
			return errors.New("it is nested too deeply")
		}
	}
	if _, err := toml.Decode(string(raw), into); err != nil {
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return fmt.Errorf("line %d: %s", parse.Position.Line, strings.TrimPrefix(parse.Message, "toml: "))
		}
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	return nil
}
