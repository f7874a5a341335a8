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
	{"/scoop/apps/sallyport/", "its folder has a version that the next upgrade removes"},
}

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
