package environment

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// lock is a pylock.toml (PEP 751). Locks that this program writes are for one
// Python and platform. They have the URLs that the index gave, without credentials.
type lock struct {
	Version        string     `toml:"lock-version"`
	CreatedBy      string     `toml:"created-by"`
	RequiresPython string     `toml:"requires-python,omitempty"`
	DefaultGroups  []string   `toml:"default-groups,omitempty"`
	Packages       []lockItem `toml:"packages"`
	Tool           struct {
		Sallyport lockTool `toml:"sallyport"`
	} `toml:"tool"`
}

type lockItem struct {
	Name      string         `toml:"name"`
	Version   string         `toml:"version,omitempty"`
	Marker    string         `toml:"marker,omitempty"`
	Wheels    []lockWheel    `toml:"wheels,omitempty"`
	VCS       map[string]any `toml:"vcs,omitempty"`
	Directory map[string]any `toml:"directory,omitempty"`
	Archive   map[string]any `toml:"archive,omitempty"`
	Sdist     map[string]any `toml:"sdist,omitempty"`
}

type lockWheel struct {
	Name   string            `toml:"name,omitempty"`
	URL    string            `toml:"url,omitempty"`
	Path   string            `toml:"path,omitempty"`
	Size   int64             `toml:"size,omitzero"`
	Hashes map[string]string `toml:"hashes"`
}

// lockTool says what the lock was made of, and for which Python.
type lockTool struct {
	Definition string `toml:"definition,omitempty"`
	Python     string `toml:"python,omitempty"`
	Platform   string `toml:"platform,omitempty"`
}

var (
	sha256Form = lazyregexp.New(`^[0-9a-f]{64}$`)
	quoted     = lazyregexp.New(`'[^']*'|"[^"]*"`)
	word       = lazyregexp.New(`[A-Za-z_]+`)
)

// maxLocked bounds the packages of a lock.
const maxLocked = 10000

func parseLock(raw []byte) (*lock, error) {
	var l lock
	if err := decode(raw, &l); err != nil {
		return nil, err
	}
	if l.Version != "1.0" && !strings.HasPrefix(l.Version, "1.") {
		return nil, fmt.Errorf("its lock-version is %q, and 1.0 is supported: write it again with another tool", l.Version)
	}
	if len(l.Packages) > maxLocked {
		return nil, fmt.Errorf("it has more than %d packages", maxLocked)
	}
	_, err := l.requirements()
	return &l, err
}

// requirements returns the packages, each with its version and hashes.
func (l *lock) requirements() ([]build.Requirement, error) {
	var out []build.Requirement
	for _, p := range l.Packages {
		skip, err := unselected(p.Marker, len(l.DefaultGroups) > 0)
		if err != nil {
			return nil, fmt.Errorf("the package %s: %w", p.Name, err)
		}
		if skip {
			continue
		}
		var odd string
		switch {
		case p.VCS != nil:
			odd = "from version control"
		case p.Directory != nil:
			odd = "a directory"
		case p.Archive != nil:
			odd = "an archive"
		case len(p.Wheels) == 0:
			odd = "without a wheel"
		}
		if odd != "" {
			return nil, fmt.Errorf("the package %s is %s: only wheels are installed, because building one runs its code here; lock a version that has a wheel", p.Name, odd)
		}
		if p.Version == "" {
			return nil, fmt.Errorf("the package %s has no version", p.Name)
		}
		text := p.Name + "==" + p.Version
		if p.Marker != "" {
			text += " ; " + p.Marker
		}
		for _, w := range p.Wheels {
			sum := strings.ToLower(w.Hashes["sha256"])
			if !sha256Form().MatchString(sum) {
				return nil, fmt.Errorf("a wheel of the package %s has no SHA-256 hash: lock it with another tool", p.Name)
			}
			text += " --hash=sha256:" + sum
		}
		r, err := build.ParseRequirement(text)
		if err != nil {
			return nil, fmt.Errorf("the package %s: %w", p.Name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// unselected reports whether a marker selects a package for an extra or a group
// only. None are installed.
func unselected(marker string, groups bool) (bool, error) {
	words := word().FindAllString(quoted().ReplaceAllString(marker, ""), -1)
	if !slices.Contains(words, "extras") && !slices.Contains(words, "dependency_groups") && !slices.Contains(words, "extra") {
		return false, nil
	}
	others := slices.ContainsFunc(words, func(w string) bool {
		return !slices.Contains([]string{"in", "and", "or", "extras", "extra", "dependency_groups"}, w)
	})
	if groups || slices.Contains(words, "not") || others && slices.Contains(words, "or") {
		return false, fmt.Errorf("whether it is installed depends on extras or groups (%s): export a lock without them", marker)
	}
	return true, nil
}

// newLock returns the lock of resolved packages.
func newLock(digest string, t *build.Target, found []build.Wheel) *lock {
	python := fmt.Sprintf("%d.%d", t.Version[0], t.Version[1])
	l := &lock{Version: "1.0", CreatedBy: "sallyport", RequiresPython: "==" + python + ".*", Packages: []lockItem{}}
	l.Tool.Sallyport = lockTool{Definition: digest, Python: python, Platform: t.Platform()}
	for _, w := range found {
		l.Packages = append(l.Packages, lockItem{Name: w.Package, Version: w.Version,
			Wheels: []lockWheel{{Name: w.File, URL: w.URL, Size: w.Size, Hashes: map[string]string{"sha256": w.SHA256}}}})
	}
	slices.SortFunc(l.Packages, func(a, b lockItem) int { return cmp.Compare(a.Name, b.Name) })
	return l
}

func (l *lock) encode() ([]byte, error) {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.Indent = ""
	err := e.Encode(l)
	return b.Bytes(), err
}
