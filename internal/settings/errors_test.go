package settings_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

func TestWrongFiles(t *testing.T) {
	tests := []struct {
		name, content string
		want          []string // "LINE: parts of the message"
	}{
		{"misspelt key", "limits:\n  memroy: 1g\n", []string{`2: there is no setting "limits.memroy"; did you mean limits.memory?`}},
		{"misspelt section", "limit:\n  memory: 1g\n", []string{`1: there is no setting "limit"; did you mean limits (a section, with memory, processes,`}},
		{"key without its section", "memory: 1g\n", []string{`did you mean limits.memory?`}},
		{"key in the wrong section", "policy:\n  memory: hard\n", []string{`2: there is no setting "policy.memory"; did you mean policy.require.memory?`}},
		{"another style", "limits: {open-files: 3, open_files: 4}\n", []string{`did you mean limits.openFiles?`, `did you mean limits.openFiles?`}},
		{"wrong case", "Engine: auto\n", []string{`did you mean engine?`}},
		{"nothing near", "limits:\n  zzzzzzzzzzzzzzzz: 1\n", []string{`limits has memory, processes, cpus, workspace, tmp, packages, openFiles, output`}},
		{"nothing near at the top", "zzzzzzzzzzzzzzzz: 1\n", []string{`the nearest is `}},
		{"none and a package", "policy:\n  packages: [none, pandas]\n", []string{"2: policy.packages: `none` stands alone"}},
		{"a key that is a number", "1: 2\n", []string{`1: there is no setting "1"`}},
		{"a leaf as a section", "python:\n  path: x\n", []string{`2: python: a section stands where a name or absolute path is expected`}},
		{"a section as a leaf", "\nlimits: 3\n", []string{`2: limits is a section, and the number 3 stands there: write its keys under it (memory,`}},
		{"a list as a section", "limits: [1]\n", []string{`1: limits is a section, and a list stands there`}},
		{"an environment's key", "environments:\n  data:\n    package: [numpy]\n", []string{`3: there is no setting "environments.data.package"; did you mean environments.data.packages?`}},
		{"several of an environment", "environments:\n  data:\n    python: 2.7\n    packages: [./evil]\n    limits: {memory: 1}\n", []string{
			`3: environments.data.python: "2.7": neither host, nor a version such as 3.12, nor an absolute path`,
			`4: environments.data.packages: "./evil": not among requirements`, `5: environments.data.limits.memory: "1": out of range`,
		}},
		{"an environment's file", "environments:\n  data:\n    file: packages.yaml\n", []string{`3: environments.data.file: "packages.yaml": neither a requirements file`}},
		{"two bases", "environments:\n  data: {python: host, image: x}\n", []string{`2: environments.data has both python and image`}},
		{"an empty environment", "environments:\n  data:\n", []string{`2: environments.data has nothing in it`}},
		{"a reserved environment", "environments:\n  host: {packages: [numpy]}\n", []string{`2: environments: host means no environment`}},
		{"an environment's name", "environments:\n  Data.1: {packages: [numpy]}\n", []string{`2: environments: "Data.1" is not a name for an environment`}},
		{"a folder without a mode", "files:\n  mounts: [~/data, \"~/x:/mnt/x:write\"]\n", []string{`2: files.mounts: folder "~/x:/mnt/x:write": "write" is not a mode; write ro`}},
		{"a folder's place", "files:\n  mounts: [\"/a/data:/usr/data\"]\n", []string{`2: files.mounts: folder "/a/data": /usr/data belongs to the sandbox itself`}},
		{"two folders in one place", "files:\n  mounts: [/a/x, /b/x]\n", []string{`2: files.mounts: folder "/b/x": its place /mnt/x and that of "/a/x", /mnt/x, overlap`}},
		{"a folder with keys", "files:\n  mounts:\n    - {host: /a, mod: rw}\n", []string{`3: files.mounts: a folder has no "mod": it has host, sandbox and mode`}},
		{"a folder's mode", "files:\n  mounts:\n    - {host: /a, mode: w}\n", []string{`3: files.mounts: folder "/a": mode "w": write ro, copy or rw`}},
		{"a folder with a colon", "files:\n  mounts:\n    - host: /a:/b\n", []string{`3: files.mounts: folder "/a:/b": a path with a colon cannot be written here`}},
		{"a folder that is a number", "files:\n  mounts:\n    - {host: 5}\n", []string{`3: files.mounts: host of a folder: the number 5 stands where a string is expected`}},
		{"environments as a list", "environments: [data]\n", []string{`1: environments is a section, and a list stands there`}},
		{"the wrong default", "environment: dta\nenvironments:\n  data: {packages: [numpy]}\n", []string{`1: environment: there is no environment "dta"; did you mean data?`}},
		{"no environments", "environment: data\n", []string{`1: environment: there is no environment "data": 'sallyport env add data -p PACKAGE' adds one`}},
		{"misspelt environments", "enviroments:\n  data: {packages: [numpy]}\n", []string{`1: there is no setting "enviroments"; did you mean environment`}},
		{"not settings at all", "- a\n- b\n", []string{`1: a list stands where settings are expected`}},
		{"a word", "hello\n", []string{`1: the string "hello" stands where settings are expected`}},

		{"twice", "limits:\n  memory: 1g\n  memory: 2g\n", []string{`3: mapping key "memory" already defined at [2:3]`}},
		{"twice, dotted", "limits:\n  memory: 1g\nlimits.memory: 2g\n", []string{`3: limits.memory is already set, in line 2`}},

		{"no value", "python:\nimage: ~\n", []string{`1: python: it has no value`, `2: image: it has no value`}},
		{"an empty text", `python: ""`, []string{`1: python: it is empty`}},
		{"a number as a string", "python: 3.12\n", []string{`1: python: the number 3.12 stands where a name or absolute path is expected: write it in quotes, "3.12"`}},
		{"a string as a number", "limits:\n  processes: \"64\"\n", []string{`2: limits.processes: the string "64" stands where a whole number is expected: write the number without quotes`}},
		{"a string as a truth", "servers:\n  allowSelf: yes\n", []string{`2: servers.allowSelf: the string "yes" stands where true or false is expected: write true or false`}},
		{"a truth as a number", "limits: {cpus: true}\n", []string{`limits.cpus: true stands where a number is expected`}},
		{"a string as a list", "policy:\n  servers: fs\n", []string{`2: policy.servers: the string "fs" stands where a list is expected: write [fs]`}},
		{"a list as a string", "python: [a]\n", []string{`1: python: a list stands where a name or absolute path is expected`}},
		{"a number in a list", "policy:\n  servers:\n    - a\n    - 3\n", []string{`4: policy.servers: the number 3 stands in the list: write a string, in quotes`}},
		{"an empty part", "policy: {servers: ['']}\n", []string{`policy.servers: one of its parts is empty`}},

		{"a size", "limits:\n  memory: 512x\n", []string{`2: limits.memory: "512x": not a size such as 512m or 2g`}},
		{"bytes by mistake", "limits: {memory: 512}\n", []string{`limits.memory: "512": out of range: 64m to 1t`}},
		{"more output than a sandbox may keep", "limits: {output: 9m}\n", []string{`limits.output: "9m": out of range: 1k to 8m`}},
		{"half a byte", "limits: {memory: 0.3k}\n", []string{`not a whole number of bytes`}},
		{"a huge size", "limits: {memory: 99999999999999999999g}\n", []string{`out of range`}},
		{"a negative number", "limits: {processes: -1}\n", []string{`limits.processes: "-1": out of range: 8 to 32768`}},
		{"a broken number", "limits: {processes: 1.5}\n", []string{`limits.processes: "1.5": not a whole number`}},
		{"an octal number", "limits: {processes: 0100}\n", []string{`limits.processes: "0100": not a whole number`}},
		{"no cores", "limits: {cpus: 0}\n", []string{`limits.cpus: "0": out of range: 0.01 to 1024, or unlimited`}},
		{"infinity", "limits: {cpus: .inf}\n", []string{`limits.cpus: something that is not a plain value stands where`}},
		{"a duration", "timeouts: {default: soon}\n", []string{`timeouts.default: "soon": not a duration such as 30, 30s or 2m`}},
		{"a negative duration", "timeouts: {default: -3s}\n", []string{`not a duration`}},
		{"a long duration", "timeouts: {default: 1e9h}\n", []string{`not a duration`}},
		{"a longer duration", "timeouts: {default: 99999999999999999999}\n", []string{`out of range: 1s to 24h`}},
		{"a word", "engine: firecracker\n", []string{`1: engine: "firecracker": not one of auto, gvisor, podman, docker`}},
		{"a level", "log: {level: loud}\n", []string{`log.level: "loud": not one of debug, info, warn, error`}},
		{"no isolation", "policy: {minIsolation: none}\n", []string{`not one of platform, container, wasm, kernel`}},
		{"a user", "container: {user: root}\n", []string{`container.user: "root": not a uid, or uid:gid`}},
		{"a relative program", "python: ./python3\n", []string{`python: "./python3": neither a name nor an absolute path`}},
		{"a source that is none", "servers: {sources: [cursors]}\n", []string{`servers.sources: "cursors": not among `}},
		{"any command", "policy: {requests: ['* -y x']}\n", []string{`policy.requests: "* -y x": not among command lines or URLs`}},
		{"any host", "policy: {requests: ['https://*.*/mcp']}\n", []string{`policy.requests: "https://*.*/mcp": not among command lines or URLs`}},
		{"all variables", "servers: {inherit: ['*']}\n", []string{`servers.inherit: "*": not among names of environment variables`}},
		{"a missing file", "servers: {config: [nope.json]}\n", []string{`servers.config: "nope.json": there is no such file`}},
		{"a folder", "servers: {config: [.]}\n", []string{`servers.config: ".": it is a folder`}},
		{"a control character", `python: "a\x07b"`, []string{`python: "a\ab": it has a control character`}},

		{"tabs", "limits:\n\tmemory: 1g\n", []string{`2: indent with spaces, not with tabs`}},
		{"an open quote", "\npython: \"x\n", []string{`2: could not find end character of double-quoted text`}},
		{"an open bracket", "policy: {servers: [a\n", []string{`1: `}},
		{"two values", "python: a: b\n", []string{`1: `}},
		{"two documents", "python: a\n---\npython: b\n", []string{`3: a second document begins here`}},
		{"an anchor", "python: &a x\n", []string{`1: python: an anchor (&) stands where`}},
		{"a merge", "limits:\n  <<: {memory: 1g}\n", []string{`2: merging (<<) is not supported`}},
		{"a tag", "python: !!str x\n", []string{`1: python: a tag (!) stands where`}},
		{"a complex key", "? python\n: x\n", []string{`1: a complex key (?) is not supported as a key`}},
		{"not UTF-8", "python: a\n# \xff\n", []string{`2: it is not valid UTF-8`}},
		{"UTF-16", "\xff\xfep\x00y\x00", []string{`1: it is not valid UTF-8`}},

		{"several", "enigne: auto\nlimits:\n  memory: lots\n", []string{`1: there is no setting "enigne"; did you mean engine?`, `3: limits.memory: "lots"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			problems := fails(t, settings.Sources{Home: write(t, tt.content)})
			if len(problems) != len(tt.want) {
				t.Fatalf("%d problems, want %d: %v", len(problems), len(tt.want), problems)
			}
			for i, want := range tt.want {
				got := problems[i]
				if !strings.HasSuffix(got.File, "/.config/sallyport/config.yaml") {
					t.Errorf("file %q", got.File)
				}
				if text := fmt.Sprintf("%d: %s", got.Line, got.Message); !strings.Contains(text, want) {
					t.Errorf("got %q, want %q", text, want)
				}
			}
		})
	}
}

func TestFilesThatSayNothing(t *testing.T) {
	for _, content := range []string{"", "\n", "# only a comment\n", "---\n", "limits:\n  # memory: 1g\n", "{}", "policy:\n  require:\n", "\ufeff# marked\n", "limits: {}\n"} {
		s := mustLoad(t, settings.Sources{Home: write(t, content)})
		if s.Limits.Memory != 512<<20 {
			t.Errorf("%q changed the memory limit to %d", content, s.Limits.Memory)
		}
	}
}

func TestDottedKeys(t *testing.T) {
	// As messages of the policy write them.
	s := mustLoad(t, settings.Sources{Home: write(t, "policy.minIsolation: container\npolicy.require:\n  memory: absent\n")})
	if s.Policy.MinIsolation != "container" || s.Policy.Require.Memory != "absent" {
		t.Errorf("%+v", s.Policy)
	}
}

func TestUnreadableFiles(t *testing.T) {
	config := func(t *testing.T) (home, path string) {
		home = write(t, "")
		return home, filepath.Join(home, ".config", "sallyport", "config.yaml")
	}
	t.Run("folder", func(t *testing.T) {
		home, path := config(t)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		fails(t, settings.Sources{Home: home}, "config.yaml: it is not a regular file")
	})
	t.Run("too large", func(t *testing.T) {
		home, path := config(t)
		if err := os.WriteFile(path, []byte(strings.Repeat("# more\n", 10_000)), 0o600); err != nil {
			t.Fatal(err)
		}
		fails(t, settings.Sources{Home: home}, "config.yaml: it is larger than 64 KiB")
	})
	t.Run("no permission", func(t *testing.T) {
		if os.Geteuid() == 0 || runtime.GOOS == "windows" {
			t.Skip("needs a user whom permissions bind")
		}
		home, path := config(t)
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		fails(t, settings.Sources{Home: home}, "config.yaml: it cannot be read: permission denied")
	})
	for _, to := range []string{"nothing", "config.yaml"} {
		t.Run("link to "+to, func(t *testing.T) {
			home, path := config(t)
			if err := errors.Join(os.Remove(path), os.Symlink(to, path)); err != nil {
				t.Fatal(err)
			}
			want := "config.yaml: a symbolic link leads to it, whose target does not exist"
			if to == "config.yaml" {
				want = "config.yaml: it cannot be read: too many levels of symbolic links"
			}
			fails(t, settings.Sources{Home: home}, want)
		})
	}
	t.Run("its folder is a link to nothing", func(t *testing.T) {
		home, path := config(t)
		dir := filepath.Dir(path)
		if err := errors.Join(os.RemoveAll(dir), os.Symlink("nothing", dir)); err != nil {
			t.Fatal(err)
		}
		fails(t, settings.Sources{Home: home}, "config.yaml: a symbolic link leads to it, whose target does not exist")
	})
	for _, other := range []string{"config.yml", "config.json", "config.toml", "config.YAML", "Config.Yml"} {
		t.Run(other, func(t *testing.T) {
			home, path := config(t)
			if err := os.Rename(path, filepath.Join(filepath.Dir(path), other)); err != nil {
				t.Fatal(err)
			}
			fails(t, settings.Sources{Home: home}, "config.yaml: there is no such file, but there is "+other+" next to it, which is not read")
		})
	}
}

// TestCheckFile: the content of a file is judged as Load judges it, and those who
// may not know its values are not told them.
func TestCheckFile(t *testing.T) {
	for _, tt := range []struct {
		content string
		brief   string // of the first problem, with its line; empty: the file is fine
	}{
		{"", ""},
		{"limits: {memory: 1g}\npolicy:\n  tools: [{action: deny}]\n", ""},
		{"timeouts: {default: 3h}\n", ""}, // more than timeouts.max, which a variable may raise
		{"polcy: {}\n", `1: there is no setting "polcy"; did you mean policy`},
		{"kaggle: hunter2\n", "1: kaggle is a section: write its keys under it"},
		{"runpod:\n  key: [hunter2]\n", "2: runpod.key: its value is not accepted"},
		{"python: ~/hunter2\n", "1: python: its value is not accepted"}, // without a home directory
		{"servers: {fallbackConfig: hunter2.json}\n", "1: servers.fallbackConfig: its value is not accepted"},
		{"- hunter2\n", "1: settings are expected: write key: value"},
		{"image: [\n", "1: "},
		{"# " + strings.Repeat("x", 64<<10), "0: it is larger than 64 KiB"},
	} {
		home := write(t, tt.content)
		path := filepath.Join(home, ".config", "sallyport", "config.yaml")
		problems, _ := settings.CheckFile(path, "", []byte(tt.content))
		got := ""
		if len(problems) > 0 {
			got = fmt.Sprintf("%d: %s", problems[0].Line, cmp.Or(problems[0].Brief, problems[0].Message))
		}
		if (got == "") != (tt.brief == "") || !strings.HasPrefix(got, tt.brief) || strings.Contains(got, "hunter2") {
			t.Errorf("%.40q: got %q, want %q", tt.content, got, tt.brief)
		}
		_, err := settings.Load(settings.Sources{ConfigFile: path, Environ: map[string]string{"SALLYPORT_TIMEOUTS_MAX": "24h", "SALLYPORT_TIMEOUTS_WHOLE_RUN": "24h"}})
		var wrong *settings.Error
		if errors.As(err, &wrong) && !slices.Equal(wrong.Problems, problems) || err == nil && len(problems) > 0 {
			t.Errorf("%.40q: got %+v, want what Load finds: %v", tt.content, problems, err)
		}
	}
	needs := "servers: {config: [a.json, /b.json], fallbackConfig: c.json}"
	if _, got := settings.CheckFile("/x/config.yaml", "", []byte(needs)); !slices.Equal(got, []string{"/x/a.json", "/x/c.json"}) {
		t.Errorf("it needs %q", got) // a list ends at its first mistake
	}
}

func TestWrongVariables(t *testing.T) {
	tests := []struct{ name, value, want string }{
		{"SALLYPORT_LOG_LEVL", "x", "did you mean SALLYPORT_LOG_LEVEL?"},
		{"SALLYPORT_MEMORY", "1g", "did you mean SALLYPORT_LIMITS_MEMORY?"},
		{"SALLYPORT_TIMEOUT", "3", "did you mean SALLYPORT_TIMEOUTS_DEFAULT?"},
		{"SALLYPORT_RUNTIME", "3", "did you mean SALLYPORT_ENGINE?"},
		{"SALLYPORT_PID", "3", "did you mean SALLYPORT_LIMITS_PROCESSES?"},
		{"SALLYPORT_OPEN_FILES", "3", "_OPEN_FILES?"},
		{"SALLYPORT_CALL_TIMEOUT", "3", "did you mean SALLYPORT_SERVERS_CALL_TIMEOUT?"},
		{"SALLYPORT_ZZZZZZZZZZZZ", "3", "the nearest is "},
		{"SALLYPORT_ANSWER_CHARACTERS", "3", "there are SALLYPORT_ANSWER_TOKENS, SALLYPORT_ANSWER_WITHIN"},
		{"sallyport_log_level", "info", "did you mean SALLYPORT_LOG_LEVEL?"},
		{"MCP_BRIDGE_LOGLEVEL", "info", "did you mean MCP_BRIDGE_LOG_LEVEL?"},
		{"MCP_BRIDGE_PYTHON", "python3", "did you mean SALLYPORT_PYTHON?"},
		{"MCP_BRIDGE_TIMOUT", "3", "did you mean MCP_BRIDGE_TIMEOUT?"},
		{"MCP_BRIDGE_MEMORY_LIMIT", "1g", "the memory limit is MCP_BRIDGE_MEMORY, for example 512m"},
		{"MCP_BRIDGE_PIDS_LIMIT", "1", "MCP_BRIDGE_PIDS"},
		{"MCP_BRIDGE_CPU_QUOTA", "50000", "MCP_BRIDGE_CPUS"},
		{"MCP_BRIDGE_SESSION_PERSIST", "true", "none is needed: variables, imports and files always stay"},
		{"MCP_BRIDGE_SECURITY_OPT", "x", "none is needed"},
		{"MCP_BRIDGE_TIMEOUT", "30 seconds", `"30 seconds": not a duration such as 30, 30s or 2m`},
		{"MCP_BRIDGE_PIDS", "0", `"0": out of range: 8 to 32768`},
		{"MCP_BRIDGE_OUTPUT_MODE", "json", `"json": not one of compact, toon`},
		{"MCP_BRIDGE_ALLOW_SELF_SERVER", "maybe", "neither true nor false"},
		{"MCP_SERVERS_CONFIG", "/nonexistent/servers.json", `"/nonexistent/servers.json": there is no such file`},
		{"SALLYPORT_SERVERS_CONFIG", "/nonexistent/a,/nonexistent/b", `"/nonexistent/a": there is no such file`},
		{"SALLYPORT_PORT", "8080", "there is no such variable"},
		{"MCP_BRIDGE_MEMORY", strings.Repeat("9", 500), "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name+"="+tt.value[:min(20, len(tt.value))], func(t *testing.T) {
			problems := fails(t, settings.Sources{Environ: map[string]string{tt.name: tt.value}}, tt.name+": ", tt.want)
			if len(problems) != 1 || problems[0].Name != tt.name || len(problems[0].String()) > 300 {
				t.Errorf("problems: %v", problems)
			}
		})
	}
}

func TestAnUnknownVariablesValueIsNotShown(t *testing.T) {
	_, err := settings.Load(settings.Sources{Environ: map[string]string{"SALLYPORT_TOKEN": "hunter2"}})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

func TestVariablesOfOthers(t *testing.T) {
	mustLoad(t, settings.Sources{Environ: map[string]string{
		"SALLYPORT_DEPTH": "1", "SALLYPORT_BIN": "/x", "SALLYPORT_TEST_ANYTHING": "y", "SALLYPORT_MUST_RUN": "z",
		// What a cluster puts into a container beside a service of our name.
		"SALLYPORT_SERVICE_HOST": "10.0.0.1", "SALLYPORT_SERVICE_PORT": "80", "SALLYPORT_SERVICE_PORT_HTTP": "80",
		"SALLYPORT_PORT": "tcp://10.0.0.1:80", "SALLYPORT_PORT_80_TCP": "tcp://10.0.0.1:80", "SALLYPORT_PORT_80_TCP_ADDR": "10.0.0.1",
		"SALLYPORT_HTTP_SERVICE_HOST": "10.0.0.2", "MCP_BRIDGE_SERVICE_HOST": "10.0.0.3",
		"SALLYPORT_EMPTY": "", "MCP_OTHER": "1", "SALLYPORTS": "1", "XSALLYPORT_A": "1",
	}})
}

func TestWrongFlags(t *testing.T) {
	tests := []struct {
		flag settings.Flag
		want string
	}{
		{settings.Flag{Name: "--set", Key: "limits.memroy", Value: "1g"}, `--set: there is no setting "limits.memroy"; did you mean limits.memory?`},
		{settings.Flag{Name: "--python", Key: "python"}, `--python: it is empty`},
		{settings.Flag{Name: "--log-level", Key: "log.level", Value: "loud"}, `--log-level: "loud": not one of debug`},
		{settings.Flag{Name: "--x", Key: "python", Values: []string{"a"}}, `--x: not a list`},
		{settings.Flag{Name: "--servers-config", Key: "servers.config", Values: []string{"/nonexistent/x,y"}}, `--servers-config: "/nonexistent/x,y": there is no such file`},
	}
	for _, tt := range tests {
		fails(t, settings.Sources{Flags: []settings.Flag{tt.flag}}, tt.want)
	}
	s := mustLoad(t, settings.Sources{Flags: []settings.Flag{{Name: "--set", Key: "policy.servers", Value: ""}}})
	if len(s.Policy.Servers) != 0 {
		t.Errorf("servers %q", s.Policy.Servers)
	}
}

func TestManyProblems(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	home := write(t, b.String())
	problems := fails(t, settings.Sources{Home: home}, "5000 settings are wrong:", "and 4980 more")
	if len(problems) != 20 {
		t.Errorf("%d problems", len(problems))
	}
}
