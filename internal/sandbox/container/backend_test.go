//go:build unix

package container

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
	"github.com/sallyport/sallyport/internal/wire"
)

// silent takes what an execution says.
type silent struct{ out chan []byte }

func (s silent) Output(_ wire.Stream, p []byte) { s.out <- append([]byte{}, p...) }
func (silent) Call(context.Context, wire.Call) (json.RawMessage, error) {
	return nil, errors.New("no calls here")
}

// said runs code and returns what it wrote.
func said(t *testing.T, conn *guest.Conn, code string) string {
	t.Helper()
	h := silent{make(chan []byte, 1024)}
	x, err := conn.Start(wire.Exec{Code: code}, h)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.Done():
	case <-time.After(time.Minute):
		t.Fatal("the execution does not end")
	}
	close(h.out)
	var b strings.Builder
	for p := range h.out {
		b.Write(p)
	}
	return b.String()
}

func TestGuestOverTheClient(t *testing.T) {
	f := newFake(t)
	f.put(t, "warning", "WARNING: your kernel does not support swap limit capabilities")
	b := f.backend(t)
	run, conn := f.open(t, b, "one")
	if got := said(t, conn, "print(6 * 7)"); got != "42\n" {
		t.Errorf("got %q", got)
	}
	// A length whose bytes are Podman's keys for leaving a container.
	if got := said(t, conn, "len('"+strings.Repeat("x", 0x1011)+"')"); got != "4113\n" {
		t.Errorf("got %q", got)
	}
	env := said(t, conn, "import os, sys; print(sorted(os.environ), os.environ['MINE'], sys.argv, sys.flags.isolated, [p for p in sys.path if 'nonexistent' in p], '__fi' 'le__' in vars(sys.modules['__main__']))")
	for _, leak := range []string{"PROXY", "PYTHONPATH", "container", "SALLYPORT", "SECRET"} {
		if strings.Contains(env, leak) {
			t.Errorf("%s in %s", leak, env)
		}
	}
	if !strings.HasSuffix(env, " 1 ['"+sandbox.ProgramDir+"/sallyport_guest/__main__.py'] 1 [] False\n") {
		t.Errorf("got %s", env)
	}
	if logs, err := run.(sandbox.Logger).Logs(t.Context()); err != nil || !strings.Contains(logs, "swap limit") {
		t.Errorf("logs %q, %v", logs, err)
	}
	if got := said(t, conn, "1/0"); strings.Count(got, "File ") != 1 {
		t.Errorf("a traceback of other lines than the user's: %s", got)
	}
}

func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(*testing.T, *fake, *Engine)
		code   string
		want   sandbox.Reason
		detail string
	}{
		{"by itself", nil, "import os; os._exit(7)", sandbox.Exited, ""},
		{"killed", nil, "import os; os.kill(os.getpid(), 9)", sandbox.Exited, ""},
		{"out of memory", func(t *testing.T, f *fake, _ *Engine) { f.put(t, "oom", "") }, "import os; os.kill(os.getpid(), 9)", sandbox.OutOfMemory, ""},
		{"clean, though memory ended once", func(t *testing.T, f *fake, _ *Engine) { f.put(t, "oom", "") }, "import os; os._exit(0)", sandbox.Exited, ""},
		{"removed by somebody", func(t *testing.T, f *fake, _ *Engine) {
			for _, c := range f.containers(t) {
				if err := os.Remove(c); err != nil {
					t.Fatal(err)
				}
			}
		}, "import os; os._exit(0)", sandbox.EngineDied, "removed from outside"},
		{"engine stopped", func(t *testing.T, f *fake, _ *Engine) {
			f.put(t, "down", "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?")
		}, "import os; os._exit(0)", sandbox.EngineDied, "to fix it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			b := f.backend(t)
			run, conn := f.open(t, b, "one")
			if tt.before != nil {
				tt.before(t, f, b)
			}
			_ = said(t, conn, tt.code)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			e, err := run.Wait(ctx)
			if err != nil || e.Reason != tt.want || !strings.Contains(e.Detail, tt.detail) {
				t.Errorf("%+v, %v", e, err)
			}
			if tt.want == sandbox.EngineDied {
				return // the fake cannot remove what it lost
			}
			if err := run.Destroy(ctx); err != nil {
				t.Error(err)
			}
			if left := f.containers(t); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestClientKilled: the client is not the container.
func TestClientKilled(t *testing.T) {
	f := newFake(t)
	b := f.backend(t)
	opened, conn := f.open(t, b, "one")
	_ = opened.(*run).process.cmd.Process.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := opened.Wait(ctx)
	if err != nil || e.Reason != sandbox.EngineDied {
		t.Errorf("%+v, %v", e, err)
	}
	_ = conn.Close()
	if err := opened.Destroy(ctx); err != nil {
		t.Error(err)
	}
	if left := f.containers(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestStartFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *fake)
		kind   error
		text   []string
	}{
		{"engine down", func(t *testing.T, f *fake) { f.put(t, "down", "Cannot connect to Podman.") }, sandbox.ErrUnavailable, []string{"podman", "To fix it"}},
		{"not installed", func(_ *testing.T, f *fake) { f.opts.Command = "/nonexistent/podman" }, sandbox.ErrUnavailable, []string{"is not installed", "apt-get install podman"}},
		{"no image", func(t *testing.T, f *fake) { f.drop(t, "image") }, sandbox.ErrUnsupported, []string{"test:1", "is not here", "registry is reachable"}},
		{"no image, none fetched", func(t *testing.T, f *fake) { f.drop(t, "image"); f.opts.Pull = PullNever }, sandbox.ErrUnsupported, []string{"images.pull is never", "podman pull test:1"}},
		{"image gone", func(t *testing.T, f *fake) { f.put(t, "refuse", "Error: sha256:f00: image not known") }, sandbox.ErrUnsupported, []string{"image"}},
		{"no Python", func(t *testing.T, f *fake) {
			f.put(t, "refuse", "Error: crun: executable file `python3` not found in $PATH: No such file or directory")
		}, sandbox.ErrUnavailable, []string{"the image has no", "3.9"}},
		{"disk full", func(t *testing.T, f *fake) {
			f.put(t, "refuse", "Error: creating container storage: no space left on device")
		}, sandbox.ErrUnavailable, []string{"disk of podman is full", "system df"}},
		{"rlimits", func(t *testing.T, f *fake) {
			f.put(t, "refuse", "Error: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted")
		}, sandbox.ErrUnavailable, []string{"limits.openFiles"}},
		{"something else", func(t *testing.T, f *fake) { f.put(t, "refuse", "Error: the moon is full") }, sandbox.ErrStart, []string{"the moon is full"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			tt.change(t, f)
			b := f.backend(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			run, err := b.Start(ctx, f.spec(t, "one"))
			if err == nil {
				_ = run.Destroy(ctx)
				t.Fatal("it started")
			}
			if !errors.Is(err, tt.kind) {
				t.Errorf("not %v: %v", tt.kind, err)
			}
			for _, text := range tt.text {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("no %q in: %v", text, err)
				}
			}
			if left := f.containers(t); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			// Once fixed it starts.
			_ = os.Remove(filepath.Join(f.dir, "down"))
			_ = os.Remove(filepath.Join(f.dir, "refuse"))
			if f.opts.Command == "/nonexistent/podman" || tt.kind == sandbox.ErrUnsupported && tt.name != "image gone" {
				return
			}
			b.keep(f.opts.Image, mustFacts(t), &image{ID: "sha256:f00", inspection: &inspection{inside: good()}})
			again, err := b.Start(ctx, f.spec(t, "one"))
			if err != nil {
				t.Fatalf("once fixed: %v", err)
			}
			if err := again.Destroy(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

func mustFacts(t *testing.T) *facts {
	f, err := parseInfo(recorded(t, "podman-root-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestImageIsFetched(t *testing.T) {
	f := newFake(t)
	f.drop(t, "image")
	f.put(t, "pull", fakeImage)
	b := f.backend(t)
	rep, err := b.Probe(t.Context())
	if err != nil || !rep.Usable || rep.Limits[sandbox.Memory].Enforcement != sandbox.Hard {
		t.Fatalf("%+v, %v", rep, err)
	}
	if len(rep.Findings) != 1 || !strings.Contains(rep.Findings[0].Remedy, "pull test:1") {
		t.Errorf("findings %+v", rep.Findings)
	}
	if log, _ := os.ReadFile(filepath.Join(f.dir, "log")); strings.Contains(string(log), "pull") {
		t.Error("a probe fetched the image")
	}
	_, conn := f.open(t, b, "one")
	if got := said(t, conn, "print(1)"); got != "1\n" {
		t.Errorf("got %q", got)
	}
}

// TestSweep: what dead programs left is removed, once their lock is free; what
// others have is left alone.
func TestSweep(t *testing.T) {
	f := newFake(t)
	target := mustFacts(t).Target
	plant := func(id string) string {
		path := filepath.Join(f.dir, "container-"+namePrefix+id+"-run")
		if err := os.WriteFile(path, []byte(`{"Id":"x","State":{"Status":"exited"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	record := func(id, target string, age time.Duration) {
		text, err := json.Marshal(note{Target: target, Used: time.Now().Add(-age)})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.opts.State.Write(id+instanceSuffix, text); err != nil {
			t.Fatal(err)
		}
	}
	dead, fresh, live, foreign, unknown := plant("dead"), plant("fresh"), plant("live"), plant("foreign"), plant("unknown")
	record("dead", target, time.Hour)
	record("fresh", target, 0)
	record("live", target, time.Hour)
	record("foreign", "docker of another machine", time.Hour)
	unlock, ok, err := f.opts.State.TryLock("live")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	b := f.backend(t)
	f.open(t, b, "one")
	gone := func(path string) bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	}
	if !gone(dead) || !gone(fresh) {
		t.Error("what dead programs left is there")
	}
	if gone(live) || gone(foreign) || gone(unknown) {
		t.Error("what others have was removed")
	}
	names, err := f.opts.State.List()
	if err != nil {
		t.Fatal(err)
	}
	has := strings.Join(names, " ")
	// A client of the fresh one may still be making a container.
	if strings.Contains(has, "dead") || !strings.Contains(has, "fresh") || !strings.Contains(has, "live") || !strings.Contains(has, "foreign") {
		t.Errorf("records: %s", has)
	}
	unlock()
	// Attach sweeps, too, and finds nothing to attach to.
	if _, err := b.Attach(t.Context(), sandbox.Handle{Backend: Podman, Version: 1, ID: "gone"}); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("attach: %v", err)
	}
	if !gone(live) {
		t.Error("what was left by a program that then died is there")
	}
}

// TestCloseLeavesNothing: no container, no lock, no file.
func TestCloseLeavesNothing(t *testing.T) {
	f := newFake(t)
	b := f.backend(t)
	for _, id := range []string{"one", "two"} {
		f.open(t, b, id)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if left := f.containers(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	entries, err := os.ReadDir(f.opts.State.Path(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "seccomp" {
			t.Errorf("left: %s", e.Name())
		}
	}
	if _, err := b.Start(t.Context(), f.spec(t, "three")); !errors.Is(err, supervise.ErrClosed) {
		t.Errorf("a start after Close: %v", err)
	}
}

func TestInterruptAndPause(t *testing.T) {
	f := newFake(t)
	b := f.backend(t)
	run, conn := f.open(t, b, "one")
	h := silent{make(chan []byte, 1024)}
	x, err := conn.Start(wire.Exec{Code: "print('go', flush=True)\nwhile True: pass"}, h)
	if err != nil {
		t.Fatal(err)
	}
	<-h.out
	if err := run.(sandbox.Interrupter).Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.Done():
	case <-time.After(time.Minute):
		t.Fatal("it was not interrupted")
	}
	if err := run.(sandbox.Pauser).Pause(t.Context()); err != nil {
		t.Error(err)
	}
	if err := run.(sandbox.Pauser).Resume(t.Context()); err != nil {
		t.Error(err)
	}
	if err := run.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := run.(sandbox.Interrupter).Interrupt(t.Context()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("interrupt after the end: %v", err)
	}
}

// TestVerify: a container that is less closed than asked for is refused.
func TestVerify(t *testing.T) {
	b := &Engine{opts: Options{Engine: Podman, User: DefaultUser}}
	if err := b.verify(&inspection{inside: good()}, mustFacts(t), &image{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		spoil func(*inside)
		text  string
	}{
		{"root", func(i *inside) { i.UID = 0 }, "runs as 0:65534"},
		{"another group", func(i *inside) { i.GID = 0 }, "runs as 65534:0"},
		{"capabilities", func(i *inside) { i.Status["CapEff"] = []string{"00000000a80425fb"} }, "capabilities"},
		{"bounding set", func(i *inside) { i.Status["CapBnd"] = []string{"0000000000000001"} }, "capabilities"},
		{"new privileges", func(i *inside) { i.Status["NoNewPrivs"] = []string{"0"} }, "no-new-privileges"},
		{"network", func(i *inside) { i.Interfaces = []string{"lo", "eth0"} }, "eth0"},
		{"root is writable", func(i *inside) { i.Writable = []string{"/etc"} }, "/etc"},
		{"a volume of the configuration", func(i *inside) {
			i.Mounts = []mount{{At: "/home/me", Type: "ext4", Options: []string{"rw"}}}
		}, "/home/me"},
		{"a read-only one", func(i *inside) {
			i.Mounts = []mount{{At: "/srv", Type: "ext4", Options: []string{"ro"}}}
		}, "/srv"},
		{"subscriptions", func(i *inside) {
			i.Mounts = []mount{{At: "/run/secrets", Root: "/containers/x/run/secrets", Type: "tmpfs", Options: []string{"ro"}}}
		}, "/run/secrets"},
		{"a large workspace", func(i *inside) { i.Sizes["/workspace"] = 1 << 40 }, "/workspace"},
		{"no workspace", func(i *inside) { i.Sizes["/workspace"] = -1 }, "/workspace"},
		{"large packages", func(i *inside) { i.Sizes["/packages"] = 1 << 40 }, "/packages"},
		{"another first process", func(i *inside) { i.PID = 2 }, "first process"},
		{"variables of the service's", func(i *inside) { i.Environment = []string{"PATH", "AWS_SECRET_ACCESS_KEY"} }, "(AWS_SECRET_ACCESS_KEY)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := good()
			tt.spoil(&in)
			var unsafe *unsafeError
			if err := b.verify(&inspection{inside: in}, mustFacts(t), &image{}); !errors.As(err, &unsafe) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v", err)
			}
		})
	}
	in := good()
	in.Mounts = []mount{{At: "/", Type: "overlay"}, {At: "/proc/acpi", Type: "tmpfs"}, {At: "/data", Root: "/", Type: "tmpfs", Options: []string{"ro"}}, {At: "/etc/hosts", Type: "ext4", Options: []string{"ro"}}, {At: "/etc/passwd", Root: "/containers/x/passwd", Type: "tmpfs", Options: []string{"ro"}}, {At: "/run/secrets", Root: "/", Type: "tmpfs", Options: []string{"ro", "nosuid"}}}
	in.Environment = []string{"HOME", "HOSTNAME", "PATH", "PYTHON_VERSION", "TERM", "container"}
	if err := b.verify(&inspection{inside: in}, mustFacts(t), &image{Env: []string{"PATH", "PYTHON_VERSION"}}); err != nil {
		t.Error(err)
	}
}

func TestOwnKernel(t *testing.T) {
	f := mustFacts(t)
	host, boot := hostKernel()
	for _, tt := range []struct {
		name string
		t    inspection
		f    facts
		want bool
	}{
		{"the host's", inspection{inside: inside{Kernel: "6.18.44-fc-v595 #1"}}, *f, false},
		{"gVisor by its name", inspection{inside: inside{Kernel: "4.19.0-gvisor #1"}}, *f, true},
		{"gVisor by its log", inspection{inside: inside{Kernel: "4.4.0 #1", Log: "[    0.000000] Starting gVisor...\n"}}, *f, true},
		{"a virtual machine's", inspection{inside: inside{Kernel: "6.1.62 #1"}}, *f, true},
		{"not known", inspection{}, *f, false},
		{"an image that claims gVisor", inspection{runtime: "/usr/bin/crun", inside: inside{Kernel: "4.4.0 #1", Log: "Starting gVisor"}}, *f, false},
		{"an image that claims another kernel", inspection{runtime: "io.containerd.runc.v2", inside: inside{Kernel: "6.1.62 #1"}}, *f, false},
		{"a runtime with a kernel", inspection{runtime: "/opt/bin/runsc", inside: inside{Kernel: "4.19.0-gvisor #1"}}, *f, true},
		{"the engine does not say", inspection{inside: inside{Kernel: "6.1.62 #1"}}, facts{}, false},
		{"the same release, this boot", inspection{inside: inside{Kernel: host, Boot: boot}, outside: outside{Local: true}}, facts{Kernel: firstWord(host)}, false},
	} {
		if _, got := tt.t.ownKernel(&tt.f); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestLimitsAreMeasured(t *testing.T) {
	f := mustFacts(t)
	full := &inspection{inside: good()}
	for r, l := range full.limits(f) {
		if l.Enforcement != sandbox.Hard || l.By == "" {
			t.Errorf("%s: %+v", r, l)
		}
	}
	// An engine that says it can, and does not.
	idle := good()
	idle.Groups = map[string]string{"memory.max": "max", "pids/pids.max": "max", "cpu.max": "max 100000", "memory/memory.limit_in_bytes": "9223372036854771712"}
	idle.Files = 1 << 20
	bare := &inspection{inside: idle}
	for _, r := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU, sandbox.OpenFiles} {
		if l := bare.limits(f)[r]; l.Enforcement != sandbox.Absent || l.By == "" {
			t.Errorf("%s: %+v", r, l)
		}
	}
	// An image that claims what the engine cannot do.
	for _, r := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU} {
		if l := full.limits(&facts{Podman: true, Rootless: true})[r]; l.Enforcement != sandbox.Absent {
			t.Errorf("%s, as the image says: %+v", r, l)
		}
	}
	bare.watched = true
	if l := bare.limits(f)[sandbox.Memory]; l.Enforcement != sandbox.Soft {
		t.Errorf("memory, watched: got %+v, want soft", l)
	}
}

// TestProcessesAreMeasured: what counts is how many a container could have.
func TestProcessesAreMeasured(t *testing.T) {
	rooted := mustFacts(t)
	rootless, err := parseInfo(recorded(t, "podman-rootless-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		f     *facts
		had   int
		group string
		want  sandbox.Enforcement
	}{
		{"a control group that holds", rooted, inspectionLimits.Processes, "61", sandbox.Hard},
		{"one that says so and does not", rooted, 80, "61", sandbox.Absent},
		{"users of its own that hold", rootless, inspectionLimits.Processes, "", sandbox.Hard},
		{"… that do not", rootless, 80, "", sandbox.Absent},
		{"… that an old kernel counts together with others'", rootless, 3, "", sandbox.Hard},
		{"not tried, and no control group", rootless, 0, "", sandbox.Absent},
		{"no users to give", &facts{Podman: true, Rootless: true}, inspectionLimits.Processes, "", sandbox.Absent},
	} {
		in := good()
		in.Processes, in.Groups["pids.max"] = tt.had, tt.group
		if got := (&inspection{inside: in}).limits(tt.f)[sandbox.Processes]; got.Enforcement != tt.want || got.By == "" {
			t.Errorf("%s: got %+v, want %v", tt.name, got, tt.want)
		}
	}
	unfiltered := *rootless
	unfiltered.Seccomp = false // no profile to write
	if args := strings.Join((&Engine{}).containerSpec(&unfiltered, &image{}, "i", "r", python.Program(), sandbox.Limits{Processes: 64}).args(), " "); !strings.Contains(args, "--ulimit nproc=64:64") || !strings.Contains(args, "--uidmap 0:0:65537") {
		t.Errorf("got %s, want a limit of 64 and users of its own", args)
	}
}

// TestConcede: what a remote engine cannot do is tried without, once.
func TestConcede(t *testing.T) {
	profile := errors.New("Error: opening seccomp profile failed: open /home/me/x.json: no such file or directory")
	rlimit := errors.New("Error: runc: error setting rlimit type 6: operation not permitted")
	f := &facts{Podman: true, Seccomp: true}
	if f.concede(profile) || f.concede(rlimit) || f.concede(nil) {
		t.Error("an engine here starts with less than was asked for")
	}
	f.Remote = true
	if !f.concede(profile) || !f.NoProfile || f.concede(profile) {
		t.Errorf("the profile: got %+v, want one attempt without", f)
	}
	if !f.concede(rlimit) || !f.Lowered || f.concede(rlimit) {
		t.Errorf("limits: got %+v, want one attempt with lower ones", f)
	}
	if f.concede(errors.New("Error: the moon is full")) {
		t.Error("any failure is tried again")
	}
}

func TestReadInspectionIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":        "",
		"no end":         strings.Repeat("x", maxFacts*2),
		"not JSON":       "x\n",
		"no byte code":   "{}\n",
		"too much":       `{"bundle":1000000000}` + "\n",
		"negative":       `{"bundle":-1}` + "\n",
		"less than said": `{"bundle":10}` + "\nabc",
	} {
		if got, err := readInspection(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got, err := readInspection(strings.NewReader(`{"bundle":3,"python":"3.13.0"}` + "\nabcdef"))
	if err != nil || string(got.bundle) != "abc" || got.inside.Python != "3.13.0" {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzReadInspection(f *testing.F) {
	f.Add([]byte(`{"bundle":3,"python":"3.13.0","mounts":[{"at":"/"}]}` + "\nabc"))
	b := &Engine{opts: Options{Engine: Podman, User: DefaultUser}}
	f.Fuzz(func(_ *testing.T, data []byte) {
		if t, err := readInspection(strings.NewReader(string(data))); err == nil {
			_ = b.verify(t, &facts{}, &image{})
			_ = t.limits(&facts{})
			_, _ = t.ownKernel(&facts{Kernel: "1"})
		}
	})
}

// TestOrphan: a container whose host is gone ends, also where code does not
// listen.
func TestOrphan(t *testing.T) {
	f := newFake(t)
	b := f.backend(t)
	opened, conn := f.open(t, b, "one")
	h := silent{make(chan []byte, 1024)}
	_, err := conn.Start(wire.Exec{Code: `
print("go", flush=True)
while True:
    try:
        while True: pass
    except BaseException: pass
`}, h)
	if err != nil {
		t.Fatal(err)
	}
	<-h.out
	_ = opened.(sandbox.Duplexer).Channel().Stdin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, err := opened.Wait(ctx); err != nil || e.Reason != sandbox.Exited || e.Code != 137 {
		t.Errorf("%+v, %v", e, err)
	}
}
