package connect

import (
	"os"
	"path/filepath"
	"strings"
)

// Command is how a client starts Sallyport.
type Command struct {
	Path string
	// OnPath means that the name alone leads to the program, too.
	OnPath bool
	// Vanishes says why the path will not last; empty: nothing is known.
	Vanishes string
}

// Start is what an entry starts.
type Start struct {
	Command string
	Args    []string
}

// Start returns how a client of this user starts the program.
func (c Command) Start() Start { return Start{c.Path, []string{"serve"}} }

// Shared returns how everyone who works in a folder starts the program: by its
// name, or with the launcher that started it here, but never by a path of this
// machine.
func (c Command) Shared() Start {
	path := filepath.ToSlash(c.Path)
	switch {
	case strings.Contains(path, "/_npx/"):
		return Start{"npx", []string{"-y", Name, "serve"}}
	case strings.Contains(path, "/.cache/uv/"), strings.Contains(path, "/uv/archive-v"), strings.Contains(path, "/uv/cache/"):
		return Start{"uvx", []string{Name, "serve"}}
	}
	return Start{Name, []string{"serve"}}
}

// passing lists parts of paths where programs do not stay.
var passing = []struct{ part, why string }{
	{"/go-build", "it is in Go's build cache"},
	{"/_npx/", "it is in npx's cache"},
	{"/.cache/uv/", "it is in uv's cache"},
	{"/uv/archive-v", "it is in uv's cache"},
	{"/Cellar/", "its folder has a version that the next upgrade removes"},
	{"/Caskroom/", "its folder has a version that the next upgrade removes"},
	{"/nix/store/", "its folder has a version that the next upgrade removes"},
	{"/.pnpm/", "its folder has a version that the next upgrade removes"},
	{"/mise/installs/", "its folder has a version that the next upgrade removes"},
	{"/.asdf/installs/", "its folder has a version that the next upgrade removes"},
	{"/.nvm/versions/", ofNode},
	{"/nvm/versions/node/", ofNode},
	{"/fnm/node-versions/", ofNode},
	{"/.nodenv/versions/", ofNode},
	{"/n/versions/node/", ofNode},
	{"/scoop/apps/sallyport/", "its folder has a version that the next upgrade removes"},
}

const ofNode = "it belongs to one version of Node.js and goes with it"

// vanishes returns why a path will not last.
func vanishes(path string, temporary []string) string {
	slashed := filepath.ToSlash(path)
	if strings.Contains(slashed, "/scoop/apps/sallyport/current/") {
		return ""
	}
	for _, p := range passing {
		if strings.Contains(slashed, p.part) {
			return p.why
		}
	}
	if above, _, found := strings.Cut(slashed, "/node_modules/"); found && !strings.HasSuffix(above, "/lib") && !strings.HasSuffix(above, "/npm") {
		return "it belongs to the packages of one folder"
	}
	for _, dir := range temporary {
		if dir != "" && strings.HasPrefix(path, filepath.Clean(dir)+string(filepath.Separator)) {
			return "it is in a folder for temporary files"
		}
	}
	return ""
}

// Find returns how to start the program executable: by the first name in the
// search path that leads to it and lasts, without following its links, because
// an upgrade replaces what they point to.
func Find(executable, searchPath string) Command {
	return find(executable, searchPath, []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"})
}

func find(executable, searchPath string, temporary []string) Command {
	ours, err := os.Stat(executable)
	if err != nil {
		return Command{Path: executable, Vanishes: "it cannot be found any more"}
	}
	same := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && os.SameFile(ours, info)
	}
	var found []string
	extension := ""
	if strings.EqualFold(filepath.Ext(executable), ".exe") {
		extension = ".exe"
	}
	for _, dir := range filepath.SplitList(searchPath) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path := filepath.Join(dir, Name+extension); same(path) {
			found = append(found, path)
		}
	}
	for _, path := range found {
		if vanishes(path, temporary) == "" {
			return Command{Path: path, OnPath: true}
		}
	}
	path := executable
	if len(found) > 0 {
		path = found[0]
	}
	return Command{Path: path, OnPath: len(found) > 0, Vanishes: vanishes(path, temporary)}
}
