package connect

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// A Launcher starts Sallyport from its own cache, and fills the cache if it is
// empty.
type Launcher struct {
	Name  string
	Start Start // with the launcher's path, where that lasts
	// Node means that clients need Node.js in their search path.
	Node bool

	shared Start // without a path of this machine
}

// A fetcher is a launcher as a command line.
type fetcher struct {
	name string
	args []string // before the name of the program
	from string   // the flag before a package that is not the registry's
	node bool
}

var fetchers = []fetcher{
	{"npx", []string{"-y"}, "--package", true},
	{"pnpm", []string{"--silent", "dlx"}, "--package", true},
	{"yarn", []string{"dlx", "--quiet"}, "", true},
	{"bunx", nil, "", true},
	{"uvx", nil, "--from", false},
	{"pipx", []string{"run"}, "--spec", false},
}

// launcher returns the launcher of a name.
func (r Running) launcher(name, real string) *Launcher {
	l := fetchers[slices.IndexFunc(fetchers, func(l fetcher) bool { return l.name == name })]
	args := slices.Clone(l.args)
	if from := origin(real); from != "" && l.from != "" {
		args = append(args, l.from, from)
	}
	args = append(args, Name)
	out := &Launcher{Name: name, Node: l.node, shared: Start{name, append(slices.Clone(args), "serve"), len(args), name}}
	out.Start = out.shared
	switch {
	case r.OS == "windows" && l.node && name != "bunx":
		// Clients cannot start a script without a shell.
		args = append([]string{"/c", name}, args...)
		out.Start = Start{"cmd", append(args, "serve"), len(args), name}
	case r.OS == "windows":
	default:
		path := r.program(name)
		if uv := r.lookUp("UV"); path == "" && name == "uvx" && filepath.IsAbs(uv) {
			path = r.sibling(uv, name)
		}
		if path != "" {
			out.Start.Command = path
		}
	}
	return out
}

// sibling returns the path of a program next to another, if it lasts or the search
// path has no other; empty: there is none.
func (r Running) sibling(other, name string) string {
	path := filepath.Join(filepath.Dir(other), name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	elsewhere := slices.ContainsFunc(filepath.SplitList(r.lookUp("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
	if elsewhere && !lasts(path, r.Temporary) {
		return ""
	}
	return path
}

// nodeLauncher returns which launcher of Node.js's packages started this program.
func (r Running) nodeLauncher() string {
	agent, _, _ := strings.Cut(r.lookUp("npm_config_user_agent"), "/")
	switch agent {
	case "pnpm", "yarn":
		return agent
	case "bun":
		return "bunx"
	}
	return "npx"
}

// origin returns where the package of a program in a cache comes from; empty: from
// the registry, or it is unknown.
func origin(real string) string {
	const most = 64 << 10
	read := func(path string, v any) bool {
		info, err := os.Stat(path)
		if err != nil || info.Size() > most {
			return false
		}
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, v) == nil
	}
	if at := strings.Index(filepath.ToSlash(real), "/node_modules/"); at >= 0 {
		var about struct {
			Dependencies map[string]string `json:"dependencies"`
		}
		if !read(filepath.Join(real[:at], "package.json"), &about) {
			return ""
		}
		spec := about.Dependencies[Name]
		if path, local := strings.CutPrefix(spec, "file:"); local {
			if !filepath.IsAbs(path) {
				path = filepath.Join(real[:at], filepath.FromSlash(path))
			}
			return path
		}
		if strings.Contains(spec, ":") {
			return spec
		}
		return ""
	}
	for _, pattern := range []string{"lib/python*/site-packages", "Lib/site-packages"} {
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(real)), filepath.FromSlash(pattern), Name+"-*.dist-info", "direct_url.json"))
		for _, path := range found {
			var direct struct {
				URL string `json:"url"`
				VCS *struct {
					Kind     string `json:"vcs"`
					Revision string `json:"requested_revision"`
				} `json:"vcs_info"`
			}
			if !read(path, &direct) {
				continue
			}
			if vcs := direct.VCS; vcs != nil {
				at := ""
				if vcs.Revision != "" {
					at = "@" + vcs.Revision
				}
				return vcs.Kind + "+" + direct.URL + at
			}
			if u, err := url.Parse(direct.URL); err == nil && u.Scheme == "file" && u.Path != "" {
				return filepath.FromSlash(u.Path)
			}
			return direct.URL
		}
	}
	return ""
}

// words of launchers that come before the package, and flags with a value.
var (
	steps  = []string{"exec", "x", "dlx", "run", "tool"}
	valued = []string{"--package", "-p", "--from", "--spec", "--python", "--with", "--index-url", "--default-index", "--index"}
)

// launched returns which launcher starts Sallyport, if one does, and the arguments
// that Sallyport gets.
func launched(l *definitions.Launch) (launcher string, own []string, ok bool) {
	words := append([]string{l.Command}, l.Args...)
	if base(words[0]) == "cmd" && len(words) > 2 && strings.EqualFold(words[1], "/c") {
		words = words[2:]
	}
	launcher = base(words[0])
	switch launcher {
	case "npm":
		launcher = "npx"
	case "uv":
		launcher = "uvx"
	case "pnpx":
		launcher = "pnpm"
	case "bun":
		launcher = "bunx"
	}
	for i := 1; i < len(words); i++ {
		switch word := words[i]; {
		case slices.Contains(valued, word):
			i++
		case strings.HasPrefix(word, "-"), slices.Contains(steps, word):
		case base(word) == Name:
			known := slices.ContainsFunc(fetchers, func(l fetcher) bool { return l.name == launcher })
			return launcher, slices.Clone(words[i+1:]), known
		default:
			return "", nil, false
		}
	}
	return "", nil, false
}

// base returns the name of a program or package without folder, suffix and version.
func base(word string) string {
	word = strings.ToLower(word)
	word = word[strings.LastIndexAny(word, `/\`)+1:]
	if i := strings.IndexAny(word, "@=<>~["); i > 0 {
		word = word[:i]
	}
	for _, suffix := range []string{".exe", ".cmd"} {
		word = strings.TrimSuffix(word, suffix)
	}
	return word
}
