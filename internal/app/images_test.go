package app

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/snapshot"
)

// TestAuthFiles: where `podman login` leaves credentials, and whose directories
// count.
func TestAuthFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the directories are Linux's")
	}
	top, uid := t.TempDir(), strconv.Itoa(os.Geteuid())
	env := Environment{"HOME": "/h", "XDG_RUNTIME_DIR": "/x", "TMPDIR": filepath.Join(top, "tmp")}
	shared := filepath.Join(top, "run", "user", uid, "containers")
	for _, dir := range []string{filepath.Join(top, "run", "containers", uid), filepath.Join(top, "tmp", "podman-run-"+uid, "containers"), shared} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(shared, 0o777); err != nil { // others can put a file there
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		set  Environment
		want []string
	}{
		{"all", nil, []string{
			"/x/containers/auth.json", top + "/run/containers/" + uid + "/auth.json", top + "/tmp/podman-run-" + uid + "/containers/auth.json",
			"/h/.config/containers/auth.json", "/h/.docker/config.json",
		}},
		{"a file that is named", Environment{"REGISTRY_AUTH_FILE": "/named.json"}, []string{"/named.json"}},
		{"other directories", Environment{"XDG_RUNTIME_DIR": "", "TMPDIR": "/nowhere", "XDG_CONFIG_HOME": "/c", "DOCKER_CONFIG": "/d"}, []string{
			top + "/run/containers/" + uid + "/auth.json", "/c/containers/auth.json", "/d/config.json",
		}},
	} {
		e := maps.Clone(env)
		maps.Copy(e, tt.set)
		if got := e.authFiles(filepath.Join(top, "run")); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// gate is a registry on this machine whose answers wait until it is open.
type gate struct {
	name  string
	open  chan struct{}
	pulls atomic.Int64
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{open: make(chan struct{})}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var serving atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if serving.Load() {
			if strings.Contains(r.URL.Path, "/manifests/") {
				g.pulls.Add(1)
			}
			select {
			case <-g.open:
			case <-r.Context().Done():
				return
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	img, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	g.name = strings.TrimPrefix(s.URL, "http://") + "/x:1"
	ref, err := name.ParseReference(g.name)
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	serving.Store(true)
	return g
}

func libraryFor(t *testing.T, pull string) *imageLibrary {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &App{
		Life: ctx, Env: Environment{"HOME": t.TempDir()}, Log: slog.New(slog.DiscardHandler),
		Settings: &settings.Settings{StateDir: t.TempDir(), Images: settings.Images{Pull: pull}},
	}
	l := a.imageLibrary()
	t.Cleanup(func() {
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.pulls {
			<-p.done
		}
	})
	return l
}

// TestFirstUsePulls: who needs an image that is not here waits for it as long as
// they can; it arrives nevertheless, once for all.
func TestFirstUsePulls(t *testing.T) {
	g := newGate(t)
	l := libraryFor(t, settings.PullMissing)
	if _, later, err := l.Look(g.name); !errors.Is(err, image.ErrMissing) || !later {
		t.Error(later, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Open(ctx, g.name); err == nil || !strings.Contains(err.Error(), "still being pulled") || !strings.Contains(err.Error(), "try again later") {
		t.Fatal(err)
	}
	if g.pulls.Load() > 1 {
		t.Error("asked more than once")
	}
	close(g.open)
	for range 2 {
		root, err := l.Open(t.Context(), g.name)
		if err != nil {
			t.Fatal(err)
		}
		root.Release()
	}
	if n := g.pulls.Load(); n != 1 {
		t.Errorf("pulled %d times", n)
	}
	if _, later, err := l.Look(g.name); err != nil || !later {
		t.Error(later, err)
	}
}

func TestPullPolicies(t *testing.T) {
	g := newGate(t)
	close(g.open)
	never := libraryFor(t, settings.PullNever)
	if _, err := never.Open(t.Context(), g.name); !errors.Is(err, image.ErrMissing) || g.pulls.Load() != 0 {
		t.Error(err, g.pulls.Load())
	}
	if _, later, _ := never.Look(g.name); later {
		t.Error("it would be pulled")
	}
	always := libraryFor(t, settings.PullAlways)
	for range 2 {
		root, err := always.Open(t.Context(), g.name)
		if err != nil {
			t.Fatal(err)
		}
		root.Release()
	}
	if n := g.pulls.Load(); n != 1 {
		t.Errorf("pulled %d times", n)
	}
	missing := libraryFor(t, settings.PullMissing)
	for _, local := range []string{"localhost/x", "sha256:" + strings.Repeat("0", 64)} {
		if _, err := missing.Open(t.Context(), local); !errors.Is(err, image.ErrMissing) {
			t.Errorf("%s: %v", local, err)
		}
	}
	if _, err := missing.Open(t.Context(), strings.Replace(g.name, "/x:1", "/none:1", 1)); err == nil || !strings.Contains(err.Error(), "no image of that name") {
		t.Error(err)
	}
}

// TestNeedsImage: a session suspended in an image needs it; a prepared snapshot,
// which is made again, does not.
func TestNeedsImage(t *testing.T) {
	l := libraryFor(t, settings.PullNever)
	id := "sha256:" + strings.Repeat("ab", 32)
	store := snapshot.At(filepath.Join(l.app.Settings.StateDir, "snapshots"))
	write := func(name, binding string) {
		t.Helper()
		err := store.Write(name, binding, snapshot.Plain, nil, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want bool) {
		t.Helper()
		if got, err := l.app.NeedsImage(id); got != want || err != nil {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	expect(false)
	write("base-1", "engine: gvisor\nimage: "+id)
	write("session-of-another", "engine: gvisor\nimage: "+strings.Replace(id, "a", "c", 1))
	expect(false)
	write("session-1", "engine: gvisor\nimage: "+id+"\nroot: x")
	expect(true)
	if err := store.Remove("session-1"); err != nil {
		t.Fatal(err)
	}
	expect(false)
	// What cannot be read may be the one that needs it.
	write("session-2", "engine: gvisor")
	manifest := filepath.Join(l.app.Settings.StateDir, "snapshots", "session-2", "manifest.json")
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(manifest, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := l.app.NeedsImage(id); err == nil {
		t.Error("what a session needs cannot be read, and the image may go")
	}
}
