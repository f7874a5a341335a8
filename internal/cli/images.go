package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpproxy"

	"sallyport/internal/image"
	"sallyport/internal/image/flatten"
	"sallyport/internal/image/registry"
	"sallyport/internal/private"
	"sallyport/internal/settings"
	"sallyport/internal/snapshot"
)

// imageStore is where the settings keep images.
func (a *app) imageStore() *image.Store {
	dir := a.settings.StateDir
	if dir != "" {
		dir = filepath.Join(dir, "images")
	}
	return image.At(dir, flatten.Limits{Bytes: a.settings.Images.MaxSize})
}

// registry is a client of registries with the user's credentials.
func (a *app) registry() *registry.Client {
	files := a.env.authFiles("/run")
	proxy := (&httpproxy.Config{
		HTTPProxy:  firstOf(a.env["http_proxy"], a.env["HTTP_PROXY"]),
		HTTPSProxy: firstOf(a.env["https_proxy"], a.env["HTTPS_PROXY"]),
		NoProxy:    firstOf(a.env["no_proxy"], a.env["NO_PROXY"]),
	}).ProxyFunc()
	return registry.New(registry.Options{
		Credentials: registry.Credentials{Files: files, Path: a.env["PATH"], Environ: a.env.list()},
		PlainHTTP:   a.settings.Images.PlainHTTP,
		Proxy:       func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
		MaxBytes:    a.settings.Images.MaxSize,
		UserAgent:   "sallyport/" + readVersion().Version,
	})
}

// authFiles are where `podman login` and `docker login` leave credentials, in the
// order in which Podman reads them: the first that knows a registry counts. The
// file that the user names is the only one. run is the system's directory /run.
func (e environment) authFiles(run string) []string {
	if file := e["REGISTRY_AUTH_FILE"]; file != "" {
		return []string{file}
	}
	var files []string
	add := func(elements ...string) {
		if elements[0] != "" {
			files = append(files, filepath.Join(elements...))
		}
	}
	add(e.absolute("XDG_RUNTIME_DIR"), "containers", "auth.json")
	if runtime.GOOS == "linux" {
		// Without XDG_RUNTIME_DIR, by root or by another program than Podman; and
		// by Podman for an ordinary user, for whom it makes such a directory up.
		uid := strconv.Itoa(os.Geteuid())
		temporary := firstOf(e.absolute("TMPDIR"), "/tmp")
		for _, dir := range []string{
			filepath.Join(run, "containers", uid), filepath.Join(run, "user", uid, "containers"),
			filepath.Join(temporary, "podman-run-"+uid, "containers"),
		} {
			// Nobody named it, so another user may have made it.
			if root, err := private.Passable(dir); err == nil {
				root.Close()
				add(dir, "auth.json")
			}
		}
	}
	if dir := e.absolute("XDG_CONFIG_HOME"); dir != "" {
		add(dir, "containers", "auth.json")
	} else {
		add(e.home(), ".config", "containers", "auth.json")
	}
	if dir := e["DOCKER_CONFIG"]; dir != "" {
		add(dir, "config.json")
	} else {
		add(e.home(), ".docker", "config.json")
	}
	return files
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// pull gets an image and makes its name lead to it. The caller releases the
// root.
func (a *app) pull(ctx context.Context, store *image.Store, n image.Name, tell func(stage string, done, total int64)) (*image.Root, image.Record, error) {
	fail := func(err error) (*image.Root, image.Record, error) { return nil, image.Record{}, err }
	dir, remove, err := store.Scratch()
	if err != nil {
		return fail(err)
	}
	defer remove()
	client := a.registry()
	defer client.Close()
	content, err := client.Pull(ctx, n, dir, func(done, total int64) { tell("pulling", done, total) })
	if err != nil {
		return fail(err)
	}
	root, err := store.Add(ctx, content, func(done, total int64) { tell("unpacking", done, total) })
	if err != nil {
		return fail(fmt.Errorf("unpacking %s: %w", n.Full, err))
	}
	record, err := store.Tag(n, root, content.Digest, image.SourcePull)
	if err != nil {
		root.Release()
		return fail(err)
	}
	return root, record, nil
}

// imageLibrary is what the engine finds images in: the store, and, where the
// settings let it, registries.
type imageLibrary struct {
	app   *app
	store *image.Store
	// life ends every pull.
	life context.Context

	mu    sync.Mutex
	pulls map[string]*imagePull
}

// imagePull is one image on its way, for all who wait for it.
type imagePull struct {
	done chan struct{}
	err  error

	mu          sync.Mutex
	stage       string
	have, total int64
}

func (p *imagePull) tell(stage string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.have, p.total = stage, done, total
}

// progress is how far it is, for people.
func (p *imagePull) progress() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == 0 {
		return "the registry has not answered yet"
	}
	return fmt.Sprintf("%s: %d of %d MB", p.stage, p.have>>20, p.total>>20)
}

// imageLibrary is the library of the settings in force.
func (a *app) imageLibrary() *imageLibrary {
	if a.images == nil {
		a.images = &imageLibrary{app: a, store: a.imageStore(), life: a.ctx, pulls: map[string]*imagePull{}}
	}
	return a.images
}

// Open implements gvisor.Images.
func (l *imageLibrary) Open(ctx context.Context, name string) (*image.Root, error) {
	always := l.app.settings.Images.Pull == settings.PullAlways
	if !always || l.isLocal(name) {
		root, _, err := l.store.Open(ctx, name)
		if err == nil || !errors.Is(err, image.ErrMissing) || !l.mayPull(name) {
			return root, err
		}
	}
	p, err := l.begin(name)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("the image %s is still on its way (%s): try again in a while (%w)", name, p.progress(), context.Cause(ctx))
	}
	if p.err != nil {
		l.mu.Lock()
		if l.pulls[name] == p {
			delete(l.pulls, name) // the next one tries again
		}
		l.mu.Unlock()
		return nil, p.err
	}
	root, _, err := l.store.Open(ctx, name)
	return root, err
}

// begin pulls an image in the background, once.
func (l *imageLibrary) begin(name string) (*imagePull, error) {
	n, err := image.ParseName(name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pulls[name]; p != nil {
		return p, nil
	}
	p := &imagePull{done: make(chan struct{})}
	l.pulls[name] = p
	l.app.log.Info("pulling an image", "image", n.Full)
	go func() {
		defer close(p.done)
		root, _, err := l.app.pull(l.life, l.store, n, p.tell)
		if p.err = err; err == nil {
			root.Release()
		}
	}()
	return p, nil
}

func (l *imageLibrary) isLocal(name string) bool {
	n, err := image.ParseName(name)
	return err != nil || n.Local()
}

func (l *imageLibrary) mayPull(name string) bool {
	return l.app.settings.Images.Pull != settings.PullNever && !l.isLocal(name)
}

// Look implements gvisor.Images.
func (l *imageLibrary) Look(name string) (image.Info, bool, error) {
	r, err := l.store.Find(name)
	if err != nil {
		return image.Info{}, l.mayPull(name), err
	}
	info, err := l.store.Info(r.ID)
	return info, l.mayPull(name), err
}

// awaitImage waits until the image of the settings is here, where the embedded
// engine is the one that runs code: however long that takes, and saying how far
// it is. What goes wrong the engine says itself.
func (a *app) awaitImage(sys *system) {
	name := a.settings.Image
	if name == "" || a.images == nil {
		return
	}
	l := a.images
	if _, later, err := l.Look(name); err == nil && a.settings.Images.Pull != settings.PullAlways || !later {
		return
	}
	if rep, err := sys.backend.Probe(a.ctx); err != nil || rep.Backend != settings.EngineGVisor || !rep.Usable {
		return
	}
	p, err := l.begin(name)
	if err != nil {
		return
	}
	meter := a.meter("image " + name)
	defer meter.end()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			p.mu.Lock()
			stage, have, total := p.stage, p.have, p.total
			p.mu.Unlock()
			if total > 0 {
				meter.tell(stage, have, total)
			}
		}
	}
}

// bound reports whether a session that sleeps needs the image: its snapshot
// names it.
func (a *app) bound(id string) (bool, error) {
	store := snapshots(a.settings.StateDir)
	if store == nil {
		return false, nil
	}
	list, err := store.List()
	if err != nil {
		return false, err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name, "base-") {
			continue // prepared, and made again
		}
		binding, err := store.Binding(e.Name)
		if errors.Is(err, snapshot.ErrNone) {
			continue // removed meanwhile
		}
		if err != nil {
			return false, fmt.Errorf("what a session that sleeps needs is not known: %w", err)
		}
		for line := range strings.Lines(binding) {
			if strings.TrimSpace(line) == "image: "+id {
				return true, nil
			}
		}
	}
	return false, nil
}
