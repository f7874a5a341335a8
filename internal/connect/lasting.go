package connect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

const (
	versioned = "its folder has a version that the next upgrade removes"
	ofNode    = "it belongs to one version of Node.js and goes with it"
)

// caches match paths of programs that a launcher fetched to run them once. A link
// to one lasts no longer.
var caches = []struct {
	path     func() *regexp.Regexp
	why      string
	launcher string
}{
	{lazyregexp.New(`/_npx/[^/]+/node_modules/`), "it is in npx's cache", "npx"},
	{lazyregexp.New(`/(archive|environments|builds)-v\d+/`), "it is in uv's cache", "uvx"},
	{lazyregexp.New(`/\.cache/uv/`), "it is in uv's cache", "uvx"},
	{lazyregexp.New(`/pnpm/dlx/|/dlx-\d+/\.pnpm/`), "it is in pnpm's cache", "pnpm"},
	{lazyregexp.New(`/\.?bunx-\d+[-/]`), "it is in bunx's cache", "bunx"},
	{lazyregexp.New(`/dlx-[^/]+/node_modules/|/xfs-[^/]+/dlx-`), "it is in Yarn's cache", "yarn"},
	{lazyregexp.New(`/pipx/(\.cache/)?[0-9a-f]{12,}/`), "it is in pipx's cache", "pipx"},
	{lazyregexp.New(`/go-build`), "it is in Go's build cache", ""},
}

// passing lists parts of paths where the next upgrade removes programs.
var passing = []struct{ part, why string }{
	{"/Cellar/", versioned},
	{"/Caskroom/", versioned},
	{"/nix/store/", versioned},
	{"/.pnpm/", versioned},
	{"/mise/installs/", versioned},
	{"/.asdf/installs/", versioned},
	{"/scoop/apps/sallyport/", versioned},
	{"/.nvm/versions/", ofNode},
	{"/nvm/versions/node/", ofNode},
	{"/fnm/node-versions/", ofNode},
	{"/fnm_multishells/", "it belongs to one shell and goes with it"},
	{"/.nodenv/versions/", ofNode},
	{"/n/versions/node/", ofNode},
}

// vanishes returns why the file at a path will not last; empty: nothing is known.
// launcher is the program that fetched it into a cache, and cache means that
// there is no use in a link to it.
func vanishes(path string, temporary []string) (why, launcher string, cache bool) {
	slashed := filepath.ToSlash(path)
	for _, c := range caches {
		if c.path().MatchString(slashed) {
			return c.why, c.launcher, true
		}
	}
	if strings.Contains(slashed, "/scoop/apps/sallyport/current/") {
		return "", "", false
	}
	for _, p := range passing {
		if strings.Contains(slashed, p.part) {
			return p.why, "", false
		}
	}
	if above, _, found := strings.Cut(slashed, "/node_modules/"); found && !strings.HasSuffix(above, "/lib") && !strings.HasSuffix(above, "/npm") {
		return "it belongs to the packages of one folder", "", false
	}
	for _, dir := range temporary {
		if dir != "" && strings.HasPrefix(path, filepath.Clean(dir)+string(filepath.Separator)) {
			return "it is in a folder for temporary files", "", false
		}
	}
	return "", "", false
}

// lasts reports whether a path leads to a program that stays there: what a link
// points to may be replaced with each upgrade, but is in no cache.
func lasts(path string, temporary []string) bool {
	if why, _, _ := vanishes(path, temporary); why != "" {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	_, _, cache := vanishes(real, nil)
	return !cache
}

// Fleeting returns why what a client starts will not be there for long, or is not
// there any more; empty: nothing is known.
func (r Running) Fleeting(l *definitions.Launch) string {
	for i, path := range append([]string{l.Command}, l.Args...) {
		if !filepath.IsAbs(path) {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && i == 0 {
			return path + " does not exist any more"
		}
		why, _, cache := vanishes(path, r.Temporary)
		if real, err := filepath.EvalSymlinks(path); err == nil && why == "" {
			why, _, cache = vanishes(real, nil)
			if !cache {
				why = ""
			}
		}
		if why != "" && (i == 0 || cache) {
			return path + " will not stay: " + why
		}
	}
	return ""
}
