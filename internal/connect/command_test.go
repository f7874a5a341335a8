package connect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// running returns this program at a path below a folder, started with variables. In
// variables and paths, ~ is the folder.
func running(t *testing.T, dir, path string, variables ...string) connect.Running {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(path))
	put(t, file, "x", 0o755)
	return connect.Running{Executable: file, OS: "linux", Home: filepath.Join(dir, "me"), Env: func(name string) (string, bool) {
		for _, v := range variables {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return strings.ReplaceAll(value, "~", dir), true
			}
		}
		return "", false
	}}
}

// TestFind: where package managers keep programs, some paths last and some do not.
// The paths and variables are those of npm 11, pnpm 12, bun 1.4, uv 0.9 and pipx 1.8.
func TestFind(t *testing.T) {
	const native = "node_modules/@sallyport/linux-x64/bin/sallyport"
	for _, tt := range []struct {
		path     string // of this program
		env      string // variables, separated by spaces
		others   string // more names: LINK>TARGET, or a program
		vanishes string
		start    string // ~ is the folder of the test
		shared   string
	}{
		{"usr/lib/node_modules/sallyport/" + native, "", "", "", "~/usr/lib/node_modules/sallyport/" + native + " serve", "sallyport serve"},
		{"me/.volta/tools/image/packages/sallyport/lib/node_modules/sallyport/" + native, "", "", "", "~/me/.volta/tools/image/packages/sallyport/lib/node_modules/sallyport/" + native + " serve", "sallyport serve"},
		{"me/.nvm/versions/node/v22.1.0/lib/node_modules/sallyport/" + native, "", "", "one version of Node.js", "~/me/.nvm/versions/node/v22.1.0/lib/node_modules/sallyport/" + native + " serve", "sallyport serve"},
		{"me/.local/share/fnm/node-versions/v22.1.0/installation/lib/node_modules/sallyport/" + native, "", "", "one version of Node.js", "~/me/.local/share/fnm/node-versions/v22.1.0/installation/lib/node_modules/sallyport/" + native + " serve", "sallyport serve"},
		{"me/project/" + native, "", "", "the packages of one folder", "~/me/project/" + native + " serve", "sallyport serve"},
		{"me/project/" + native, "npm_command=exec npm_config_user_agent=npm/11.19.1", "", "the packages of one folder", "npx -y sallyport serve", "npx -y sallyport serve"},
		{"me/.npm/_npx/0123abc/" + native, "", "", "npx's cache", "npx -y sallyport serve", "npx -y sallyport serve"},
		{"me/.npm/_npx/0123abc/" + native, "PATH=~/me/.npm/_npx/0123abc/node_modules/.bin:~/usr/bin", "me/.npm/_npx/0123abc/node_modules/.bin/sallyport usr/bin/npx", "npx's cache", "~/usr/bin/npx -y sallyport serve", "npx -y sallyport serve"},
		{"me/.npm/_npx/0123abc/" + native, "PATH=~/me/.nvm/versions/node/v22.1.0/bin", "me/.nvm/versions/node/v22.1.0/bin/npx", "npx's cache", "npx -y sallyport serve", "npx -y sallyport serve"},
		{"cache/pnpm/dlx/8a06/mx0m-jjf/node_modules/.pnpm/@sallyport+linux-x64@1.0.0/" + native, "npm_command=dlx", "", "pnpm's cache", "pnpm --silent dlx sallyport serve", "pnpm --silent dlx sallyport serve"},
		{"me/.bun/install/cache/.bunx-0/sallyport@latest/" + native, "", "", "bunx's cache", "bunx sallyport serve", "bunx sallyport serve"},
		{"tmp/bunx-1000-sallyport@latest/" + native, "", "", "bunx's cache", "bunx sallyport serve", "bunx sallyport serve"},
		{"tmp/xfs-0123/dlx-4567/" + native, "", "", "Yarn's cache", "yarn dlx --quiet sallyport serve", "yarn dlx --quiet sallyport serve"},
		{"me/.cache/uv/archive-v0/abc/bin/sallyport", "PATH=~/me/.cache/uv/archive-v0/abc/bin:~/me/.local/bin", "me/.local/bin/uvx", "uv's cache", "~/me/.local/bin/uvx sallyport serve", "uvx sallyport serve"},
		{"me/.cache/uv/archive-v0/abc/bin/sallyport", "UV=~/uv/bin/uv PATH=~/bin", "uv/bin/uvx", "uv's cache", "~/uv/bin/uvx sallyport serve", "uvx sallyport serve"},
		{"mycache/archive-v0/EUIz/bin/sallyport", "UV_CACHE_DIR=~/mycache", "", "uv's cache", "uvx sallyport serve", "uvx sallyport serve"},
		// A link to a cache lasts no longer than the cache.
		{"me/.cache/uv/archive-v0/abc/bin/sallyport", "PATH=~/me/bin", "me/bin/sallyport>me/.cache/uv/archive-v0/abc/bin/sallyport", "uv's cache", "uvx sallyport serve", "uvx sallyport serve"},
		{"me/.cache/pipx/98cba25373a9159/bin/sallyport", "", "", "pipx's cache", "pipx run sallyport serve", "pipx run sallyport serve"},
		{"tmp/go-build1234/b001/exe/sallyport", "", "", "Go's build cache", "~/tmp/go-build1234/b001/exe/sallyport serve", "sallyport serve"},
		// What is installed to stay has a name that stays, in the search path or not.
		{"me/.local/share/uv/tools/sallyport/bin/sallyport", "PATH=~/me/.local/share/uv/tools/sallyport/bin", "me/.local/bin/sallyport>me/.local/share/uv/tools/sallyport/bin/sallyport", "", "~/me/.local/bin/sallyport serve", "sallyport serve"},
		{"me/.local/share/uv/tools/sallyport/bin/sallyport", "UV_TOOL_BIN_DIR=~/tools", "tools/sallyport>me/.local/share/uv/tools/sallyport/bin/sallyport", "", "~/tools/sallyport serve", "sallyport serve"},
		{"opt/homebrew/Cellar/sallyport/1.2.3/bin/sallyport", "", "opt/homebrew/bin/sallyport>opt/homebrew/Cellar/sallyport/1.2.3/bin/sallyport", "", "~/opt/homebrew/bin/sallyport serve", "sallyport serve"},
		{"opt/homebrew/Cellar/sallyport/1.2.3/bin/sallyport", "", "", "the next upgrade", "~/opt/homebrew/Cellar/sallyport/1.2.3/bin/sallyport serve", "sallyport serve"},
		{"opt/homebrew/Cellar/sallyport/1.2.3/bin/sallyport", "PATH=~/opt/homebrew/Cellar/sallyport/1.2.3/bin:relative:~/bin", "bin/sallyport>opt/homebrew/Cellar/sallyport/1.2.3/bin/sallyport", "", "~/bin/sallyport serve", "sallyport serve"},
		{"me/.local/share/mise/installs/sallyport/1.2.3/sallyport", "PATH=~/me/.local/share/mise/shims", "me/.local/share/mise/shims/sallyport", "", "~/me/.local/share/mise/shims/sallyport serve", "sallyport serve"},
		{"passing/sallyport", "PATH=~/passing", "", "a folder for temporary files", "~/passing/sallyport serve", "sallyport serve"},
	} {
		dir := t.TempDir()
		r := running(t, dir, tt.path, strings.Fields(tt.env)...)
		r.Temporary = []string{filepath.Join(dir, "passing")}
		for _, other := range strings.Fields(tt.others) {
			name, target, link := strings.Cut(other, ">")
			path := filepath.Join(dir, name)
			if !link {
				put(t, path, "y", 0o755)
				continue
			}
			put(t, filepath.Join(filepath.Dir(path), "other"), "", 0o600)
			if err := os.Symlink(filepath.Join(dir, target), path); err != nil {
				t.Fatal(err)
			}
		}
		got := r.Find()
		if (got.Vanishes == "") != (tt.vanishes == "") || !strings.Contains(got.Vanishes, tt.vanishes) {
			t.Errorf("%s: got %q, want %q", tt.path, got.Vanishes, tt.vanishes)
		}
		if start := strings.ReplaceAll(got.Start().String(), dir, "~"); start != tt.start {
			t.Errorf("%s with %q: started by %s, want %s", tt.path, tt.env, start, tt.start)
		}
		if shared := got.Shared().String(); shared != tt.shared {
			t.Errorf("%s: shared as %s, want %s", tt.path, shared, tt.shared)
		}
	}
}

// TestOrigin: a package that is not the registry's is fetched from where it came
// from: the registry may have another one of that name.
func TestOrigin(t *testing.T) {
	const npx = "npm/_npx/0123abc/node_modules/@sallyport/linux-x64/bin/sallyport"
	const uvx = "uv/archive-v0/abc/bin/sallyport"
	const wheel = "uv/archive-v0/abc/lib/python3.11/site-packages/sallyport-1.0.dist-info/direct_url.json"
	for _, tt := range []struct{ path, file, content, os, want string }{
		{npx, "npm/_npx/0123abc/package.json", `{"dependencies": {"sallyport": "^1.0.0"}}`, "linux", "npx -y sallyport serve"},
		{npx, "npm/_npx/0123abc/package.json", `{"dependencies": {"sallyport": "file:../../../s.tgz"}}`, "linux", "npx -y --package ~/s.tgz sallyport serve"},
		{npx, "npm/_npx/0123abc/package.json", `{"dependencies": {"sallyport": "git+https://h/s.git"}}`, "windows", "cmd /c npx -y --package git+https://h/s.git sallyport serve"},
		{npx, "npm/_npx/0123abc/package.json", `{`, "windows", "cmd /c npx -y sallyport serve"},
		{uvx, wheel, `{"url": "file:///w/s.whl", "archive_info": {}}`, "linux", "uvx --from /w/s.whl sallyport serve"},
		{uvx, wheel, `{"url": "https://h/s", "vcs_info": {"vcs": "git", "commit_id": "1", "requested_revision": "main"}}`, "windows", "uvx --from git+https://h/s@main sallyport serve"},
		{uvx, wheel, `[]`, "linux", "uvx sallyport serve"},
	} {
		dir := t.TempDir()
		r := running(t, dir, tt.path)
		r.OS = tt.os
		put(t, filepath.Join(dir, tt.file), tt.content, 0o600)
		if got := strings.ReplaceAll(r.Find().Start().String(), dir, "~"); got != tt.want {
			t.Errorf("%s with %s on %s: got %s, want %s", tt.path, tt.content, tt.os, got, tt.want)
		}
	}
}

// TestFleeting: an entry that starts what is gone, or will be, is recognized.
func TestFleeting(t *testing.T) {
	dir := t.TempDir()
	r := running(t, dir, "me/.cache/uv/archive-v0/abc/bin/sallyport")
	stays := filepath.Join(dir, "bin", "sallyport")
	put(t, stays, "x", 0o755)
	r.Temporary = []string{filepath.Join(dir, "tmp")}
	passes := filepath.Join(dir, "tmp", "sallyport")
	put(t, passes, "x", 0o755)
	for _, tt := range []struct {
		command string
		args    []string
		want    string
	}{
		{stays, nil, ""},
		{"uvx", []string{"sallyport", "serve"}, ""},
		{"sallyport", []string{"serve", "--state-dir", passes}, ""},
		{r.Executable, nil, "will not stay: it is in uv's cache"},
		{passes, nil, "will not stay: it is in a folder for temporary files"},
		{stays + "2", nil, "does not exist any more"},
		{"node", []string{filepath.Join(dir, "_npx/1/node_modules/sallyport/bin/sallyport.js"), "serve"}, "will not stay: it is in npx's cache"},
	} {
		got := r.Fleeting(&definitions.Launch{Command: tt.command, Args: tt.args})
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s %q: got %q, want %q", tt.command, tt.args, got, tt.want)
		}
	}
}
