//go:build linux || darwin

package toolpolicy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// denies is a configuration file with a rule that denies, in its second section.
const denies = "limits: {memory: 600m}\npolicy:\n  tools:\n    - {name: no, server: fs, action: deny}\n"

var anything = call("fs", "x", "", tool.Annotations{})

// TestBrokenIsNoPolicy: whatever becomes of a file with rules, what was denied is
// not allowed until a person says so.
func TestBrokenIsNoPolicy(t *testing.T) {
	replace := func(with func(dir, path string) error) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, "config.yaml")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := with(dir, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	content := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { write(t, dir, "config.yaml", text) }
	}
	edit := func(old, with string) func(*testing.T, string) {
		return content(strings.Replace(denies, old, with, 1))
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"a slip in policy", edit("policy:", "polcy:"), `config.yaml:2: there is no setting "polcy"; did you mean policy`},
		{"a slip in tools", edit("tools:", "tool:"), `config.yaml:3: there is no setting "policy.tool"; did you mean policy.tools?`},
		{"tools without indentation", edit("  tools:", "tools:"), `config.yaml:4: tools is a section: write its keys under it`},
		{"policy is a list", content("policy:\n  - {name: no, server: fs, action: deny}\n"), `config.yaml:2: policy is a section: write its keys under it`},
		{"cut after the first section", content("limits: {memory: 600m}\n"), `config.yaml: it had rules for calls or a profile, and has neither now`},

		{"cut in the second section", content("limits: {memory: 600m}\npolicy:\n"), `has neither now`},
		{"cut in the list", content("limits: {memory: 600m}\npolicy:\n  tools:\n"), `has neither now`},
		{"cut in a rule", content("limits: {memory: 600m}\npolicy:\n  tools:\n    - {name: no, server: fs\n"), `config.yaml:4: `},
		{"cut in a word", edit("deny}\n", ""), `config.yaml:4: `},
		{"a slip in quotes", edit("policy:", `"polcy":`), `config.yaml:2: there is no setting "polcy"`},
		{"a dotted slip", content("policy.tool: [{server: fs, action: deny}]"), `there is no setting "policy.tool"`},
		{"another case", edit("policy:", "Policy:"), `there is no setting "Policy"`},
		{"a slip elsewhere", edit("memory", "memry"), `config.yaml:1: there is no setting "limits.memry"`},
		{"a value that is not accepted", edit("600m", "secret-value"), `config.yaml:1: limits.memory: its value is not accepted (`},
		{"a file that does not exist", edit("limits: {memory: 600m}", "servers: {config: [/no/such/file]}"), `config.yaml:1: servers.config: its value is not accepted (`},
		{"null", edit("policy:", "policy: null #"), `config.yaml:3: `},
		{"no policy", content("policy: null\n"), `has neither now`},
		{"no tools", content("policy: {tools: null}\n"), `has neither now`},
		{"an empty list", content("policy: {tools: []}\n"), `has neither now`},
		{"an empty section", content("policy: {tools: {}}\n"), `config.yaml:1: a section stands where a list of rules is expected`},
		{"a word", content("policy: {tools: deny}\n"), `config.yaml:1: the string "deny" stands where a list of rules is expected`},
		{"everything is a comment", content("# " + strings.ReplaceAll(denies, "\n", "\n# ")), `has neither now`},
		{"policy twice", content(denies + "policy: {minIsolation: kernel}\n"), `config.yaml:5: `},
		{"tools twice", content(denies + "policy.tools: []\n"), `config.yaml:5: policy.tools is already set, in line 3`},
		{"an alias", content("python: &a python3\npolicy: *a\n"), `config.yaml:1: python: its value is not accepted`},
		{"a merge", content("policy:\n  <<: {profile: open}\n"), `config.yaml:2: merging (<<) is not supported`},
		{"a tag", content("!!str policy: {profile: open}\n"), `config.yaml:1: a tag (!) is not supported as a key`},
		{"a complex key", content("? policy\n: {profile: open}\n"), `config.yaml:1: a complex key (?) is not supported as a key`},
		{"a second document", content(denies + "---\npolicy: {profile: open}\n"), `config.yaml:6: a second document begins here`},
		{"a document before it", content("limits: {memory: 600m}\n---\n" + denies), `config.yaml:3: a second document begins here`},
		{"tabs", edit("  tools:", "\ttools:"), `config.yaml:3: indent with spaces, not with tabs`},
		{"a list of everything", content("- policy\n"), `config.yaml:1: settings are expected`},
		{"not text", content(denies + "# \xff"), `config.yaml:5: it is not valid UTF-8`},
		{"empty", content(""), `config.yaml: it had rules for calls, and is gone or empty`},
		{"blank", content(" \n\n"), `it had rules for calls, and is gone or empty`},
		{"too large for settings", content(denies + strings.Repeat("# more\n", 10_000)), `config.yaml: it is larger than 64 KiB`},
		{"a profile that is none", content("policy: {profile: opn}\n"), `config.yaml:1: policy.profile: there is no "opn"; did you mean open?`},
		{"a profile of nothing", content("policy: {profile: }\n"), `config.yaml:1: profile: nothing stands where a string is expected`},

		{"removed", replace(func(_, _ string) error { return nil }), `config.yaml: it had rules for calls, and is gone or empty`},
		{"renamed", replace(func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "config.yml"), []byte(denies), 0o600)
		}), `config.yaml: there is no such file, but there is config.yml next to it`},
		{"in capitals", replace(func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "config.YAML"), []byte(denies), 0o600)
		}), `there is config.YAML next to it`},
		{"a directory", replace(func(_, path string) error { return os.Mkdir(path, 0o700) }), `config.yaml: it is not a regular file`},
		{"a pipe", replace(func(_, path string) error { return syscall.Mkfifo(path, 0o600) }), `config.yaml: it is not a regular file`},
		{"a link to nothing", replace(func(_, path string) error { return os.Symlink("nothing", path) }), `config.yaml: a symbolic link leads to it, whose target does not exist`},
		{"a link to itself", replace(func(_, path string) error { return os.Symlink("config.yaml", path) }), `config.yaml: it cannot be read: too many levels of symbolic links`},
		{"its directory is gone", func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
		}, `config.yaml: it had rules for calls, and is gone or empty`},
		{"its directory is a link to nothing", func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("nothing", dir); err != nil {
				t.Fatal(err)
			}
		}, `config.yaml: a symbolic link leads to it, whose target does not exist`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "sallyport")
			write(t, dir, "config.yaml", denies)
			config := toolpolicy.Config{Path: filepath.Join(dir, "config.yaml")}
			kept := toolpolicy.Had{}
			synctest.Test(t, func(t *testing.T) {
				r := toolpolicy.Open(config)
				r.Keep(func(had toolpolicy.Had) { kept = had })
				expect := func(when, want string) {
					t.Helper()
					time.Sleep(300 * time.Millisecond)
					if got := decide(r, me, anything); got != want {
						t.Errorf("%s: got %q, want %q", when, got, want)
					}
				}
				expect("at first", "deny no")
				tt.change(t, dir)
				expect("now", "deny policy.tools")
				expect("and later", "deny policy.tools")
				err := r.Broken(true)
				if err == nil || !strings.Contains(err.Error(), "so no code runs: "+tt.want) && !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				for _, hidden := range []string{dir, "/no/such/file", "secret-value"} {
					if strings.Contains(err.Error(), hidden) {
						t.Errorf("code is told %q: %v", hidden, err)
					}
				}

				// A program that begins now says the same.
				config.Had = func() toolpolicy.Had { return kept }
				other := toolpolicy.Open(config)
				if got, want := other.View().Problems, r.View().Problems; !slices.Equal(got, want) {
					t.Errorf("another program has the problems %+v, want %+v", got, want)
				}

				// The file is right again.
				clear := func() {
					for _, path := range []string{dir, dir + ".old"} {
						if err := os.RemoveAll(path); err != nil {
							t.Fatal(err)
						}
					}
				}
				clear()
				write(t, dir, "config.yaml", denies)
				expect("with the rules", "deny no")
				tt.change(t, dir)
				expect("a second time", "deny policy.tools")
				clear()
				write(t, dir, "config.yaml", "policy: {profile: open}")
				expect("as a person says", "allow ")
				if kept != (toolpolicy.Had{}) {
					t.Errorf("after that, %+v is kept", kept)
				}
				write(t, dir, "config.yaml", "")
				expect("with nothing to lose", "allow ")
			})
		})
	}
}

// TestVanished: rules do not vanish as a whole. To remove a file of them is a
// decision.
func TestVanished(t *testing.T) {
	const rule, allow = "- {server: fs, action: deny}\n", "- {server: fs, action: allow}\n"
	for _, tt := range []struct {
		name          string
		before, after map[string]string // an empty file is removed
		want          string
	}{
		{"the only file", map[string]string{"policy.d/1.yaml": rule}, map[string]string{"policy.d/1.yaml": ""}, ""},
		{"all of its rules", map[string]string{"policy.d/1.yaml": rule}, map[string]string{"policy.d/1.yaml": "[]"}, ""},
		{"all are comments", map[string]string{"policy.d/1.yaml": rule}, map[string]string{"policy.d/1.yaml": "# " + rule}, ""},
		{"the suffix", map[string]string{"policy.d/1.yaml": rule}, map[string]string{"policy.d/1.yaml": "", "policy.d/1.yaml.off": rule}, ""},
		{"the directory", map[string]string{"policy.d/1.yaml": rule}, map[string]string{"policy.d": ""}, "policy.d: it had rules for calls, and is gone"},
		{"the directory, with a profile", map[string]string{"policy.d/1.yaml": rule, "config.yaml": "policy.profile: careful"}, map[string]string{"policy.d": ""}, ""},
		{"the directory of what only allows", map[string]string{"policy.d/1.yaml": allow}, map[string]string{"policy.d": ""}, ""},
		{"one of two", map[string]string{"policy.d/1.yaml": rule, "policy.d/2.yaml": rule}, map[string]string{"policy.d/1.yaml": ""}, ""},
		{"with a profile", map[string]string{"policy.d/1.yaml": rule, "config.yaml": "policy.profile: Careful"}, map[string]string{"policy.d/1.yaml": ""}, ""},
		{"with a profile that is new", map[string]string{"policy.d/1.yaml": rule}, map[string]string{"policy.d/1.yaml": "", "config.yaml": "policy: {profile: open}"}, ""},
		{"with rules elsewhere", map[string]string{"policy.d/1.yaml": rule, "config.yaml": "policy.tools: [{action: ask}]"}, map[string]string{"policy.d/1.yaml": ""}, ""},
		{"what only allows", map[string]string{"policy.d/1.yaml": allow}, map[string]string{"policy.d/1.yaml": ""}, ""},
		{"what allows so many", map[string]string{"policy.d/1.yaml": "- {action: allow, limits: {perMinute: 1}}"}, map[string]string{"policy.d": ""}, "policy.d: it had rules for calls, and is gone"},
		{"the configuration's, with others left", map[string]string{"policy.d/1.yaml": allow, "config.yaml": denies}, map[string]string{"config.yaml": "python: python3"}, "config.yaml: it had rules for calls or a profile"},
		{"a profile", map[string]string{"config.yaml": "policy: {profile: locked}"}, map[string]string{"config.yaml": "python: python3"}, "config.yaml: it had rules for calls or a profile"},
		{"the profile of rules", map[string]string{"config.yaml": "policy: {profile: careful, tools: [{action: deny}]}"}, map[string]string{"config.yaml": "policy: {tools: [{action: deny}]}"}, ""},
		{"an open profile", map[string]string{"config.yaml": "policy: {profile: open}"}, map[string]string{"config.yaml": "python: python3"}, ""},
		{"a profile for rules", map[string]string{"config.yaml": denies}, map[string]string{"config.yaml": "policy: {profile: careful}"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, dir := rules(t, tt.before)
			if err := r.Broken(true); err != nil {
				t.Fatal(err)
			}
			for name, content := range tt.after {
				if content != "" {
					write(t, dir, name, content)
				} else if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			err := r.Broken(true)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			again := r.Broken(true)
			if (again == nil) != (err == nil) {
				t.Errorf("then %v, want %v", again, err)
			}
		})
	}
}

// TestNamedFile: a file that the user named must exist.
func TestNamedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	r := toolpolicy.Open(toolpolicy.Config{Path: path, Named: true})
	if err := r.Broken(true); err == nil || !strings.Contains(err.Error(), "mine.yaml: there is no such file") {
		t.Errorf("got %v", err)
	}
	write(t, filepath.Dir(path), "mine.yaml", "python: python3")
	if err := r.Broken(true); err != nil {
		t.Errorf("with the file: %v", err)
	}
}

// TestNeeds: a file that the configuration names is looked for again.
func TestNeeds(t *testing.T) {
	r, dir := rules(t, map[string]string{"config.yaml": "servers: {config: [servers.json]}", "servers.json": "{}"})
	if err := r.Broken(true); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "servers.json")); err != nil {
		t.Fatal(err)
	}
	if err := r.Broken(true); err == nil {
		t.Error("got no error, and a program that begins now has one")
	}
	write(t, dir, "servers.json", "{}")
	if err := r.Broken(true); err != nil {
		t.Errorf("with the file: %v", err)
	}
}

// TestNamesOfFiles: what is named almost like a file of rules is an error, and what
// a person mends is read.
func TestNamesOfFiles(t *testing.T) {
	const rule = "- {server: fs, action: deny}\n"
	for _, tt := range []struct {
		name string
		make func(dir string) error // in the directory of the configuration
		want string                 // empty: it is fine
	}{
		{"1.YAML", nil, "policy.d/1.YAML: only files named *.yaml are read here"},
		{"1.Yml", nil, "policy.d/1.Yml: only files named *.yaml are read here"},
		{"1.JSON", nil, "policy.d/1.JSON: only files named *.yaml are read here"},
		{"1.json", nil, "policy.d/1.json: only files named *.yaml are read here"},
		{"1.yaml~", nil, ""},
		{"1.yaml.bak", nil, ""},
		{"#1.yaml#", nil, ""},
		{".1.yaml.swp", nil, ""},
		{".1.YAML", nil, ""},
		{"README.md", nil, ""},
		{"a subdirectory", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "policy.d", "x.yaml"), 0o700) }, "policy.d/x.yaml: it is not a regular file"},
		{"a subdirectory in capitals", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "policy.d", "x.YAML"), 0o700) }, "policy.d/x.YAML: only files named"},
		{"a pipe", func(dir string) error {
			return errorOf(os.Mkdir(filepath.Join(dir, "policy.d"), 0o700), syscall.Mkfifo(filepath.Join(dir, "policy.d", "1.yaml"), 0o600))
		}, "policy.d/1.yaml: it is not a regular file"},
		{"a link to nothing", func(dir string) error {
			return errorOf(os.Mkdir(filepath.Join(dir, "policy.d"), 0o700), os.Symlink("nothing", filepath.Join(dir, "policy.d", "1.yaml")))
		}, "policy.d/1.yaml: a symbolic link leads to it, whose target does not exist"},
		{"a directory that is a link to nothing", func(dir string) error { return os.Symlink("nothing", filepath.Join(dir, "policy.d")) }, "policy.d: a symbolic link leads to it, whose target does not exist"},
		{"a directory that is a file", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "policy.d"), []byte(rule), 0o600)
		}, "policy.d: it is not a directory"},
		{"a directory in capitals", func(dir string) error { return os.Mkdir(filepath.Join(dir, "Policy.D"), 0o700) }, "Policy.D: only policy.d is read: rename it"},
		{"another configuration", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "config.Yml"), []byte(denies), 0o600)
		}, "config.yaml: there is no such file, but there is config.Yml next to it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "sallyport")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			r := toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(dir, "config.yaml")})
			if tt.make == nil {
				write(t, dir, "policy.d/"+tt.name, rule)
			} else if err := tt.make(dir); err != nil {
				t.Fatal(err)
			}
			err := r.Broken(true)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), dir) {
				t.Errorf("code is told where files are: %v", err)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := r.Broken(true); err != nil {
				t.Errorf("after it was removed: %v", err)
			}
		})
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestWaysOfOthers: no directory may be another user's through which rules are
// reached.
func TestWaysOfOthers(t *testing.T) {
	const rule = "- {server: fs, action: deny}\n"
	for _, tt := range []struct {
		name  string
		files map[string]string // in home
		links map[string]string // to what, in home
		open  string            // the directory that others can write to
		mode  os.FileMode
		want  string // the problem's file, in home; empty: it is fine
	}{
		{"the directory above", map[string]string{".config/sallyport/config.yaml": denies}, nil, ".config", 0o777, ".config/sallyport/config.yaml"},
		{"the home directory", map[string]string{".config/sallyport/config.yaml": denies}, nil, ".", 0o777, ".config/sallyport/config.yaml"},
		{"one as /tmp is", map[string]string{".config/sallyport/config.yaml": denies}, nil, ".config", os.ModeSticky | 0o777, ""},
		{"one that others can read", map[string]string{".config/sallyport/config.yaml": denies}, nil, ".config", 0o755, ""},
		{"without rules", map[string]string{".config/sallyport/config.yaml": "python: python3"}, nil, ".config", 0o777, ""},
		{"above rules of the directory", map[string]string{".config/sallyport/policy.d/1.yaml": rule}, nil, ".config", 0o777, ".config/sallyport/config.yaml"},
		{"a link's directory", map[string]string{"dots/config.yaml": denies}, map[string]string{".config/sallyport/config.yaml": "../../dots/config.yaml"}, "dots", 0o777, ".config/sallyport/config.yaml"},
		{"above a link's directory", map[string]string{"dots/a/config.yaml": denies}, map[string]string{".config/sallyport/config.yaml": "../../dots/a/config.yaml"}, "dots", 0o777, ".config/sallyport/config.yaml"},
		{"between two links", map[string]string{"dots/config.yaml": denies}, map[string]string{".config/sallyport/config.yaml": "../../middle/config.yaml", "middle/config.yaml": "../dots/config.yaml"}, "middle", 0o777, ".config/sallyport/config.yaml"},
		{"the configuration's directory is a link", map[string]string{"dots/a/config.yaml": denies}, map[string]string{".config/sallyport": "../dots/a"}, "dots", 0o777, ".config/sallyport/config.yaml"},
		{"a link with private directories", map[string]string{"dots/config.yaml": denies}, map[string]string{".config/sallyport/config.yaml": "../../dots/config.yaml"}, "dots", 0o755, ""},
		{"a link of a file of rules", map[string]string{"dots/1.yaml": rule}, map[string]string{".config/sallyport/policy.d/1.yaml": "../../../dots/1.yaml"}, "dots", 0o777, ".config/sallyport/policy.d/1.yaml"},
		{"a link of the directory", map[string]string{"dots/rules/1.yaml": rule}, map[string]string{".config/sallyport/policy.d": "../../dots/rules"}, "dots", 0o777, ".config/sallyport/policy.d"},
		{"a link in a directory of all", map[string]string{"dots/config.yaml": denies}, map[string]string{".config/sallyport/config.yaml": "../../all/config.yaml", "all/config.yaml": "../dots/config.yaml"}, "all", os.ModeSticky | 0o777, ".config/sallyport/config.yaml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			for name, content := range tt.files {
				write(t, home, name, content)
			}
			for name, to := range tt.links {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, filepath.Join(home, name)); err != nil {
					t.Fatal(err)
				}
			}
			r := toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(home, ".config", "sallyport", "config.yaml")})
			if err := r.Broken(true); err != nil {
				t.Fatal(err)
			}
			chmod := func(mode os.FileMode) {
				if err := os.Chmod(filepath.Join(home, tt.open), mode); err != nil {
					t.Fatal(err)
				}
			}
			chmod(tt.mode)
			defer chmod(0o700)
			err := r.Broken(true)
			problems := r.View().Problems
			if (err == nil) != (tt.want == "") || err != nil && (len(problems) != 1 || problems[0].File != filepath.Join(home, tt.want)) {
				t.Fatalf("got %v, %+v, want a problem of %q", err, problems, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), home) {
				t.Errorf("code is told where files are: %v", err)
			}
			chmod(0o700)
			if err := r.Broken(true); err != nil {
				t.Errorf("made private again: %v", err)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	known := []toolpolicy.Known{
		{Name: "github", Listed: true, Tools: []string{"create_issue", "delete_repo"}},
		{Name: "filesystem", Listed: true, Tools: []string{"read_file"}},
		{Name: "slow"},
	}
	for _, tt := range []struct {
		rule string
		want string // empty: no warning
	}{
		{`{server: github, tool: create_issue, action: deny}`, ""},
		{`{action: deny}`, ""},
		{`{server: "*", tool: "*", action: deny}`, ""},
		{`{server: "git*", tool: "*_repo", action: deny}`, ""},
		{`{server: githib, tool: x, action: deny}`, `no server matches "githib"; did you mean "github"?`},
		{`{server: "fs-*", action: deny}`, `no server matches "fs-*"; the nearest is "slow"`},
		{`{server: [github, filesytem], action: deny}`, `no server matches "filesytem"; did you mean "filesystem"?`},
		{`{server: githib, resource: "*", action: deny}`, `no server matches "githib"; did you mean "github"?`},
		{`{server: github, tool: creat_issue, action: deny}`, `no tool of server "github" matches "creat_issue"; did you mean "create_issue"?`},
		{`{server: github, tool: [create_issue, "list_*"], action: deny}`, `no tool of server "github" matches "list_*"; the nearest is`},
		{`{server: [github, filesystem], tool: write_file, action: deny}`, `no tool of these servers matches "write_file"; the nearest is "read_file"`},
		{`{server: slow, tool: anything, action: deny}`, ""},
		{`{tool: anything, action: deny}`, ""}, // the slow one may have it
		{`{tool: delete_rpo, action: deny}`, `no tool of any server matches "delete_rpo"; did you mean "delete_repo"?`},
		{`{server: "*", prompt: anything, action: deny}`, ""},
	} {
		r, dir := rules(t, config("- "+tt.rule))
		view := r.View()
		got := view.Warnings(known)
		if len(view.Problems) > 0 || len(got) > 1 || (len(got) == 1) != (tt.want != "") || len(got) == 1 && (!strings.Contains(got[0].Message, tt.want) || got[0].File != filepath.Join(dir, "config.yaml") || got[0].Line != 3) {
			t.Errorf("%s: got %+v, %+v, want %q in line 3", tt.rule, got, view.Problems, tt.want)
		}
	}
	r, _ := rules(t, config(`- {server: github, tool: x, action: deny}`))
	view := r.View()
	if got := view.Warnings(nil); len(got) != 1 || got[0].Message != `no server matches "github": none is defined` {
		t.Errorf("without servers: got %+v", got)
	}
}

// TestMovedAway: rules that come back with their directory, which looks as it did
// before, are read.
func TestMovedAway(t *testing.T) {
	_, dir := rules(t, map[string]string{"sallyport/policy.d/1.yaml": "- {action: deny}"})
	path := filepath.Join(dir, "sallyport")
	old := time.Now().Add(-time.Hour)
	for _, d := range []string{filepath.Join(path, "policy.d"), path} {
		if err := os.Chtimes(d, old, old); err != nil {
			t.Fatal(err)
		}
	}
	r := toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(path, "config.yaml")})
	for _, step := range []struct {
		from, to, want string
	}{
		{path, path, "deny policy.d/1.yaml:1"},
		{path, path + ".away", "deny policy.tools"},
		{path + ".away", path, "deny policy.d/1.yaml:1"},
	} {
		if step.from != step.to {
			if err := os.Rename(step.from, step.to); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // what is found is remembered
			_ = r.Broken(true)
			if got := decide(r, me, call("fs", "x", "", tool.Annotations{})); got != step.want {
				t.Errorf("after the move to %s: got %q, want %q", filepath.Base(step.to), got, step.want)
			}
		}
	}
}

// BenchmarkLook is what an execution pays to know that no file has changed.
func BenchmarkLook(b *testing.B) {
	for name, files := range map[string]map[string]string{"nothing": nil, "config": {"config.yaml": "python: python3\n"}, "rules": {"config.yaml": "policy: {profile: careful}\n", "policy.d/1.yaml": "- {server: x, action: deny}\n"}} {
		b.Run(name, func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), ".config", "sallyport")
			for f, c := range files {
				write(b, dir, f, c)
			}
			old := time.Now().Add(-time.Hour)
			for _, d := range []string{dir, filepath.Join(dir, "policy.d")} {
				if err := os.Chtimes(d, old, old); err != nil && !os.IsNotExist(err) {
					b.Fatal(err)
				}
			}
			r := toolpolicy.Open(toolpolicy.Config{Path: filepath.Join(dir, "config.yaml")})
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Broken(true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
