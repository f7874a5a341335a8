package upstream

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Surroundings are what belongs to one client of a Pool. A server is started in
// those of a client that defines it, and shared only with clients whose
// surroundings would start it in the same way.
type Surroundings struct {
	Environ []string // "NAME=value", of which servers get a small part
	// Dir is where programs start whose definition names no directory, and where
	// relative commands begin. Empty means the home directory: a working directory
	// can be gone.
	Dir string
	// Secrets reads what definitions name but do not contain, and Keyring says where
	// it finds a keyring: clients with the same have the same secrets. If Secrets is
	// nil, Options.Secrets does.
	Secrets definitions.Secrets
	Keyring string
	// Logins keeps the key of the user's logins; nil: a file does.
	Logins oauth.Keyring
}

// surroundings are Surroundings as servers get them.
type surroundings struct {
	environ []string
	dir     string
	home    string
	keyring string
	secrets definitions.Secrets
	logins  oauth.Keyring
	network *remote.Network
}

func (p *Pool) surroundings(of Surroundings) *surroundings {
	s := &surroundings{environ: slices.Clone(of.Environ), dir: of.Dir, secrets: of.Secrets, keyring: of.Keyring, logins: of.Logins}
	if s.secrets == nil {
		s.secrets = p.opts.Secrets
	}
	for i, entry := range s.environ {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == "HOME" && filepath.IsAbs(value), name == "USERPROFILE" && s.home == "":
			s.home = value
		case name == "PATH" && runtime.GOOS != "windows":
			s.environ[i] = "PATH=" + canonicalPath(value)
		}
	}
	if info, err := os.Stat(s.home); err != nil || !info.IsDir() {
		s.home = "" // a service's may not exist
	}
	if s.dir == "" {
		s.dir = s.home
	}
	s.network = remote.NewNetwork(s.environ, p.opts.PlainHTTP)
	return s
}

// canonicalPath returns a search path in which each directory is named once, by
// its real name. Directories that do not exist are left out, and so are relative
// ones, which would depend on where a program happens to run. Two clients whose
// paths lead to the same directories get the same, and no link that is changed
// later leads a server elsewhere that another client uses, too.
func canonicalPath(path string) string {
	var out []string
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		real, err := filepath.EvalSymlinks(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			real = filepath.Clean(dir)
		}
		if !slices.Contains(out, real) {
			out = append(out, real)
		}
	}
	return strings.Join(out, string(os.PathListSeparator))
}

// plan is how a program is started: all that the child gets.
type plan struct {
	command string
	args    []string
	dir     string
	env     []string
}

// plan returns how a definition's program is started in these surroundings.
func (p *Pool) plan(def Definition, from *surroundings) plan {
	spec := def.Launch()
	dir := spec.Dir
	if dir == "" {
		dir = from.dir
		if from.home != "" && def.Anywhere() {
			dir = from.home
		}
	}
	return plan{spec.Command, spec.Args, dir, childEnvironment(from.environ, p.opts.Inherit, spec.Env)}
}
