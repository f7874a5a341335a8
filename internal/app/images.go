package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/net/http/httpproxy"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/image/registry"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
)

// registry returns a client of registries with the user's credentials.
func (a *App) registry() *registry.Client {
	files := a.Env.authFiles("/run")
	proxy := (&httpproxy.Config{
		HTTPProxy:  cmp.Or(a.Env["http_proxy"], a.Env["HTTP_PROXY"]),
		HTTPSProxy: cmp.Or(a.Env["https_proxy"], a.Env["HTTPS_PROXY"]),
		NoProxy:    cmp.Or(a.Env["no_proxy"], a.Env["NO_PROXY"]),
	}).ProxyFunc()
	return registry.New(registry.Options{
		Credentials: registry.Credentials{Files: files, Path: a.Env["PATH"], Environ: a.Env.List()},
		PlainHTTP:   a.Settings.Images.PlainHTTP,
		Proxy:       func(r *http.Request) (*url.URL, error) { return proxy(r.URL) },
		MaxBytes:    a.Settings.Images.MaxSize,
		UserAgent:   "sallyport/" + a.Version,
	})
}

// authFiles returns where `podman login` and `docker login` store credentials, in
// the order in which Podman reads them: the first that has the registry counts. A
// file that the user names is the only one. run is the system's directory /run.
func (e Environment) authFiles(run string) []string {
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
		temporary := cmp.Or(e.absolute("TMPDIR"), "/tmp")
		for _, dir := range []string{
			filepath.Join(run, "containers", uid), filepath.Join(run, "user", uid, "containers"),
			filepath.Join(temporary, "podman-run-"+uid, "containers"),
		} {
			// No user named it, so another user may have made it.
			if root, err := private.Passable(dir); err == nil {
				root.Close()
				add(dir, "auth.json")
			}
		}
	}
	if dir := e.absolute("XDG_CONFIG_HOME"); dir != "" {
		add(dir, "containers", "auth.json")
	} else {
		add(e.Home(), ".config", "containers", "auth.json")
	}
	if dir := e["DOCKER_CONFIG"]; dir != "" {
		add(dir, "config.json")
	} else {
		add(e.Home(), ".docker", "config.json")
	}
	return files
}

// PullImage pulls an image and tags it with its name. The caller releases the
// root.
func (a *App) PullImage(ctx context.Context, store *image.Store, n image.Name, tell func(stage string, done, total int64)) (*image.Root, image.Record, error) {
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

// imageLibrary finds images for the engine: in the store and, where the settings
// allow it, in registries.
type imageLibrary struct {
	app   *App
	store *image.Store
	// life ends every pull.
	life context.Context

	mu    sync.Mutex
	pulls map[string]*ImagePull
}

// ImagePull is the pull of one image, for all that wait for it; or the compilation of
// the embedded interpreter.
type ImagePull struct {
	done chan struct{}
	err  error

	mu          sync.Mutex
	stage       string
	have, total int64
}

// Done is closed when the pull has ended.
func (p *ImagePull) Done() <-chan struct{} { return p.done }

// Progress returns how much was done of the current stage. A total of zero is
// not known yet.
func (p *ImagePull) Progress() (stage string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage, p.have, p.total
}

func (p *ImagePull) tell(stage string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.have, p.total = stage, done, total
}

// progress returns how far the pull is, for people.
func (p *ImagePull) progress() string {
	stage, done, total := p.Progress()
	if total == 0 {
		return "the registry has not answered yet"
	}
	return fmt.Sprintf("%s: %d of %d MB", stage, done>>20, total>>20)
}

// imageLibrary returns the library of the settings.
func (a *App) imageLibrary() *imageLibrary {
	if a.images == nil {
		a.images = &imageLibrary{app: a, store: a.ImageStore(), life: a.Life, pulls: map[string]*ImagePull{}}
	}
	return a.images
}

// Open implements gvisor.Images.
func (l *imageLibrary) Open(ctx context.Context, name string) (*image.Root, error) {
	always := l.app.Settings.Images.Pull == settings.PullAlways
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
		return nil, fmt.Errorf("the image %s is still being pulled (%s): try again later (%w)", name, p.progress(), context.Cause(ctx))
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
func (l *imageLibrary) begin(name string) (*ImagePull, error) {
	n, err := image.ParseName(name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pulls[name]; p != nil {
		return p, nil
	}
	p := &ImagePull{done: make(chan struct{})}
	l.pulls[name] = p
	l.app.Log.Info("pulling an image", "image", n.Full)
	go func() {
		defer close(p.done)
		root, _, err := l.app.PullImage(l.life, l.store, n, p.tell)
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
	return l.app.Settings.Images.Pull != settings.PullNever && !l.isLocal(name)
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

// Interpreter implements container.Images.
func (l *imageLibrary) Interpreter(id string) (path string, found bool, err error) {
	info, err := l.store.Info(id)
	switch {
	case errors.Is(err, image.ErrMissing):
		return "", false, nil
	case err == nil && info.Python == nil:
		err = fmt.Errorf("the image %s cannot run code: %s", id, info.Trouble)
	}
	if err != nil {
		return "", true, err
	}
	return info.Python.Path, true, nil
}

// Export implements container.Images.
func (l *imageLibrary) Export(ctx context.Context, id, name string, to io.Writer) error {
	root, _, err := l.store.Open(ctx, id)
	if err != nil {
		return err
	}
	defer root.Release()
	return build.Export(ctx, l.store, root, name, to)
}

// PendingImage begins to pull the image of the settings, or to compile the embedded
// interpreter, and returns that work. It returns nil where there is nothing to wait
// for: the image is here, or another engine runs code. What goes wrong the engine
// reports.
func (c *Core) PendingImage(ctx context.Context) *ImagePull {
	if p := c.PendingCompilation(ctx); p != nil {
		return p
	}
	set, l := c.app.Settings, c.app.images
	if set.Image == "" || l == nil || set.Engine != settings.EngineAuto && set.Engine != settings.EngineGVisor {
		return nil
	}
	if _, later, err := l.Look(set.Image); err == nil && set.Images.Pull != settings.PullAlways || !later {
		return nil
	}
	if rep, err := c.Engine.Probe(ctx); err != nil || rep.Backend != settings.EngineGVisor || !rep.Usable {
		return nil
	}
	p, err := l.begin(set.Image)
	if err != nil {
		return nil
	}
	return p
}

// PendingCompilation begins to compile the embedded interpreter, and returns that work.
// It returns nil where there is nothing to compile: it is in the cache, another engine is
// chosen, or the policy lets no code run in this one. The work ends with the engine, and
// all who ask share it.
func (c *Core) PendingCompilation(ctx context.Context) *ImagePull {
	if !mayPrepare(c.Engine) {
		return nil
	}
	engine, ok := sandbox.As[sandbox.Preparer](c.Engine) // which chooses one
	if !ok || engine.Prepared(python.Program()) {
		return nil
	}
	report, err := c.Engine.Probe(ctx)
	if err != nil || !report.Usable || c.Gate.Decide(authz.Local(""), authz.RunCode{Engine: report}).Effect != authz.Allow {
		return nil
	}
	p := &ImagePull{done: make(chan struct{}), stage: broker.Compiling}
	go func() {
		defer close(p.done)
		p.err = engine.Prepare(c.app.Life, python.Program())
	}()
	return p
}

// mayPrepare reports whether an engine, or one that it may choose, is a
// [sandbox.Preparer] with work left. It probes nothing.
func mayPrepare(engine sandbox.Engine) bool {
	if c, ok := engine.(*Choice); ok {
		for _, e := range c.candidates {
			if mayPrepare(e.Engine) {
				return true
			}
		}
		return false
	}
	p, ok := sandbox.As[sandbox.Preparer](engine)
	return ok && !p.Prepared(python.Program())
}

// CompileAhead compiles the embedded interpreter in the background, where that is
// needed, so that the first call waits less. It ends when the engine is closed.
func (c *Core) CompileAhead() {
	go func() {
		p := c.PendingCompilation(c.app.Life)
		if p == nil {
			return
		}
		c.app.Log.Info("compiling the embedded Python, once on this machine")
		<-p.Done()
		if p.err != nil && !errors.Is(p.err, context.Canceled) {
			c.app.Log.Warn("the embedded Python could not be compiled: the first call tries again", "error", p.err)
		}
	}()
}
