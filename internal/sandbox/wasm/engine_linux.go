//go:build linux && (amd64 || arm64)

package wasm

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// Engine is the engine. Make one with New.
type Engine struct {
	opts   Options
	log    *slog.Logger
	runs   *supervise.Runs
	images images // of programs
	code   images // the compiled interpreter

	archives archives

	life context.Context // ends with the engine
	end  context.CancelFunc

	build      func() (string, error)
	confinable func() bool

	unkept sync.Once      // says that nothing is kept
	turn   chan struct{}  // holds one value while no one starts a child or makes an image
	ahead  sync.WaitGroup // starts of a child that go on without the turn

	starting sync.Mutex // held while the child for sessions is started
	mu       sync.Mutex
	child    *child // nil until one is needed
}

// New returns the engine. It starts nothing and touches nothing on the host.
func New(opts Options) (*Engine, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.CacheDir == "" || opts.Key == nil {
		return nil, errIncomplete
	}
	if opts.Executable == "" {
		opts.Executable = executable.Own
	}
	e := &Engine{
		opts: opts, log: opts.Log, runs: supervise.NewRuns(Name, nil), turn: make(chan struct{}, 1),
		images:     images{dir: opts.CacheDir, key: opts.Key, prefix: imagePrefix, keep: keptImages},
		code:       images{dir: opts.CacheDir, key: opts.Key, prefix: codePrefix, keep: keptCode},
		confinable: confinable,
		build:      sync.OnceValues(func() (string, error) { return executable.BuildID(opts.Executable) }),
	}
	e.turn <- struct{}{}
	e.life, e.end = context.WithCancel(context.Background())
	return e, nil
}

// Name implements sandbox.Engine.
func (e *Engine) Name() string { return Name }

// Start implements sandbox.Engine.
func (e *Engine) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	return e.begin(ctx, spec, nil)
}

// Restore implements sandbox.Restorer.
func (e *Engine) Restore(ctx context.Context, spec *sandbox.Spec, image sandbox.Image) (sandbox.Run, error) {
	if len(image.Files) != 1 {
		return nil, &sandbox.Error{Op: "restore", Backend: Name, Kind: sandbox.ErrInvalidSpec, Err: fmt.Errorf("an image of %d files, not 1", len(image.Files))}
	}
	return e.begin(ctx, spec, &image)
}

// begin starts a session, or restores one if image is not nil.
func (e *Engine) begin(ctx context.Context, spec *sandbox.Spec, image *sandbox.Image) (sandbox.Run, error) {
	return e.runs.Start(ctx, spec, check, func() (sandbox.Run, error) {
		if obstacle := e.obstacle(); obstacle != nil {
			return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: sandbox.ErrUnavailable, Err: errors.New(obstacle.Title)}
		}
		verify := sync.OnceValue(func() error {
			if image == nil || image.Check == nil {
				return nil
			}
			return image.Check(ctx)
		})
		go verify() // while the child and the image get ready
		r, err := e.attempt(ctx, spec, image, verify)
		if errors.Is(err, errChildGone) && ctx.Err() == nil {
			// Another session may have ended it just then.
			r, err = e.attempt(ctx, spec, image, verify)
		}
		return r, err
	})
}

// attempt starts or restores a session. It fails with errChildGone if that is the cause.
func (e *Engine) attempt(ctx context.Context, spec *sandbox.Spec, image *sandbox.Image, verify func() error) (sandbox.Run, error) {
	packages, err := e.archives.open(ctx, spec)
	if err != nil {
		return nil, err
	}
	if packages != nil {
		defer packages.Close()
	}
	c, key, err := e.ready(ctx, spec.Program)
	if err = errors.Join(err, verify()); err != nil {
		return nil, err
	}
	return e.launch(ctx, c, key, spec, packages, image)
}

// launch starts a session in a child that has its program's image. packages is the
// archive of its packages, or nil.
func (e *Engine) launch(ctx context.Context, c *child, key string, spec *sandbox.Spec, packages *os.File, image *sandbox.Image) (*run, error) {
	streams, err := supervise.NewStreams()
	if err != nil {
		return nil, err
	}
	defer streams.CloseChild()
	r := &run{
		handle: e.runs.Handle(spec.ID), child: c, streams: streams, ending: supervise.NewEnding(),
		release: func() { e.runs.Drop(spec.ID) },
		log:     e.log, patience: sessionKillTime, largest: largestSnapshot(spec.Limits.WithDefaults()),
	}
	r.life, r.stop = context.WithCancel(context.Background())
	if err := c.add(r); err != nil {
		streams.Close()
		return nil, err
	}
	q := r.request(control.OpStart)
	q.Start = &control.Start{
		ID: spec.ID, Program: key, Limits: spec.Limits.WithDefaults(), Files: spec.Files,
		Env:      supervise.Environment(spec.Program.Env, supervise.Variables(spec.Env)),
		Packages: spec.Root.PackagesDigest(),
	}
	files := streams.Child[:]
	if packages != nil {
		files = slices.Concat(files, []*os.File{packages})
	}
	var at int64
	if image != nil {
		q.Op = control.OpRestore
		files = slices.Concat(files, image.Files)
		if at, err = image.Files[0].Seek(0, io.SeekCurrent); err != nil {
			c.remove(r)
			streams.Close()
			return nil, err
		}
	}
	if _, err := c.do(ctx, q, files...); err != nil {
		if image != nil && errors.Is(err, errChildGone) {
			_, _ = image.Files[0].Seek(at, io.SeekStart) // for another attempt
		}
		c.remove(r)
		streams.Close()
		return nil, err
	}
	return r, nil
}

// check returns an error if the engine cannot run a spec.
func check(spec *sandbox.Spec) error {
	if err := supervise.CheckSpec(spec); err != nil {
		return err
	}
	switch {
	case spec.Root.Image != "":
		return fmt.Errorf("images are %w: this engine runs the Python that is part of this program", sandbox.ErrUnsupported)
	case spec.Root.Interpreter != "":
		return fmt.Errorf("an interpreter of the host is %w: this engine runs the Python that is part of this program", sandbox.ErrUnsupported)
	case spec.Network.Internet:
		return fmt.Errorf("a network is %w", sandbox.ErrUnsupported)
	case len(spec.Mounts) > 0:
		return fmt.Errorf("%s: %w", noFolders, sandbox.ErrUnsupported)
	case spec.Limits.OpenFiles > 0 && spec.Limits.OpenFiles < minOpenFiles:
		return fmt.Errorf("%d open files; the guest needs %d", spec.Limits.OpenFiles, minOpenFiles)
	}
	return nil
}

const (
	noFolders = "a session of this engine sees no files of the host, and no folders of it: set engine to gvisor, podman or docker"
	// minOpenFiles are the descriptors that the guest needs to start.
	minOpenFiles = 16
)

// single asks the guest to be the sandbox's only process: there are no others here.
const single = "single"

// argv returns a program's command as this engine runs it.
func argv(p *sandbox.Program) []string {
	if n := len(p.Argv); p.Argv[n-1] == single {
		return p.Argv
	}
	return append(slices.Clone(p.Argv), single)
}

// Prepared implements sandbox.Preparer: a start of the program finds what it needs in
// the process for sessions or in the cache.
func (e *Engine) Prepared(p *sandbox.Program) bool {
	name, err := e.imageName(p)
	if err != nil {
		return false
	}
	e.mu.Lock()
	c := e.child
	e.mu.Unlock()
	return c != nil && c.alive() && c.has(name) || e.images.present(name)
}

// Prepare implements sandbox.Preparer. It makes compiled code and the program's image,
// which takes seconds once for each build.
func (e *Engine) Prepare(ctx context.Context, p *sandbox.Program) error {
	if _, _, err := e.ready(ctx, p); err != nil {
		return &sandbox.Error{Op: "prepare", Backend: Name, Kind: sandbox.ErrStart, Err: err}
	}
	return nil
}

// ready returns a child that has a program's image, and the image's name.
func (e *Engine) ready(ctx context.Context, p *sandbox.Program) (*child, string, error) {
	key, err := e.imageName(p)
	if err != nil {
		return nil, "", err
	}
	e.mu.Lock()
	c := e.child
	e.mu.Unlock()
	if c != nil && c.alive() && c.has(key) {
		return c, key, nil
	}
	select {
	case <-e.turn:
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	// What is made is for everyone who waits: it goes on when this caller gives up.
	done := make(chan error, 1)
	go func() {
		defer func() { e.turn <- struct{}{} }()
		var err error
		c, err = e.prepare(e.life, key, p)
		done <- err
	}()
	select {
	case err := <-done:
		return c, key, err
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

// prepare does the work of ready. The caller has the turn.
func (e *Engine) prepare(ctx context.Context, key string, p *sandbox.Program) (*child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	program, err := describe(key, p)
	if err != nil {
		return nil, err
	}
	if e.images.present(key) {
		// Meanwhile. Not where everything has to be made, which one process does.
		e.ahead.Go(func() { _, _ = e.living(ctx) })
	}
	image, err := e.images.open(ctx, key)
	if _, rejected := errors.AsType[*private.Rejected](err); err != nil && !rejected {
		image, err = e.makeImage(ctx, key, program) // also where this user cannot read it
	}
	if err != nil {
		return nil, err
	}
	defer image.Close()
	c, err := e.living(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.do(ctx, control.Request{Op: control.OpProgram, Program: program}, image); err != nil {
		return nil, fmt.Errorf("loading the program's image: %w", err)
	}
	c.loading.Lock()
	c.loaded[key] = true
	c.loading.Unlock()
	return c, nil
}

// makeImage makes the image of a program in a child of its own, which runs no other
// code and ends before its work is trusted. An image that cannot be kept is an empty file,
// and the child becomes the one for sessions, which makes its image itself: it is as
// trustworthy as those sessions, which alone use it.
func (e *Engine) makeImage(ctx context.Context, key string, program *control.Program) (*os.File, error) {
	defer e.images.lock(ctx)()
	if image, err := e.images.open(ctx, key); err == nil { // another process has made it meanwhile
		return image, nil
	}
	begin := time.Now()
	maker, err := e.spawn(ctx)
	if err != nil {
		return nil, err
	}
	if err = maker.loose; err == nil {
		err = e.images.create(ctx, key, func(f *os.File) error {
			if _, err := maker.do(ctx, control.Request{Op: control.OpProgram, Program: program}, f); err != nil {
				return fmt.Errorf("making the program's image: %w", err)
			}
			if !maker.end() {
				return errors.New("the process that made it does not end")
			}
			return nil
		})
	}
	if err == nil {
		e.log.Info("prepared the embedded Python", "took", time.Since(begin).Round(time.Millisecond))
		return e.images.open(ctx, key)
	}
	if ctx.Err() != nil {
		maker.end()
		return nil, ctx.Err()
	}
	e.warnUnkept(err)
	e.adopt(maker)
	return memoryFile("sallyport-wasm-image")
}

// adopt makes a child that has run no code the one for sessions, unless there is one.
func (e *Engine) adopt(c *child) {
	e.starting.Lock()
	defer e.starting.Unlock()
	e.mu.Lock()
	needed := (e.child == nil || !e.child.alive()) && !e.runs.Closed()
	if needed {
		e.child = c
	}
	e.mu.Unlock()
	if !needed {
		c.end()
	}
}

// living returns the child for sessions, a new one if there is none or it has ended.
func (e *Engine) living(ctx context.Context) (*child, error) {
	e.starting.Lock()
	defer e.starting.Unlock()
	if err := ctx.Err(); err != nil { // while others started one
		return nil, err
	}
	e.mu.Lock()
	c := e.child
	e.mu.Unlock()
	if c != nil && c.alive() {
		return c, nil
	}
	c, err := e.spawn(ctx)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.child = c
	e.mu.Unlock()
	if e.runs.Closed() { // Close did not see it
		c.end()
		return nil, supervise.ErrClosed
	}
	e.log.Debug("started the process for sessions", "walls", c.walls)
	return c, nil
}

// imageName identifies the image of a program: what it was made of, and by what.
func (e *Engine) imageName(p *sandbox.Program) (string, error) {
	build, err := e.build()
	if err != nil {
		return "", err
	}
	digest, err := p.Digest()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%q\n%s\n", build, digest, argv(p), binding()))
	return hex.EncodeToString(sum[:20]), nil
}

// describe returns a program as a child needs it.
func describe(key string, p *sandbox.Program) (*control.Program, error) {
	var files bytes.Buffer
	w := zip.NewWriter(&files)
	err := fs.WalkDir(p.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(p.Files, name)
		if err != nil {
			return err
		}
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return err
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return &control.Program{Key: key, Files: files.Bytes(), Argv: argv(p), Env: p.Env}, nil
}

// has reports whether the child has the image of a program.
func (c *child) has(key string) bool {
	c.loading.Lock()
	defer c.loading.Unlock()
	return c.loaded[key]
}

// Attach implements sandbox.Engine. It finds only this program's runs, because no other
// outlives its program, and nothing is ever left to remove.
func (e *Engine) Attach(_ context.Context, h sandbox.Handle) (sandbox.Run, error) {
	return e.runs.Attach(h, func() error { return nil }, e.log)
}

// closeTime bounds the end of all runs.
const closeTime = 10 * time.Second

// Close implements sandbox.Engine.
func (e *Engine) Close() error {
	err := e.runs.Close(closeTime)
	e.end()
	<-e.turn // whoever makes an image has noticed
	e.ahead.Wait()
	e.turn <- struct{}{}
	e.starting.Lock() // and whoever starts a child
	defer e.starting.Unlock()
	e.mu.Lock()
	c := e.child
	e.mu.Unlock()
	e.archives.close()
	if c != nil && !c.end() {
		err = errors.Join(err, errors.New("the process that runs sessions does not end"))
	}
	return err
}
