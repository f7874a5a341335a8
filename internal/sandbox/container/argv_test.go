package container

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

func example() *containerSpec {
	return &containerSpec{
		name: "sallyport-abc-run-1", instance: "abc", run: "run-1", owner: "alice\n--privileged",
		image: "sha256:0123", seccomp: "/state/seccomp.json", argv: command(python.Program(), "python3"), user: DefaultUser,
		limits:  sandbox.Limits{MemoryBytes: 512 << 20, Processes: 128, CPUs: 1.5, WorkspaceBytes: 128 << 20, TmpBytes: 64 << 20, OpenFiles: 1024},
		volumes: []string{"/data"},
		flags: flags{
			memory: true, swap: true, pids: true, cpus: true, maxOpen: 20000, maxProcesses: 32768,
			envHost: true, httpProxy: true,
		},
	}
}

// withFolders makes a container see a folder of each kind.
func withFolders(b *containerSpec) {
	folders := folders{user: "1000:1000", userns: "keep-id", binds: []bind{
		{source: "/home/me/data", target: "/mnt/data", readOnly: true, ino: 1},
		{source: "/state/empty/empty", target: "/mnt/data/pipe", readOnly: true},
		{source: "/home/me/out", target: "/mnt/out", ino: 2},
	}}
	folders.apply(b, []sandbox.Mount{{Target: "/mnt/data", Mode: "ro"}, {Target: "/mnt/out", Mode: "rw"}, {Target: "/data", Mode: "copy"}})
}

// TestArguments: a container's isolation is exactly its arguments, so that a
// change of them is a change that is seen.
func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*containerSpec)
	}{
		{"docker", func(*containerSpec) {}},
		{"docker-runtime", func(b *containerSpec) { b.runtime, b.limits.CPUs = "runsc", 0 }},
		{"podman", func(b *containerSpec) { b.flags.podman = true }},
		{"podman-bare", func(b *containerSpec) { b.flags = flags{podman: true} }},
		{"podman-own-users", func(b *containerSpec) {
			b.flags = flags{podman: true, envHost: true, httpProxy: true, maxProcesses: 32768, uids: 65537, gids: 65536}
		}},
		{"podman-remote", func(b *containerSpec) {
			b.flags.podman, b.flags.remote, b.flags.maxOpen, b.flags.maxProcesses = true, true, 0, 0
			b.flags.envHost, b.flags.httpProxy, b.flags.detachKeys = false, false, "ctrl-a,ctrl-b"
			b.runtime, b.userns = "crun", "auto"
		}},
		{"docker-folders", withFolders},
		{"podman-folders", func(b *containerSpec) {
			b.flags.podman = true
			withFolders(b)
		}},
		{"podman-gvisor", func(b *containerSpec) {
			b.flags.podman, b.flags.gvisor, b.runtime = true, true, "/opt/bin/runsc"
		}},
		{"podman-runtime", func(b *containerSpec) {
			b.flags.podman, b.runtime, b.limits.OpenFiles = true, "/opt/bin/runsc", 1<<20
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := example()
			tt.change(b)
			args := b.args()
			// The program is tested by running it.
			argv := python.Program().Loader.Argv
			i := slices.Index(args, argv[len(argv)-1])
			if i < 0 {
				t.Fatal("the opening is not among the arguments")
			}
			args[i] = "OPENING"
			args[i+1] = "N"
			got := strings.ReplaceAll(strings.Join(args, "\n"), "\n--", "\n  --") + "\n"
			file := filepath.Join("testdata", tt.name+".args")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestArgumentsAlways: what no engine may lack.
func TestArgumentsAlways(t *testing.T) {
	for _, podman := range []bool{false, true} {
		b := example()
		b.flags.podman = podman
		text := " " + strings.Join(b.args(), " ") + " "
		for _, want := range []string{
			" --network none ", " --read-only ", " --cap-drop ALL ", " --security-opt no-new-privileges ", " --user 65534:65534 ",
			" --pull never ", " --memory 536870912 ", " --memory-swap 536870912 ", " --pids-limit 128 ", " --cpus 1.5 ",
			" --ulimit nofile=1024:1024 ", " --ipc private ", " --cgroupns private ", " --log-driver none ", " --privileged=false ",
			" --tmpfs /workspace:rw,noexec,nosuid,nodev,", " --tmpfs /packages:rw,exec,nosuid,nodev,", ",size=134217728", " --entrypoint python3 sha256:0123 -I -S ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("podman %v: no %q in %s", podman, want, text)
			}
		}
		for _, never := range []string{" --volume ", " -v ", "type=bind", " --device ", " --cap-add ", "seccomp=unconfined", " --network host ", " --privileged "} {
			if strings.Contains(text, never) {
				t.Errorf("podman %v: %q in %s", podman, never, text)
			}
		}
	}
}

// TestRemoteArguments: a remote client of Podman is given nothing that it lacks.
func TestRemoteArguments(t *testing.T) {
	help := recorded(t, "podman-remote-run-help.txt")
	b := example()
	b.flags.podman, b.flags.remote = true, true
	b.flags.envHost, b.flags.httpProxy = hasOption(help, "env-host"), hasOption(help, "http-proxy")
	b.flags.detachKeys, b.runtime = detachKeys(), "runc"
	args := b.args()
	for i, arg := range args[:slices.Index(args, "--entrypoint")] {
		if name, isOption := strings.CutPrefix(arg, "--"); isOption {
			if name, _, _ = strings.Cut(name, "="); !hasOption(help, name) {
				t.Errorf("got --%s, which the client does not list", name)
			}
		}
		if arg == "--detach-keys" && len(strings.Split(args[i+1], ",")) < 16 {
			t.Errorf("got the keys %q, want a sequence that does not occur", args[i+1])
		}
	}
}

// TestHasOption: what clients list, of both kinds.
func TestHasOption(t *testing.T) {
	for _, tt := range []struct {
		file, option string
		want         bool
	}{
		{"podman-run-help.txt", "env-host", true},
		{"podman-run-help.txt", "http-proxy", true},
		{"podman-run-help.txt", "interactive", true},
		{"podman-run-help.txt", "env-hos", false},
		{"podman-remote-run-help.txt", "env-host", false},
		{"podman-remote-run-help.txt", "detach-keys", true},
	} {
		if got := hasOption(recorded(t, tt.file), tt.option); got != tt.want {
			t.Errorf("%s, --%s: got %v, want %v", tt.file, tt.option, got, tt.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"alice": "alice", "a\nb\x00c\x7f": "a_b_c_", "ä": "ä", "a\xffb": "a_b",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
	if got := printable(strings.Repeat("ä", 300)); len(got) > maxOwner || !strings.HasPrefix(got, "ää") {
		t.Errorf("%d bytes", len(got))
	}
}
