//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// pooled returns a Pool, which ends with the test.
func pooled(t *testing.T, opts Options) *Pool {
	t.Helper()
	opts.StopGrace = 300 * time.Millisecond
	p := NewPool(opts)
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// here are the surroundings of the test.
func here() Surroundings { return Surroundings{Environ: os.Environ()} }

func pid(t *testing.T, m *Manager, name string) int {
	t.Helper()
	return running(t, m, name).Info().PID
}

// TestPoolShares starts a server for one client and looks at it through another.
func TestPoolShares(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	link := filepath.Join(other, filepath.Base(exe))
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	at := func(command, dir string, args []string, env ...string) Definition {
		vars := map[string]string{roleVariable: "sdk"}
		for _, e := range env {
			k, v, _ := strings.Cut(e, "=")
			vars[k] = v
		}
		return definitions.New("a", "", definitions.Launch{Command: command, Args: args, Env: vars, Dir: dir})
	}
	base := os.Environ()
	with := func(more ...string) []string { return append(slices.Clone(base), more...) }
	for _, tt := range []struct {
		name   string
		def    Definition
		env    []string
		alone  bool
		shares bool
	}{
		{"the same", at(exe, "", nil), base, false, true},
		{"another terminal", at(exe, "", nil), with("TERM=other", "FNM_MULTISHELL_PATH=/other", "XDG_SESSION_ID=9"), false, true},
		{"another shell", at(exe, "", nil), with("SHELL=/bin/other"), false, false},
		{"another version of Node", at(exe, "", nil), with("NVM_BIN=/other"), false, false},
		{"another variable that no server gets", at(exe, "", nil), with("SOME_API_KEY=other"), false, true},
		{"a PATH that leads to the same", at(exe, "", nil), with("PATH=relative:/nowhere:" + os.Getenv("PATH") + ":" + os.Getenv("PATH")), false, true},
		{"a PATH that leads elsewhere", at(exe, "", nil), with("PATH=" + other + ":" + os.Getenv("PATH")), false, false},
		{"another proxy", at(exe, "", nil), with("HTTPS_PROXY=http://user:pass@127.0.0.1:1"), false, false},
		{"another home", at(exe, "", nil), with("HOME=/other"), false, false},
		{"another program", at(link, "", nil), base, false, false},
		{"other arguments", at(exe, "", []string{"-x"}), base, false, false},
		{"arguments that join the same", at(exe, "", []string{"a b"}), base, false, false},
		{"another directory", at(exe, other, nil), base, false, false},
		{"another secret", at(exe, "", nil, "KEY=two"), base, false, false},
		{"a server for each client", at(exe, "", nil), base, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pooled(t, Options{Sharing: func(Definition) definitions.Sharing {
				if tt.alone {
					return definitions.ShareClient
				}
				return definitions.ShareAll
			}})
			one := p.NewManager([]Definition{at(exe, "", nil)}, Surroundings{Environ: base})
			two := p.NewManager([]Definition{tt.def}, Surroundings{Environ: tt.env})
			if shares := pid(t, one, "a") == pid(t, two, "a"); shares != tt.shares {
				t.Errorf("got shared %t, want %t", shares, tt.shares)
			}
		})
	}
}

// TestIdentityOfRemotes: a connection is not shared by clients that trust other
// authorities, or read a secret in another place.
func TestIdentityOfRemotes(t *testing.T) {
	p := pooled(t, Options{})
	at := func(header string, of Surroundings) identity {
		entry := fmt.Sprintf(`{"url":"https://example.com/mcp","headers":{"X":%q}}`, header)
		def, err := definitions.Parse("a", json.RawMessage(entry), definitions.Options{}, true)
		if err != nil {
			t.Fatal(err)
		}
		return p.NewManager([]Definition{def}, of).set.Load().slots["a"].entry.id
	}
	const plain, secret = "x", "${keyring:x}"
	for _, tt := range []struct {
		name, header string
		one, two     Surroundings
		shares       bool
	}{
		{"the same", plain, Surroundings{}, Surroundings{}, true},
		{"another file of authorities", plain, Surroundings{}, Surroundings{Environ: []string{"SSL_CERT_FILE=/x"}}, false},
		{"another directory of authorities", plain, Surroundings{}, Surroundings{Environ: []string{"SSL_CERT_DIR=/x"}}, false},
		{"another keyring without a secret", plain, Surroundings{Keyring: "a"}, Surroundings{Keyring: "b"}, true},
		{"the same keyring", secret, Surroundings{Keyring: "a"}, Surroundings{Keyring: "a"}, true},
		{"another keyring", secret, Surroundings{Keyring: "a"}, Surroundings{Keyring: "b"}, false},
	} {
		if shares := at(tt.header, tt.one) == at(tt.header, tt.two); shares != tt.shares {
			t.Errorf("%s: got shared %t, want %t", tt.name, shares, tt.shares)
		}
	}
}

// TestPoolPath: a search path is compared by the directories that it leads to.
func TestPoolPath(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	link := filepath.Join(t.TempDir(), "link") // as a shell's own link to a version of Node
	if err := os.Symlink(dirs[0], link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.Symlink(exe, filepath.Join(dir, "server")); err != nil {
			t.Fatal(err)
		}
	}
	def := definitions.New("a", "", definitions.Launch{Command: "server", Env: map[string]string{roleVariable: "sdk"}})
	p := pooled(t, Options{})
	var pids []int
	for _, path := range []string{dirs[0], "/nowhere:" + link + ":" + dirs[0], dirs[1]} {
		env := append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }), "PATH="+path)
		pids = append(pids, pid(t, p.NewManager([]Definition{def}, Surroundings{Environ: env}), "a"))
	}
	if pids[0] != pids[1] || pids[0] == pids[2] {
		t.Errorf("got processes %d, want the first two the same, the third another", pids)
	}
}

// TestPoolViews: each client sees a shared server as its own definition says.
func TestPoolViews(t *testing.T) {
	p := pooled(t, Options{})
	def := define(t, "files", "sdk")
	narrow := define(t, "my-files", "sdk")
	narrow.DenyTools = []string{"sleep"}
	one := p.NewManager([]Definition{def}, here())
	two := p.NewManager([]Definition{narrow}, here())
	told := make(chan string, 4)
	one.OnToolsChanged(func(server string) { told <- "one " + server })
	two.OnToolsChanged(func(server string) { told <- "two " + server })
	a, b := running(t, one, "files"), running(t, two, "my-files")
	if a.Info().PID != b.Info().PID {
		t.Fatal("the server is not shared")
	}
	if again := running(t, two, "my-files"); again != b {
		t.Error("the same server is another one at the second look")
	}
	for _, tt := range []struct {
		server *Server
		name   string
		sleeps bool
	}{{a, "files", true}, {b, "my-files", false}} {
		tools, err := tt.server.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sleeps := false
		for _, tool := range tools {
			sleeps = sleeps || tool.Name == "sleep"
		}
		if sleeps != tt.sleeps {
			t.Errorf("%s: got tool sleep %t, want %t", tt.name, sleeps, tt.sleeps)
		}
		if got := tt.server.Info().Name; got != tt.name {
			t.Errorf("got name %q, want %q", got, tt.name)
		}
		if _, err := tt.server.CallTool(t.Context(), "no-such-tool", nil); err != nil && !strings.Contains(err.Error(), `"`+tt.name+`"`) {
			t.Errorf("got %v, want an error of %q", err, tt.name)
		}
	}
	if _, err := a.CallTool(t.Context(), "grow", nil); err != nil {
		t.Fatal(err)
	}
	var all []string
	for range 2 {
		select {
		case what := <-told:
			all = append(all, what)
		case <-time.After(time.Minute):
			t.Fatalf("got %q, want both told", all)
		}
	}
	slices.Sort(all)
	if want := []string{"one files", "two my-files"}; !slices.Equal(all, want) {
		t.Errorf("got %q, want %q", all, want)
	}
}

// TestPoolStartFails: a failed start is reported to each client under its name.
func TestPoolStartFails(t *testing.T) {
	p := pooled(t, Options{})
	one := p.NewManager([]Definition{define(t, "x", "dies-at-start")}, here())
	two := p.NewManager([]Definition{define(t, "y", "dies-at-start")}, here())
	for range 3 { // the last ones are too early for another start
		for name, m := range map[string]*Manager{"x": one, "y": two} {
			if _, err := m.Server(t.Context(), name); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
				t.Errorf("got %v, want an error of %q", err, name)
			}
		}
	}
}

// TestPoolRelease: a server ends when its last client has gone.
func TestPoolRelease(t *testing.T) {
	p := pooled(t, Options{})
	p.linger = 50 * time.Millisecond
	def := define(t, "a", "sdk")
	one := p.NewManager([]Definition{def}, here())
	two := p.NewManager([]Definition{def}, here())
	first := running(t, one, "a")
	running(t, two, "a")
	slow := make(chan error, 1)
	go func() {
		_, err := first.CallTool(t.Context(), "sleep", json.RawMessage(`{"ms":200}`))
		slow <- err
	}()
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-slow; err != nil { // longer than linger
		t.Errorf("a call under way: %v", err)
	}
	if _, err := one.Server(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), ErrClosed.Error()) {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
	if !first.Alive() {
		t.Fatal("the server ended although a client uses it")
	}
	if err := two.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	three := p.NewManager([]Definition{def}, here()) // within linger, or later: one runs
	if again := running(t, three, "a"); !again.Alive() {
		t.Error("a new client has no server")
	}
	if err := three.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-processOf(first).Exited():
	case <-time.After(time.Minute):
		t.Error("the server runs without a client")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.entries) > 0 {
		t.Errorf("got %d entries left, want none", len(p.entries))
	}
}

// TestPoolReplace: a client whose definition changes leaves the others alone.
func TestPoolReplace(t *testing.T) {
	p := pooled(t, Options{})
	def := define(t, "a", "sdk")
	one := p.NewManager([]Definition{def}, here())
	two := p.NewManager([]Definition{def}, here())
	before := running(t, one, "a")
	one.Replace([]Definition{define(t, "a", "sdk", "V=2")}, time.Second)
	if after := running(t, one, "a"); after.Info().PID == before.Info().PID {
		t.Error("the changed server is the old one")
	}
	if same := running(t, two, "a"); same.Info().PID != before.Info().PID {
		t.Error("the other client has another server")
	}
}
